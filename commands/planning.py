"""Commands of plans: which one, how fast and how much without a replay, and as files of other tools."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from commands import completion as known
from commands.frame.options_as_settings import Names
from commands.options import dataset_option, scenario_option
from commands.output import FOLDER, PATH, Output, with_output, writing_command
from ingest.core import extras
from ingest.core.errors import UsageError
from replay.export.registry import TARGETS
from replay.tracking.registry import TRACKERS


@writing_command
@scenario_option
@click.option("--model", help="In place of --scenario: a model, such as llama-3-70b.")
@click.option("--sites", help='Its sites, such as "paris: 16 x A100-80, berlin: 32 x H100".')
@click.option(
    "--links", metavar="DATASET", shell_complete=known.datasets,
    help="Measured links between them; nodes by name, else in order.",
)  # fmt: skip
@click.option("--batch", type=click.IntRange(1), help="Sequences an iteration [786,432 tokens].")
@dataset_option
@click.option(
    "--window",
    type=click.Choice(["train", "validate", "test", "all"]),
    default="all",
    help="Part of the record that plans are judged by [all].",
)
@click.option("--top", type=click.IntRange(1, 6), default=3, metavar="N", help="Plans to list [3].")
@click.option("--tokens", metavar="N", help="Also days and dollars of training N tokens, such as 300B or 1T.")
@click.option("--front", is_flag=True, help="All plans that none beats in time, utilisation and cost.")
@click.option(
    "--beside", cls=Names, multiple=True, metavar="POLICY", shell_complete=known.policies,
    help="Also the plan of this planner; repeatable.",
)  # fmt: skip
@click.option("--out", "path", type=PATH, metavar="FILE", help="Write the best plan as YAML.")
@click.option(
    "--plot", "drawing", type=PATH, metavar="FILE", help="Draw it: sites, links, time line; .svg or .png."
)
@click.option(
    "--pick", type=click.IntRange(1, 24), default=1, metavar="N", help="With --out and --plot: plan N [1]."
)
@with_output
def plan(
    out: Output,
    scenario: str,
    model: str | None,
    sites: str | None,
    links: str | None,
    batch: int | None,
    dataset: str | None,
    window: Any,
    top: int,
    tokens: str | None,
    front: bool,
    beside: tuple[str, ...],
    path: Path | None,
    drawing: Path | None,
    pick: int,
) -> None:
    """Answer which plan, how fast and how much, from the recorded links.

    Tokens/s are what a plan exceeds in 90, 50 and 10 % of the record. Beside the best plans: the best one in
    a single domain, and equal cuts.

    \b
    Examples:
      twin plan --scenario quad-70b --top 5 --tokens 1T
      twin plan --scenario quad-70b --out plan.yaml --plot plan.svg
      twin plan --model llama-3-70b --sites "paris: 16 x A100-80, berlin: 32 x H100" --links cloudpilot-iperf3
    """  # fmt: skip
    if front and click.get_current_context().get_parameter_source("top") is ParameterSource.COMMANDLINE:
        raise UsageError(
            "--top does not go with --front, which lists all plans that none beats; leave one out"
        )
    from commands.show import plan as show
    from ingest.core import durable
    from replay.planning import plan_file
    from replay.planning.answer import answer
    from replay.planning.candidates import compiled
    from replay.planning.picture import picture
    from twin.estimation.training_cost import token_count
    from twin.scenario.prepare import load
    from twin.scenario.question import Question, question

    if all(word is None for word in (model, sites, links, batch)):
        asked = Question(load(scenario))
    else:
        refuse_both()
        asked = question(out.store, model, sites, links, batch)
    wanted = None if tokens is None else token_count(tokens)
    if not compiled():
        out.console.note("compiling kernels, once for this installation: about half a minute")
    with out.console.progress() as progress:
        found = answer(
            out.store, asked, dataset=dataset, window=window, top=top, beside=beside, front=front,
            tokens=wanted, progress=progress,
        )  # fmt: skip
    if pick > len(found.plans):
        raise UsageError(f"--pick {pick}: the answer has {len(found.plans)} plans; --top lists more")
    if path is not None:
        plan_file.write(path, found.record.scenario, found.plans[pick - 1])
    if drawing is not None:
        with out.console.working("picture"):
            drawn = picture(found.record, found.plans[pick - 1], drawing)
        durable.write_output(drawing, drawn)
    out.show(found.to_json(), lambda console: show.answer(console, found, front=front))


def refuse_both() -> None:
    """Refuses a scenario, or a data set in place of its own, beside the words that make one.

    Raises:
        UsageError: one was given.
    """
    context = click.get_current_context()
    for name in ("scenario", "dataset"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"--{name} does not go with --model, --sites, --links and --batch, which describe a scenario"
            )


@writing_command
@click.argument("source", metavar="RUN|PLAN", shell_complete=known.runs)
@click.option(
    "--to", "target", required=True, type=click.Choice([*TARGETS, *TRACKERS]), help="Tool to write for.",
)  # fmt: skip
@click.option("--out", "folder", type=FOLDER, metavar="DIR", help="Folder of the files [TARGET].")
@click.option("--decision", type=click.IntRange(0), metavar="N", help="Of a run: its plan after decision N.")
@click.option("--nearest", is_flag=True, help="Where the target cannot express the plan: the nearest one.")
@click.option("--force", is_flag=True, help="Replace older files.")
@with_output
def export(
    out: Output, source: str, target: str, folder: Path | None, decision: int | None, nearest: bool,
    force: bool,
) -> None:  # fmt: skip
    """Write a plan as files of a training framework, a scheduler or a simulator; or a run for a tracker.

    PLAN is a file of `twin plan --out`, its name ends in .yaml; of a RUN it is the plan at its end. A README
    beside the files says how to start. For mlflow, tensorboard and wandb it is the RUN itself: parameters,
    figures over time, sums (extra of that name).

    \b
    Examples:
      twin export plan.yaml --to megatron
      twin export latest --decision 3 --to megatron --nearest --out job/
      twin export latest --to mlflow --out tracked/
    """
    from commands.show import plan as show
    from replay.export import planned_job, registry, writing
    from replay.store.run_index import LATEST

    if source == LATEST:
        source = out.run(source)
    if target in TRACKERS:
        _track(out, source, target, folder, plan_words=decision is not None or nearest, force=force)
        return
    chosen = registry.target(target)
    with out.console.working("export"):
        job = planned_job.find(out.store, source, decision)
        found = writing.export(chosen, job, folder or Path(chosen.name), nearest=nearest)
        found.write(force=force)
    out.show(found.to_json(), lambda console: show.exported(console, found))


def _track(
    out: Output, source: str, target: str, folder: Path | None, *, plan_words: bool, force: bool
) -> None:
    """Writes a run for a tracker of experiments."""
    from commands.show import plan as show
    from replay.tracking import contract, registry
    from replay.tracking.tracked_run import tracked

    chosen = registry.tracker(target)
    if plan_words:
        raise UsageError(f"--decision and --nearest are of a plan; --to {target} writes the whole run")
    extras.require(chosen.extra, f"--to {target}")
    with out.console.working("export"):
        found = contract.track(chosen, tracked(out.store, source), folder or Path(target))
        found.write(force=force)
    out.show(found.to_json(), lambda console: show.tracked(console, found))
