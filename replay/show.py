"""How results look to people: one function a result; the JSON of the same results is in their `to_json`."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ingest.units import GB
from replay.console import Console, cell

if TYPE_CHECKING:  # a command loads only the packages of its own result
    from ingest.ingestion import FileResult, IngestReport
    from replay.audit import AuditReport, DecisionAudit
    from replay.compaction import Compaction
    from replay.compare import Comparison, Row
    from replay.kpis import Kpis
    from replay.quarantine import Moved
    from replay.runner import RunResult

Json = dict[str, Any]
LISTED = 12
"""Rows of a table of files before the rest is summed up."""


def ingest(console: Console, report: "IngestReport") -> None:
    """Files, rows and rejects of an ingest, a line a data set and reader; files not read by name."""
    groups: dict[tuple[str, str], list[FileResult]] = {}
    for result in report.files:
        if not result.skipped_reason:
            groups.setdefault((result.dataset, result.reader or "-"), []).append(result)
    rows = [_ingested(*key, files) for key, files in groups.items()]
    console.table("", ("data set", "reader", "files", "rows in", "stored", "rejected", "already"), rows)
    if report.skipped:
        console.line()
        not_read = [(result.path, result.skipped_reason) for result in report.skipped]
        console.table("not read", ("file", "why"), not_read[:LISTED])
        if len(not_read) > LISTED:
            console.line(f"... and {len(not_read) - LISTED:,} more; --json lists all")
    if report.empty:
        console.line()
        console.table("read, without a single row", ("file", "as"), [
            (result.path, result.reader) for result in report.empty[:LISTED]
        ])  # fmt: skip
        if len(report.empty) > LISTED:
            console.line(f"... and {len(report.empty) - LISTED:,} more; in --json they have rows_in 0")
    console.line()
    for note in report.notes:
        console.line(note)
    console.line(f"{sum(report.rows.values()):,} rows added in {report.seconds:.1f} s")


def _ingested(dataset: str, reader: str, files: list["FileResult"]) -> tuple[Any, ...]:
    stored: Counter[str] = Counter()
    for result in files:
        stored.update(result.stored)
    tables = ", ".join(f"{name} {count:,}" for name, count in sorted(stored.items()) if count) or "-"
    read = sum(result.rows_in for result in files)
    rejected = sum(result.rejected for result in files)
    return dataset, reader, len(files), read, tables, rejected, sum(result.already for result in files)


def traces(console: Console, summary: Json) -> None:
    """What is in the lake, a data set a line."""
    rows = [[entry.get(column) for column in summary["columns"]] for entry in summary["rows"]]
    console.table("", summary["columns"], rows)


def percent(share: float | None) -> str:
    """A share as people read it."""
    return "-" if share is None else f"{100 * share:.1f} %"


def milliseconds(seconds: float | None) -> str:
    """A latency in milliseconds."""
    return "-" if seconds is None else f"{1e3 * seconds:.2f}"


def per_token(seconds: float | None) -> str:
    """Time per token in microseconds."""
    return "-" if seconds is None else f"{1e6 * seconds:.2f}"


def per_billion(usd: float | None) -> str:
    """Egress in USD per billion tokens."""
    return "-" if usd is None else f"{1e9 * usd:,.0f}"


COMPARED = (
    "policy", "us/token", "vs static", "vs single", "util", "egress USD/1e9 tok",
    "regret", "regret (fixed)", "decisions", "moves", "p50 ms", "p99 ms",
)  # fmt: skip


def comparison(console: Console, result: "Comparison") -> None:
    """Policies in one world, the bound below them."""
    title = f"{result.scenario} on {result.dataset}, {result.window} window, {result.wall_s / 3600:.1f} h"
    rows = [_compared(row) for row in result.rows if row.kpis is not None]
    if result.bound is not None:
        rows.append(_bounded(result))
        if result.bound.synchronous_tokens < result.bound.tokens:
            each = per_token(result.wall_s / result.bound.synchronous_tokens)
            rows.append(("bound, no local SGD", each, *["-"] * (len(COMPARED) - 2)))
    console.table(title, COMPARED, rows)
    for row in result.rows:
        if row.problem:
            console.line(f"{row.policy}: {row.problem}")
    console.line(f"note: {result.note}")


def _compared(row: "Row") -> tuple[str, ...]:
    assert row.kpis is not None
    kpis = row.kpis
    return (
        row.policy, per_token(kpis.time_per_token_s), percent(row.reduction_vs_static),
        percent(row.reduction_vs_single), percent(kpis.utilisation), per_billion(kpis.usd_per_token),
        percent(row.regret), percent(row.regret_static), str(kpis.decisions), str(kpis.moves),
        milliseconds(kpis.decision_p50_s), milliseconds(kpis.decision_p99_s),
    )  # fmt: skip


def _bounded(result: "Comparison") -> tuple[str, ...]:
    assert result.bound is not None
    bound = result.bound
    name = "bound" if bound.exact else "bound (candidates)"
    if not bound.tokens:
        return (name, *["-"] * (len(COMPARED) - 1))
    static = 1 - bound.tokens / bound.static_tokens if bound.static_tokens else None
    return (
        name, per_token(result.wall_s / bound.tokens), "-", "-", percent(bound.utilisation),
        per_billion(bound.egress_usd / bound.tokens), percent(0.0), percent(static), "-",
        str(max(0, len(bound.timeline) - 1)), "-", "-",
    )  # fmt: skip


def run(console: Console, result: "RunResult") -> None:
    """A finished run: its key figures and its identity."""
    console.table(result.run_id, ("figure", "value"), _figures(result.kpis))
    for note in result.notes:
        console.line(f"note: {note}")
    console.line(f"digest      {result.digest}")
    console.line(f"chain head  {result.chain_head}")


def _figures(kpis: "Kpis") -> list[tuple[str, str]]:
    return [
        ("time per token", f"{per_token(kpis.time_per_token_s)} us"),
        ("tokens", f"{kpis.tokens:,}"),
        ("iterations", f"{kpis.iterations:,}"),
        ("utilisation (active domains)", percent(kpis.utilisation)),
        ("utilisation (all GPUs owned)", percent(kpis.utilisation_owned)),
        ("egress", f"{kpis.egress_usd:,.2f} USD"),
        ("GPU rental", f"{kpis.gpu_usd:,.2f} USD"),
        ("energy", f"{kpis.energy_j / 3.6e6:,.1f} kWh"),
        ("WAN traffic", f"{kpis.wan_bytes / GB:,.1f} GB training, {kpis.moved_bytes / GB:,.1f} GB moving"),
        ("decisions", f"{kpis.decisions}, {kpis.moves} moves, {kpis.fallbacks} fallbacks, {kpis.late} late"),
        ("paused by moves", f"{kpis.paused_s:,.1f} s"),
        ("without progress", f"{kpis.lost_s:,.1f} s"),
        (
            "decision p50 / p99",
            f"{milliseconds(kpis.decision_p50_s)} / {milliseconds(kpis.decision_p99_s)} ms",
        ),
    ]


def audit(console: Console, report: "AuditReport") -> None:
    """The verdict of an audit."""
    verdict = "clean" if report.ok else f"{len(report.findings)} findings"
    console.line(f"{report.run_id}: {verdict}, {report.events:,} events")
    for finding in report.findings:
        console.line(f"  {finding}")
    for note in report.notes:
        console.line(f"  note: {note}")
    console.line(f"digest      {report.digest or '-'}")
    console.line(f"chain head  {report.chain_head or '-'}")


def quarantined(console: Console, moved: "Moved") -> None:
    """What was moved aside, where to, and why."""
    if moved.folder is None:
        console.line(f"{moved.run_id}: nothing to move")
        return
    console.line(f"{moved.run_id}: {len(moved.files)} files moved to {moved.folder}")
    for finding in moved.files:
        console.line(f"  {finding}")


def compacted(console: Console, run_id: str, done: "Compaction") -> None:
    """What a compaction saved."""
    files, sizes = (
        f"{done.files_before} -> {done.files} files",
        f"{done.bytes_before:,} -> {done.bytes:,} bytes",
    )
    console.line(f"{run_id}: {files}, {sizes}; digest and chain head are what they were")


def decision(console: Console, found: "DecisionAudit") -> None:
    """One decision: what was seen and chosen, why, what others would have done, and what came of it."""
    told = found.explanation
    state = "made again, equal" if found.reproduced else f"not reproduced: {found.difference}"
    console.line(f"{found.run_id} decision {found.number} at {told.at_s:,.0f} s ({told.trigger}): {state}")
    console.line(f"{told.action}: {told.reason}")
    console.line(f"plan in force afterwards: {told.chosen or '-'}")
    console.line(f"bound by: {told.binding or '-'}")
    if told.fallback:
        console.line(f"fallback: {told.fallback}")
    for text in told.tipping_text:
        console.line(text)
    fields(console, "expected reward", told.reward)
    if told.candidates:
        columns = tuple(told.candidates[0])
        rows = [tuple(candidate[column] for column in columns) for candidate in told.candidates]
        console.table("candidates", columns, rows)
    baselines = [(name, *answer.values()) for name, answer in told.baselines.items()]
    if baselines:
        columns = ("policy", *next(iter(told.baselines.values())))
        console.table("the baselines would have done", columns, baselines)
    traffic = [(name, *row) for name, row in zip(told.domains, told.traffic_bytes, strict=True)]
    console.table("bytes an iteration between domains", ("from / to", *told.domains), traffic)
    fields(console, "what happened until the next decision", found.aftermath)


def fields(console: Console, title: str, values: Json) -> None:
    """Names and values, one a line."""
    console.table(
        title, ("figure", "value"), [(name.replace("_", " "), value) for name, value in values.items()]
    )


def status(console: Console, found: Json) -> None:
    """Runs, the active checkpoint, data sets and the health of the filters."""
    columns = ("run_id", "policy", "scenario", "events", "finished", "problem")
    runs = [tuple(run[column] for column in columns) for run in found["runs"]]
    console.table("runs", columns, runs)
    console.line(f"active checkpoint  {found['active'] or 'none: the shipped one'}")
    console.line(f"data sets          {', '.join(found['datasets']) or 'none: twin ingest traces/'}")
    console.line(f"lake digest        {found['lake_digest']}")
    if found["health_problem"]:
        console.line(f"newest run         {found['health_problem']}")
    if found["health"]:
        _health(console, found["health"])


def _health(console: Console, found: Json) -> None:
    """How far predictions of a run were off; shares in per cent."""
    console.line(f"\nprediction against observation in {found['run']}")
    console.line("bias: mean of predicted / observed - 1; MAPE: mean of its absolute value")
    console.line("in 80 %, in 95 %: share of observations inside those intervals, near their name if honest")
    figures = ("bias", "mape", "inside_80", "inside_95")
    heads = ("bias", "MAPE", "in 80 %", "in 95 %")
    console.table("bandwidth now, at each decision, per link", ("from", "to", "n", *heads, "NIS", "filter"), [
        (row["src"], row["dst"], row["count"], *_percents(row, figures), _short(row["nis"]), _state(row))
        for row in found["links"]
    ])  # fmt: skip
    console.table("bandwidth ahead, all links", ("horizon", "n", *heads), [
        (f"{row['horizon_s']:g} s", row["count"], *_percents(row, figures)) for row in found["horizons"]
    ])  # fmt: skip
    console.table("computing time per domain", ("domain", "iterations", *heads[:2], "NIS", "filter"), [
        (row["domain"], row["iterations"], *_percents(row, figures[:2]), _short(row["nis"]), _state(row))
        for row in found["domains"]
    ])  # fmt: skip
    iteration = found["iteration"]
    if iteration["iterations"]:
        bias, mape = _percents(iteration, figures[:2])
        console.line(f"whole iterations   bias {bias}, MAPE {mape} over {iteration['iterations']:,}")
    console.line("NIS: surprise of the filters at the end, over that of training; steady from 0.2 to 3")
    if found["problem"]:
        console.line(f"no NIS             {found['problem']}")


def _percents(row: Json, names: Sequence[str]) -> tuple[str, ...]:
    return tuple("-" if row[name] is None else f"{100 * row[name]:.1f} %" for name in names)


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _state(row: Json) -> str:
    if row["healthy"] is None:
        return "-"
    return "steady" if row["healthy"] else "drifting" if row["nis"] > 1 else "calmer"


def policies(console: Console, found: Json) -> None:
    """Registered policies and stored checkpoints."""
    console.table(
        "policies", ("name", "what it does"), [(p["name"], p["summary"]) for p in found["policies"]]
    )
    checkpoints = [_checkpoint(c, record) for c in found["checkpoints"] for record in c["records"] or [None]]
    if checkpoints:
        columns = (
            "digest", "active", "parent", "made by", "verdict", "score", "of champion", "data", "code",
            "problem",
        )  # fmt: skip
        console.table("checkpoints", columns, checkpoints)


def _checkpoint(found: Json, record: Json | None) -> tuple[Any, ...]:
    """A checkpoint and one training that made it; where the logs have none, what the file itself says.

    Scores are the validation score of a training, and mean tokens of the evaluation runs of a retraining.
    """
    own = found["lineage"]
    start = (found["digest"][:12], found["active"])
    if record is None:
        sets = [str(entry[0]) for entry in own.get("data", ())]
        data = ", ".join(sets[:2]) + (f" and {len(sets) - 2} more" if len(sets) > 2 else "")
        return (*start, "-", "-", "-", own.get("score"), "-", data, own.get("code", "-"), own.get("problem"))
    scores = record["scores"]
    wan = next(iter(record["data"]["traces"].values()), "")
    return (
        *start, (record["parent"] or "from scratch")[:12], record["run_id"], record["verdict"],
        scores.get("challenger", {}).get("tokens", own.get("score")),
        scores.get("champion", {}).get("tokens"), f"{record['data']['window']} {wan[:8]}",
        record["code"].get("sources", "-")[:8], own.get("problem"),
    )  # fmt: skip


def retrained(console: Console, result: Json) -> None:
    """The verdict of a retraining."""
    state = "promoted" if result["promoted"] else "rejected"
    console.line(f"challenger {result['challenger'][:12]} {state}: {result['reason']}")
    console.table("paired against the champion", ("kpi", "mean", "low", "high"), [
        tuple(verdict.values()) for verdict in result["verdicts"]
    ])  # fmt: skip
    console.line(f"run         {result['run']}")
    console.line(f"chain head  {result['chain_head']}")


def trained(console: Console, result: Json) -> None:
    """What a training left."""
    state = "finished" if result["finished"] else "interrupted: go on with --resume"
    console.line(f"training {state} after {result['updates']} updates, {result['seconds']:.0f} s")
    console.line(f"checkpoint  {result['checkpoint']}{' (active)' if result['active'] else ''}")
    console.line(f"validation  {cell(result['score'])}")
    if result["run"]:
        console.line(f"run         {result['run']}")
