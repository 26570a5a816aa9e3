"""Prints runs of a store: the list, comparisons, labels, what was removed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.show.console import Console, cell
from ingest.core.terminal import clipped
from replay.metrics.formatting import (
    counted,
    duration,
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
    from replay.logqueue.schedulers import ComparedQueues
    from replay.metrics.kpis import Kpis
    from replay.metrics.paired_comparison import PairedDifference
    from replay.store.run_labels import Labels

Json = dict[str, Any]
FIRST, LAST = ("run", "kind", "started"), ("tags", "note")
"""Columns of every kind of run."""
PLAN_COLUMNS = ("us/token", "tokens/s", "util", "MFU", "USD/1e9 tok", "of it egress", "moves")
QUEUE_COLUMNS = ("scheduler", "jobs", "mean wait", "95 % wait", "bounded slowdown", "util", "makespan")
PLAN_SHOWN = {
    "time_per_token_s", "tokens_per_s", "utilisation", "mfu", "total_usd_per_token", "usd_per_token", "moves",
}  # fmt: skip
QUEUE_SHOWN = {
    "scheduler", "jobs", "avg_wait_s", "p95_wait_s", "avg_bounded_slowdown", "utilisation", "makespan_s",
}  # fmt: skip
"""Columns of the listing that these show."""
NOTE = 40
"""Letters of a note in the list."""
PAIRED = ("against the first", "pairs", "by", "time saved", "tokens", "utilisation", "egress/token saved",
          "verdict")  # fmt: skip


def runs(console: Console, rows: Sequence[Json], sort: str = "") -> None:
    """Prints the list, a table for each kind of key figures; a column that it is sorted by is added where
    it does not show it."""
    tables: tuple[tuple[str, Sequence[str], set[str], Callable[[Json], tuple[Any, ...]]], ...] = (
        ("policies", PLAN_COLUMNS, PLAN_SHOWN, _of_plans),
        ("queues", QUEUE_COLUMNS, QUEUE_SHOWN, _of_queue),
        ("records of trainings, retrainings and benchmarks, and damaged runs", (), set(), lambda _: ()),
    )
    filled = sorted({_table(row) for row in rows}) or [0]
    for at in filled:
        title, columns, shown, cells = tables[at]
        extra = [sort] if sort and sort not in {*FIRST, *LAST, *shown} else []
        body = [
            (*_named(row), *cells(row), *_labelled(row), *(row[name] for name in extra))
            for row in rows
            if _table(row) == at
        ]
        if at != filled[0]:
            console.line()
        console.table(title if len(filled) > 1 else "", (*FIRST, *columns, *LAST, *extra), body)
    for row in rows:
        if row["problem"]:
            console.line(f"{row['run']}: {row['problem']}")


def _table(row: Json) -> int:
    """The number of the table that a row belongs to."""
    if row["scheduler"] is not None:
        return 1
    return 2 if row["problem"] or str(row["kind"]).startswith("log of") else 0


def _named(row: Json) -> tuple[Any, ...]:
    ended = row["finished"] or row["problem"]
    return row["run"], (row["kind"] or "damaged") + ("" if ended else ", unfinished"), row["started"]


def _labelled(row: Json) -> tuple[Any, ...]:
    return ", ".join(row["tags"]), clipped(row["note"], NOTE)


def _of_plans(row: Json) -> tuple[Any, ...]:
    return (
        per_token(row["time_per_token_s"]), rate(row["tokens_per_s"]), percent(row["utilisation"]),
        percent(row["mfu"]), total_per_billion(row["total_usd_per_token"], partial=bool(row["unpriced"])),
        per_billion(row["usd_per_token"]), row["moves"],
    )  # fmt: skip


def _of_queue(row: Json) -> tuple[Any, ...]:
    times = (row[name] for name in ("avg_wait_s", "p95_wait_s", "makespan_s"))
    wait, p95, makespan = ("-" if seconds is None else duration(seconds) for seconds in times)
    return (
        row["scheduler"], row["jobs"], wait, p95, row["avg_bounded_slowdown"], percent(row["utilisation"]),
        makespan,
    )  # fmt: skip


def compared_queues(console: Console, found: "ComparedQueues") -> None:
    """Prints schedulers, a column each, the shortest mean wait first; * marks the best of a row."""
    rows = []
    for name in found.names:
        best = found.best(name)
        values = [one.figures.get(name) for one in found.runs]
        rows.append((
            name.replace("_", " "), *(f"{cell(v)}{' *' if k in best else ''}" for k, v in enumerate(values)),
        ))  # fmt: skip
    console.table("", ("figure; * is the best", *(one.label for one in found.runs)), rows)
    console.line(found.verdict)
    for one in found.runs:
        console.line(f"{one.label}: run {one.run.run_id}")


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
