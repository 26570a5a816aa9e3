"""Prints runs of a store: the list, comparisons, labels, what was removed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.show.console import Console, cell
from ingest.core.terminal import clipped
from replay.metrics.formatting import (
    counted,
    milliseconds,
    per_billion,
    per_token,
    percent,
    rate,
    total_per_billion,
    unpriced_notes,
)

if TYPE_CHECKING:
    from replay.inventory.garbage import Collection
    from replay.inventory.removal import Removal
    from replay.inventory.side_by_side import PairedRuns, SideBySide
    from replay.metrics.kpis import Kpis
    from replay.metrics.paired_comparison import PairedDifference
    from replay.store.run_labels import Labels

Json = dict[str, Any]
COLUMNS = ("run", "kind", "started", "us/token", "tokens/s", "util", "MFU", "USD/1e9 tok",
           "of it egress", "moves", "tags", "note")  # fmt: skip
SHOWN = {
    "run",
    "kind",
    "started",
    "time_per_token_s",
    "tokens_per_s",
    "utilisation",
    "mfu",
    "total_usd_per_token",
    "usd_per_token",
    "moves",
    "tags",
    "note",
}
"""Columns of the listing that a row of the table shows."""
NOTE = 40
"""Letters of a note in the list."""
PAIRED = ("against the first", "pairs", "by", "time saved", "tokens", "utilisation", "egress/token saved",
          "verdict")  # fmt: skip


def runs(console: Console, rows: Sequence[Json], sort: str = "") -> None:
    """Prints the list; a column that it is sorted by and does not show is added."""
    extra = [sort] if sort and sort not in SHOWN else []
    cells = [(*_row(row), *(row[name] for name in extra)) for row in rows]
    console.table("", (*COLUMNS, *extra), cells)
    for row in rows:
        if row["problem"]:
            console.line(f"{row['run']}: {row['problem']}")


def _row(row: Json) -> tuple[Any, ...]:
    ended = row["finished"] or row["problem"]
    return (
        row["run"], (row["kind"] or "damaged") + ("" if ended else ", unfinished"), row["started"],
        per_token(row["time_per_token_s"]), rate(row["tokens_per_s"]), percent(row["utilisation"]),
        percent(row["mfu"]), total_per_billion(row["total_usd_per_token"], partial=bool(row["unpriced"])),
        per_billion(row["usd_per_token"]), row["moves"], ", ".join(row["tags"]), clipped(row["note"], NOTE),
    )  # fmt: skip


def compared(console: Console, found: "SideBySide", plot: Path | None) -> None:
    """Prints the key figures of every run, a column each, then the differences from the first."""
    names = [one.run_id for one in found.runs]
    columns = [_figures(one.kpis) for one in found.runs]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    console.table("", ("figure", *names), rows)
    if found.paired:
        console.table("differences, 95 % intervals; + is better", PAIRED, [_pair(p) for p in found.paired])
    for note in (*found.notes, *unpriced_notes([one.kpis for one in found.runs])):
        console.line(f"note: {note}")
    if plot is not None:
        console.line(f"plot: {plot}")


def _figures(kpis: "Kpis") -> dict[str, str]:
    return {
        "us/token": per_token(kpis.time_per_token_s),
        "tokens": f"{kpis.tokens:,}",
        "tokens/s": rate(kpis.tokens_per_s),
        "MFU (GPUs held)": percent(kpis.mfu),
        "USD/1e9 tokens": total_per_billion(kpis.total_usd_per_token, partial=bool(kpis.unpriced)),
        "of it GPU rental": per_billion(kpis.rent_usd_per_token),
        "of it egress": per_billion(kpis.usd_per_token),
        "utilisation (active domains)": percent(kpis.utilisation),
        "utilisation (all GPUs)": percent(kpis.utilisation_owned),
        "egress, USD": f"{kpis.egress_usd:,.2f}",
        "GPU rental, USD": f"{kpis.gpu_usd:,.2f}",
        "energy, kWh": f"{kpis.energy_j / 3.6e6:,.1f}",
        "decisions": f"{kpis.decisions:,}",
        "moves": f"{kpis.moves:,}",
        "turns": f"{kpis.turns:,}",
        "fallbacks": f"{kpis.fallbacks:,}",
        "paused by moves, s": f"{kpis.paused_s:,.1f}",
        "without progress, s": f"{kpis.lost_s:,.1f}",
        "decision p50, ms": milliseconds(kpis.decision_p50_s),
        "decision p99, ms": milliseconds(kpis.decision_p99_s),
    }


def _pair(pair: "PairedRuns") -> tuple[Any, ...]:
    tokens, utilisation, money = pair.differences
    return (
        pair.other, len(pair.pairs), pair.by, percent(pair.saved), _spread(tokens, 100, " %"),
        _spread(utilisation, 100, " points"), _spread(money, 1e9, " USD/1e9"), pair.verdict,
    )  # fmt: skip


def _spread(found: "PairedDifference", factor: float, unit: str) -> str:
    mean, low, high = (factor * value for value in (found.mean, found.low, found.high))
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]{unit}" if found.estimated else f"{mean:+.2f}{unit}"


def labels(console: Console, run_id: str, found: "Labels") -> None:
    """Prints tags and note of a run."""
    console.line(f"{run_id}: {', '.join(found.tags) or 'no tags'}")
    if found.note:
        console.line(found.note)


def question(plan: Sequence["Removal"]) -> str:
    """Returns what `twin rm` asks."""
    names = ", ".join(one.run_id for one in plan)
    return f"Remove {names} ({cell(sum(one.bytes for one in plan))} bytes) for good?"


def removed(console: Console, plan: Sequence["Removal"], *, done: bool) -> None:
    """Prints what went, or would go."""
    word = "removed" if done else "would remove"
    for one in plan:
        console.line(f"{word} {one.run_id}: {counted(one.events, 'event')}, {one.bytes:,} bytes")
        if one.what_ifs:
            console.line(f"  what-ifs of it stay: {', '.join(one.what_ifs)}")


def collected(console: Console, found: "Collection") -> None:
    """Prints what went, or would go, by kind, the bytes, and what had to stay."""
    for one in found.found:
        console.line(f"{one.kind}: {one.path} ({one.bytes:,} bytes): {one.why}")
    word = "removed" if found.done else "would remove"
    console.line(f"{word} {counted(len(found.found), 'thing')}, {found.bytes:,} bytes")
    for note in found.notes:
        console.line(f"note: {note}")
