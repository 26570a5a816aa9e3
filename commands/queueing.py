"""The command that compares schedulers on the queue of a log."""

from pathlib import Path

import click

from commands.output import PATH, Output, command, with_output


@command
@click.argument("source", metavar="LOG", type=PATH)
@click.option(
    "--policy", "-p", "policies", multiple=True, metavar="NAME",
    help="Scheduler, as easy, saf or saf+easy; repeatable [fcfs, easy, easy-sjbf, conservative].",
)  # fmt: skip
@click.option(
    "--processors", type=click.IntRange(1, 10**9), metavar="N", help="Size of the machine [the log's header]."
)
@click.option(
    "--nodes", metavar="NODES",
    help='Nodes x GPUs and their model, as "8 x 8 A100-80, 4 x 8 V100", or a CSV file of nodes.',
)  # fmt: skip
@click.option(
    "--placement", "placements", multiple=True, metavar="NAME",
    help="On --nodes, where jobs lie, as best-fit, fgd or spread; repeatable [best-fit].",
)  # fmt: skip
@click.option(
    "--prediction",
    type=click.Choice(["estimate", "actual", "twice-estimate"]),
    default="estimate",
    help="Run time that schedulers count on [estimate].",
)
@click.option(
    "--rules",
    default="predictsim",
    metavar="SET",
    help="How events of one instant follow: predictsim, instant or rlscheduler [predictsim].",
)
@with_output
def queue(
    out: Output,
    source: Path,
    policies: tuple[str, ...],
    processors: int | None,
    nodes: str | None,
    placements: tuple[str, ...],
    prediction: str,
    rules: str,
) -> None:
    """Compare schedulers on the jobs of LOG, in the Standard Workload Format.

    Every scheduler gets the same jobs on the same machine. With --prediction actual it knows run times
    that nobody knows before a job ends: a bound, not a scheduler to run.

    \b
    Examples:
      twin queue examples/queue.swf
      twin queue examples/queue.swf -p easy -p saf+easy --json
      twin queue examples/queue.swf --nodes "6 x 8 A100-80, 4 x 8 V100" --placement packing
    """
    from typing import cast

    from commands.show import queue as show
    from ingest.core.errors import UsageError
    from twin.queue.jobs import Prediction
    from twin.queue.rules import rule_set

    if nodes is not None and processors is not None:
        raise UsageError("--nodes and --processors: the machine is one or the other")
    if nodes is None and placements:
        raise UsageError("--placement: one pool of processors has no places; add --nodes")
    if nodes is not None:
        from replay.queue.on_nodes import compare_on_nodes

        placed = compare_on_nodes(
            source,
            nodes,
            policies,
            placements,
            prediction=cast(Prediction, prediction),
            rules=rule_set(rules),
        )
        out.show(placed.to_json(), lambda console: show.on_nodes(console, placed))
        return
    from replay.queue.comparison import compare

    found = compare(
        source,
        policies,
        processors=processors,
        prediction=cast(Prediction, prediction),
        rules=rule_set(rules),
    )
    out.show(found.to_json(), lambda console: show.comparison(console, found))
