"""Prints the comparison of `twin queue`: a row a scheduler, then what was done to the log."""

from typing import TYPE_CHECKING

from commands.show.console import Console

if TYPE_CHECKING:  # a command loads only what it needs
    from replay.queue.comparison import QueueComparison
    from replay.queue.on_nodes import NodeComparison
    from twin.queue.metrics import QueueFigures
    from twin.queue.node_metrics import NodeFigures
    from twin.queue.node_selection import NodeJobs
    from twin.queue.selection import LogJobs

COLUMNS = (
    "policy", "jobs", "wait s", "p95", "JCT s", "bounded slowdown", "p95", "60 s", "utilisation %",
    "Jain of users", "makespan h", "overtaking %",
)  # fmt: skip
NODE_COLUMNS = (
    "policy", "placement", "jobs", "wait s", "p95", "bounded slowdown", "p95", "utilisation %",
    "fragmentation %", "nodes a gang", "overtaking %",
)  # fmt: skip


def comparison(console: Console, found: "QueueComparison") -> None:
    """Prints the figures, the rows left out, and the notes."""
    log = found.log
    title = (
        f"{log.name}: {len(log.jobs):,} jobs on {log.processors:,} processors, prediction {found.prediction}"
    )
    console.table(title, COLUMNS, [_row(name, one) for name, one in found.figures.items()])
    _left_out(console, log)


def on_nodes(console: Console, found: "NodeComparison") -> None:
    """Prints the figures of schedulers and placements, the rows left out, and the notes."""
    log = found.log
    title = (
        f"{log.name}: {len(log.jobs):,} jobs on {log.cluster.total_gpus:,} GPUs in "
        f"{len(log.cluster):,} nodes, prediction {found.prediction}"
    )
    rows = [_node_row(policy, place, one) for (policy, place), one in found.figures.items()]
    console.table(title, NODE_COLUMNS, rows)
    _left_out(console, log)


def _left_out(console: Console, log: "LogJobs | NodeJobs") -> None:
    """Prints the rows left out, by reason, and the notes."""
    if log.rejects:
        console.line()
        console.line(f"{len(log.rejects):,} rows left out:")
        for reason, count in log.reasons.items():
            first = next(one for one in log.rejects if one.reason == reason)
            console.line(f"  {count:,}: {reason} (first: {log.name}:{first.row} {first.column} {first.raw})")
    for note in log.notes:
        console.line(f"note: {note}")


def _row(name: str, one: "QueueFigures") -> tuple[object, ...]:
    return (
        name, one.jobs, one.avg_wait_s, one.p95_wait_s, one.avg_jct_s, one.avg_bounded_slowdown,
        one.p95_bounded_slowdown, one.avg_bounded_slowdown_60s, 100 * one.utilisation, one.jain_users,
        one.makespan_s / 3600, 100 * one.backfilled,
    )  # fmt: skip


def _node_row(policy: str, place: str, one: "NodeFigures") -> tuple[object, ...]:
    pool, gang = one.of_pool, "" if one.nodes_per_gang is None else one.nodes_per_gang
    return (
        policy, place, pool.jobs, pool.avg_wait_s, pool.p95_wait_s, pool.avg_bounded_slowdown,
        pool.p95_bounded_slowdown, 100 * pool.utilisation, 100 * one.fragmentation, gang,
        100 * pool.backfilled,
    )  # fmt: skip
