"""The command that compares schedulers on the queue of a log."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from commands import completion as known
from commands.frame.power_options import PowerWords, power_options
from commands.output import PATH, Output, with_output, writing_command
from ingest.core.errors import UsageError


@writing_command
@click.argument("source", metavar="[LOG]", type=PATH, required=False)
@click.option(
    "--dataset", metavar="NAME", shell_complete=known.datasets,
    help="Take the jobs of this data set of the lake in place of LOG; NAME/FILE: of one of its files.",
)  # fmt: skip
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
@power_options
@click.option("--keep", is_flag=True, help="Write each schedule as a run of the store: audit, SQL, report.")
@with_output
def queue(
    out: Output, /, source: Path | None, dataset: str | None, policies: tuple[str, ...],
    processors: int | None, nodes: str | None, placements: tuple[str, ...], prediction: str, rules: str,
    keep: bool, **power: Any,
) -> None:  # fmt: skip
    """Compare schedulers on the jobs of LOG, any job log that the readers know.

    Every scheduler gets the same jobs on the same machine. With --prediction actual it knows run times
    that nobody knows before a job ends: a bound, not a scheduler to run.

    \b
    Examples:
      twin queue examples/queue.swf
      twin queue examples/queue.swf -p easy -p saf+easy --json
      twin queue examples/queue.swf -p easy --keep
      twin queue examples/queue.swf -p easy --processors 96 --power-cap 28kW --carbon 400
      twin queue examples/queue.swf --nodes "6 x 8 A100-80, 4 x 8 V100" --placement packing
    """
    from typing import cast

    from commands.show import queue as show
    from ingest.readers.job_logs import LakeJobs
    from twin.queue.jobs import Prediction
    from twin.queue.rules import rule_set

    if source is not None and of_settings("dataset"):
        dataset = None  # a LOG that is named wins over a file of settings
    if (source is None) == (dataset is None):
        raise UsageError("name a LOG, or --dataset NAME of the lake, and not both")
    if nodes is None and placements:
        raise UsageError("--placement: one pool of processors has no places; add --nodes")
    jobs = source if source is not None else LakeJobs(out.store, str(dataset))
    predicted, held = cast(Prediction, prediction), rule_set(rules)
    words = PowerWords(**power)
    if nodes is not None:
        from replay.queue.on_nodes import compare_on_nodes

        if processors is not None or keep or words.asked:
            other = "--keep" if keep else "--processors" if processors is not None else "options of power"
            raise UsageError(f"--nodes goes without {other}: take one of them")
        placed = compare_on_nodes(jobs, nodes, policies, placements, prediction=predicted, rules=held)
        out.show(placed.to_json(), lambda console: show.on_nodes(console, placed))
        return
    if words.asked:
        from replay.queue.powered import compare_with_power

        if keep:
            raise UsageError("--keep goes without options of power: take one of them")
        powered = compare_with_power(
            jobs, words.choices(out.store), policies, processors=processors, prediction=predicted, rules=held,
            owner=words.ledger,
        )  # fmt: skip
        out.show(powered.to_json(), lambda console: show.with_power(console, powered))
        return
    from replay.queue.comparison import compare

    found = compare(
        jobs, policies, processors=processors, prediction=predicted, rules=held,
        keep=out.store if keep else None,
    )  # fmt: skip
    out.show(found.to_json(), lambda console: show.comparison(console, found))


def of_settings(option: str) -> bool:
    """Returns True if the value of an option is none that the command line says."""
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.COMMANDLINE
