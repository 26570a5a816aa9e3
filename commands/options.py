"""Options that more than one command takes."""

from typing import Any

import click

from commands import completion as known

CENTURY_S = 3.2e9
"""As nanoseconds it fits into 64 bits."""


class Seconds(click.FloatRange):
    """A number of seconds, up to a century; `nan` and `inf` are none."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the number, or fails as click does."""
        found = super().convert(value, param, ctx)
        if not abs(found) <= CENTURY_S:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return found


scenario_option = click.option(
    "--scenario", "-s", default="tri-7b", help="Name or YAML file [tri-7b].", shell_complete=known.scenarios
)
dataset_option = click.option(
    "--dataset", help="Data set that replaces the scenario's own.", shell_complete=known.datasets
)
window_option = click.option(
    "--window",
    type=click.Choice(["train", "validate", "test", "all"]),
    default="test",
    help="Part of the trace [test].",
)
from_option = click.option(
    "--from", "begin", metavar="TIME", help="In place of --window: replay from here on."
)
to_option = click.option("--to", "end", metavar="TIME", help="In place of --window: up to here [the end].")
engine_option = click.option(
    "--engine",
    type=click.Choice(["kernel", "des"]),
    default="kernel",
    help="One kernel call an iteration, or every micro-batch.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), help="Seed that replaces the scenario's own."
)  # the range of `ingest.core.ranges.SEED_LIMIT`, whose module is slow to import
weights_option = click.option(
    "--weights", metavar="E,U,C", help="Weights of efficiency, utilisation and cost, as in 0.6,0.2,0.2."
)
link_option = click.option(
    "--link", "links", multiple=True, metavar="A>B=F",
    help="What if a link had F times its bandwidth (0.5 or 50%); A<>B: both ways; @S: from S seconds on; "
    "repeatable.",
)  # fmt: skip
live_option = click.option("--live", is_flag=True, help="Show links, plan, decisions and figures as it goes.")
port_option = click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Serve the same for Prometheus on this machine, at port N; 0: any that is free.",
)
checkpoint_option = click.option(
    "--checkpoint", help="Digest (or its beginning) of a checkpoint [the active one]."
)
