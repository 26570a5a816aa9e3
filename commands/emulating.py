"""The command that checks predictions against a job that runs."""

from typing import Any

import click

from commands import completion as known
from commands.options import dataset_option, seed_option, window_option
from commands.output import Output, command, with_output
from ingest.core.errors import UsageError


@command
@click.option(
    "-s", "--scenario", default="lab", metavar="NAME", shell_complete=known.scenarios,
    help="Scenario to run in small, one GPU a domain [lab].",
)  # fmt: skip
@dataset_option
@window_option
@seed_option
@click.option("--steps", type=click.IntRange(3, 1000), default=4, help="Steps of each plan and schedule [4].")
@click.option(
    "--time-scale", type=click.FloatRange(0.1, 1000), default=4.0, metavar="K",
    help="Seconds of the scenario in one of the lab [4].",
)  # fmt: skip
@click.option(
    "--loss", type=click.FloatRange(0, 0.5), default=0.0, metavar="SHARE",
    help="Packets that links drop, of which the prediction knows nothing [0].",
)  # fmt: skip
@with_output
def lab(
    out: Output, scenario: str, dataset: str | None, window: Any, seed: int | None, steps: int,
    time_scale: float, loss: float,
) -> None:  # fmt: skip
    """Train a small job over an emulated network and compare it with its prediction.

    Every domain is a network namespace with a process of torchrun in it, and packets between them get rate
    and delay of the trace. Three plans run under 1F1B and GPipe, and the job moves its layers from one to the
    next. Needs Linux and root, or user namespaces.

    \b
    Examples:
      twin lab
      twin lab --dataset wanify-aws8 --steps 8 --json
    """
    from commands.show import lab as show
    from lab.comparison import compare
    from lab.emulated_wan import missing
    from lab.miniature import Miniature
    from twin.scenario import prepare as scenarios

    if (lack := missing()) is not None:
        raise UsageError(f"no lab on this machine: {lack}")
    prepared = scenarios.prepare(
        scenarios.load(scenario), out.store, window=window, dataset=dataset, seed=seed
    )
    with out.console.progress() as progress:
        found = compare(Miniature(prepared, time_scale, loss), steps, progress=progress)
    out.show(found.to_json(), lambda console: show.comparison(console, found))
