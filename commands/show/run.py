"""Prints runs: key figures, comparisons with the bound, audits, quarantine, compaction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commands.show.console import Console
from ingest.core.units import GB
from replay.metrics.formatting import (
    cost_parts,
    counted,
    milliseconds,
    per_billion,
    per_token,
    percent,
    rate,
    total_per_billion,
    unpriced_notes,
)  # fmt: skip

if TYPE_CHECKING:  # a command loads only the packages of its own result
    from replay.audit.audit import AuditReport
    from replay.bench.comparison import Comparison, ComparisonRow
    from replay.log.compaction import Compaction
    from replay.log.quarantine import Moved
    from replay.metrics.kpis import Kpis
    from replay.run.runner import RunResult

COMPARISON_COLUMNS = (
    "policy", "us/token", "tokens/s", "vs static", "vs single", "util", "MFU", "USD/1e9 tok", "of it egress",
    "regret", "regret (kept)", "decisions", "moves", "p50 ms", "p99 ms",
)  # fmt: skip
REGRET = (
    "regret = share of the bound's tokens that were not trained; the bound knows the future, over plans with "
    "the job's schedule and kind of messages and those used here. (kept): of the best plan that is never "
    "left and turns its free knobs, in hindsight. ceiling: proven of all sequences of plans with shared "
    "sizes and those compared. capacity: all GPUs compute all the time, as if there were no links"
)
BEYOND = "more tokens than the bound, whose candidates lack a plan of this run; so there is no regret"
UNPROVEN = "no ceiling was proven; --prove tries, for up to five domains"


def run(console: Console, result: "RunResult") -> None:
    """Prints a finished run: its key figures and digests."""
    console.table(result.run_id, ("figure", "value"), _figures(result.kpis))
    for note in (*result.notes, *unpriced_notes([result.kpis])):
        console.line(f"note: {note}")
    console.line(f"digest      {result.digest}")
    console.line(f"chain head  {result.chain_head}")


def _figures(kpis: "Kpis") -> list[tuple[str, str]]:
    return [
        ("time per token", f"{per_token(kpis.time_per_token_s)} us"),
        ("tokens per second", rate(kpis.tokens_per_s)),
        ("MFU (GPUs held)", percent(kpis.mfu)),
        ("USD per 1e9 tokens", cost_parts(kpis)),
        ("tokens", f"{kpis.tokens:,}"),
        ("iterations", f"{kpis.iterations:,}"),
        ("utilisation (active domains)", percent(kpis.utilisation)),
        ("utilisation (all GPUs owned)", percent(kpis.utilisation_owned)),
        ("egress", f"{kpis.egress_usd:,.2f} USD"),
        ("GPU rental", f"{kpis.gpu_usd:,.2f} USD"),
        ("energy", f"{kpis.energy_j / 3.6e6:,.1f} kWh"),
        ("WAN traffic", f"{kpis.wan_bytes / GB:,.1f} GB training, {kpis.moved_bytes / GB:,.1f} GB moving"),
        (
            "decisions",
            f"{kpis.decisions:,}, {counted(kpis.moves, 'move')}, {counted(kpis.turns, 'turn')}, "
            f"{counted(kpis.fallbacks, 'fallback')}, {kpis.late:,} late",
        ),
        ("paused by moves", f"{kpis.paused_s:,.1f} s"),
        ("without progress", f"{kpis.lost_s:,.1f} s"),
        (
            "decision p50 / p99",
            f"{milliseconds(kpis.decision_p50_s)} / {milliseconds(kpis.decision_p99_s)} ms",
        ),
    ]


def _regret_kept(regret: float | None) -> str:
    """Return the regret against the best plan that is never left; "-" for a run that moved and beat it."""
    return percent(None if regret is not None and regret < 0 else regret)


def comparison(console: Console, result: "Comparison", records: Sequence[str] = ()) -> None:
    """Prints the policies of one world, then the bound, the runs, and the run that is the record of the
    benchmark."""
    title = f"{result.scenario} on {result.dataset}, {result.window} window, {result.wall_s / 3600:.1f} h"
    rows = [_compared(row) for row in result.rows if row.kpis is not None]
    if result.bound is not None:
        rows.append(_bounded(result))
        if result.bound.synchronous_tokens < result.bound.tokens:
            each = per_token(result.wall_s / result.bound.synchronous_tokens)
            rows.append(("bound, no local SGD", each, *["-"] * (len(COMPARISON_COLUMNS) - 2)))
        if result.bound.ceiling_tokens and not result.bound.exact:
            each = per_token(result.wall_s / result.bound.ceiling_tokens)
            rows.append(("ceiling", each, *["-"] * (len(COMPARISON_COLUMNS) - 2)))
        each = per_token(result.wall_s / result.bound.capacity_tokens)
        rows.append(("capacity", each, *["-"] * (len(COMPARISON_COLUMNS) - 2)))
    console.table(title, COMPARISON_COLUMNS, rows)
    for row in result.rows:
        if row.problem:
            console.line(f"{row.policy}: {row.problem}")
    compared = [row.kpis for row in result.rows if row.kpis is not None]
    for note in (result.note, *result.weights.note, *unpriced_notes(compared)):
        console.line(f"note: {note}")
    if result.bound is not None:
        console.line(f"note: {REGRET}")
        beyond = [row.policy for row in result.rows if row.kpis and row.regret is None]
        if beyond and result.bound.tokens:
            console.line(f"note: {', '.join(beyond)}: {BEYOND}")
        if result.bound.ceiling_tokens is None:
            console.line(f"note: {UNPROVEN}")
    for row in result.rows:
        if row.run_id:
            console.line(f"{row.policy}: run {row.run_id}")
    for run in records:
        console.line(f"bench: {run}; `twin report {run}` shows it")


def _compared(row: "ComparisonRow") -> tuple[str, ...]:
    assert row.kpis is not None
    kpis = row.kpis
    return (
        row.policy, per_token(kpis.time_per_token_s), rate(kpis.tokens_per_s),
        percent(row.reduction_vs_static), percent(row.reduction_vs_single), percent(kpis.utilisation),
        percent(kpis.mfu), total_per_billion(kpis.total_usd_per_token, partial=bool(kpis.unpriced)),
        per_billion(kpis.usd_per_token),
        percent(row.regret), _regret_kept(row.regret_kept), str(kpis.decisions), str(kpis.moves),
        milliseconds(kpis.decision_p50_s), milliseconds(kpis.decision_p99_s),
    )  # fmt: skip


def _bounded(result: "Comparison") -> tuple[str, ...]:
    assert result.bound is not None
    bound = result.bound
    name = "bound" if bound.exact else "bound (candidates)"
    if not bound.tokens:
        return (name, *["-"] * (len(COMPARISON_COLUMNS) - 1))
    return (
        name, per_token(result.wall_s / bound.tokens), rate(bound.tokens / result.wall_s), "-", "-",
        percent(bound.utilisation), "-", "-", per_billion(bound.egress_usd / bound.tokens), percent(0.0),
        _regret_kept(bound.regret_kept(bound.tokens)), "-",
        str(max(0, len(bound.timeline) - 1)), "-", "-",
    )  # fmt: skip


def audit(console: Console, report: "AuditReport") -> None:
    """Prints the verdict and findings of an audit."""
    verdict = "clean" if report.ok else counted(len(report.findings), "finding")
    console.line(f"{report.run_id}: {verdict}, {counted(report.events, 'event')}")
    for finding in report.findings:
        console.line(f"  {finding}")
    for note in report.notes:
        console.line(f"  note: {note}")
    console.line(f"digest      {report.digest or '-'}")
    console.line(f"chain head  {report.chain_head or '-'}")


def signed(console: Console, covered: int, events: int) -> None:
    """Prints up to which event a run is signed."""
    later = counted(max(0, events - covered), "later event")
    more = f"; {later} not signed: sign again when they are in a segment" if events > covered else ""
    console.line(f"signed      up to event {covered - 1:,}{more}")


def quarantined(console: Console, moved: "Moved") -> None:
    """Prints the damaged files that were moved aside, and why."""
    if moved.folder is None:
        console.line(f"{moved.run_id}: nothing to move")
        return
    console.line(f"{moved.run_id}: {counted(len(moved.files), 'file')} moved to {moved.folder}")
    for finding in moved.files:
        console.line(f"  {finding}")


def compacted(console: Console, run_id: str, done: "Compaction") -> None:
    """Prints files and bytes before and after a compaction."""
    files, sizes = (
        f"{done.files_before} -> {done.files} files",
        f"{done.bytes_before:,} -> {done.bytes:,} bytes",
    )
    console.line(f"{run_id}: {files}, {sizes}; digest and chain head are what they were")
