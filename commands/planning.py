"""The command that answers which plan, how fast and how much, without a replay."""

from pathlib import Path
from typing import Any

import click

from commands.options import dataset_option, scenario_option
from commands.output import PATH, Output, command, with_output
from ingest.core.errors import UsageError


@command
@scenario_option
@dataset_option
@click.option(
    "--window",
    type=click.Choice(["train", "validate", "test", "all"]),
    default="all",
    help="Part of the record that plans are judged by [all].",
)
@click.option("--top", type=click.IntRange(1, 6), default=3, metavar="N", help="Plans to list [3].")
@click.option("--beside", multiple=True, metavar="POLICY", help="Also the plan of this planner; repeatable.")
@click.option("--out", "path", type=PATH, metavar="FILE", help="Write the best plan as YAML.")
@click.option(
    "--pick", type=click.IntRange(1, 6), default=1, metavar="N", help="With --out: write plan N [1]."
)
@with_output
def plan(
    out: Output,
    scenario: str,
    dataset: str | None,
    window: Any,
    top: int,
    beside: tuple[str, ...],
    path: Path | None,
    pick: int,
) -> None:
    """Answer which plan, how fast and how much, from the recorded links.

    Tokens/s are what a plan exceeds in 90, 50 and 10 % of the record. Beside the best plans: the best one in
    a single domain, and equal cuts.

    \b
    Examples:
      twin plan --scenario quad-70b --top 5
      twin plan --scenario quad-70b --out plan.yaml
    """  # fmt: skip
    from commands.show import plan as show
    from replay.planning import plan_file
    from replay.planning.answer import answer
    from twin.scenario.prepare import load

    found = answer(out.store, load(scenario), dataset=dataset, window=window, top=top, beside=beside)
    if path is not None:
        if pick > len(found.plans):
            raise UsageError(f"--pick {pick}: the answer has {len(found.plans)} plans; raise --top")
        plan_file.write(path, found.record.scenario, found.plans[pick - 1])
    out.show(found.to_json(), lambda console: show.answer(console, found))
