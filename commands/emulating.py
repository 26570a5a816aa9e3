"""The command that checks predictions against a job that runs."""

import click

from commands import completion as known
from commands.output import Output, command, with_output
from ingest.core.errors import UsageError


@command
@click.option(
    "-s", "--scenario", default="lab", metavar="NAME", shell_complete=known.scenarios,
    help="Scenario to run in small, one GPU a domain [lab].",
)  # fmt: skip
@click.option(
    "--dataset", metavar="NAME", shell_complete=known.datasets, help="Links instead of the scenario's."
)
@click.option("--window", default="test", metavar="PART", help="Part of the trace to play [test].")
@click.option(
    "--steps", type=click.IntRange(3, 1000), default=4, help="Steps of every plan and schedule [4]."
)
@click.option("--time-scale", default=4.0, metavar="K", help="Seconds of the scenario in one of the lab [4].")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of weights, batches and links [0].")
@with_output
def lab(
    out: Output, scenario: str, dataset: str | None, window: str, steps: int, time_scale: float, seed: int
) -> None:
    """Train a small job over an emulated network and compare it with its prediction.

    Every domain is a network namespace with a process of torchrun in it, and packets between them get rate
    and delay of the trace. Three plans run under 1F1B and GPipe, and the job moves its layers from one to the
    next. Needs Linux and root, or user namespaces.

    \b
    Examples:
      twin lab
      twin lab --dataset wanify-aws8 --steps 8 --json
    """
    from typing import cast

    from commands.show import lab as show
    from lab.comparison import compare
    from lab.emulated_wan import missing
    from lab.miniature import Miniature
    from twin.scenario import prepare as scenarios
    from twin.settings.window import Window

    if not 0.1 <= time_scale <= 1000:
        raise UsageError(f"--time-scale is {time_scale:g}; write 0.1 to 1000")
    if (lack := missing()) is not None:
        raise UsageError(f"no lab on this machine: {lack}")
    prepared = scenarios.prepare(
        scenarios.load(scenario), out.store, window=cast(Window, window), dataset=dataset, seed=seed
    )
    with out.console.progress() as progress:
        found = compare(Miniature(prepared, time_scale), steps, progress=progress)
    out.show(found.to_json(), lambda console: show.comparison(console, found))
