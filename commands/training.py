"""Commands that train Hi-PPO, once or on a schedule, and list policies and checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion as known
from commands import live as live_view
from commands.frame.options_as_settings import given
from commands.options import (
    dataset_option,
    live_option,
    port_option,
    scenario_option,
    seed_option,
    weights_option,
)
from commands.output import FOLDER, PATH, Output, with_output, writing_command
from ingest.core import extras
from ingest.core.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from replay.training.retrain import RetrainResult


@writing_command
@scenario_option
@dataset_option
@click.option(
    "--algorithm",
    type=click.Choice(["own", "tuned", "design", "shipped", "toy"]),
    default="own",
    help="Settings [own: on the scenario's own past, from the weights that ship].",
)
@click.option("--start", metavar="CHECKPOINT", help="Begin with these weights; `scratch`: with new ones.")
@click.option("--settings", type=PATH, metavar="FILE", help="YAML with values that replace some of them.")
@seed_option
@weights_option
@click.option("--resume", is_flag=True, help="Go on with a training that was interrupted.")
@click.option("--activate/--keep", default=None, help="Let `twin replay` use the result [yes; toy: no].")
@click.option("--workers", type=click.IntRange(0), default=0, help="Processes that collect rollouts.")
@click.option("--ray", type=click.IntRange(0), default=0, help="The same over Ray (extra `ray`).")
@click.option("--distributed", type=click.IntRange(0), default=0, help="Learners that share gradients.")
@click.option(
    "--lessons",
    "demonstrations",
    multiple=True,
    metavar="RUN",
    shell_complete=known.runs,
    help="Follow the decisions of this run first, too.",
)
@live_option
@port_option
@click.option(
    "--queue",
    "logs",
    type=PATH,
    multiple=True,
    metavar="LOG",
    help="Learn an order of the queue from this job log instead; repeatable.",
)
@click.option(
    "--out", "file", type=PATH, metavar="FILE", help="With --queue: the file to write [order.json]."
)
@click.option(
    "--method",
    type=click.Choice(["ppo", "evolution", "dd-ppo", "sla-morl"]),
    default="ppo",
    help="With --queue: learner [ppo].",
)
@click.option(
    "--minutes", type=click.FloatRange(0.01, 1440), default=5.0, help="With --queue: time to learn [5]."
)
@click.option(
    "--processors",
    type=click.IntRange(1, 10**9),
    metavar="N",
    help="With --queue: size of the machine [the log's header].",
)
@click.option("--tensorboard", type=FOLDER, help="Write the curve there (extra `tensorboard`).")
@with_output
def train(
    out: Output,
    scenario: str,
    dataset: str | None,
    algorithm: Any,
    settings: Path | None,
    start: str | None,
    seed: int | None,
    weights: str | None,
    resume: bool,
    activate: bool | None,
    workers: int,
    ray: int,
    distributed: int,
    demonstrations: tuple[str, ...],
    live: bool,
    metrics_port: int | None,
    logs: tuple[Path, ...],
    file: Path | None,
    method: Any,
    minutes: float,
    processors: int | None,
    tensorboard: Path | None,
) -> None:
    """Train Hi-PPO on the first part of a trace.

    Imitation of planners first, then PPO in many twins at once; Ctrl-C saves, `--resume` goes on. With
    workers or over Ray the result is the same; learners that share gradients see more, so theirs is another.

    \b
    Examples:
      twin train --scenario quad-70b
      twin train --scenario quad-70b --workers 2 --live
      twin train --scenario quad-70b --algorithm tuned --start scratch
      twin train --queue examples/queue.swf --processors 32 --minutes 2 --out order.json
    """
    if logs:
        _train_order(
            out, logs, file, method=method, minutes=minutes, seed=seed, processors=processors, resume=resume
        )
        return
    if alone := [name for name in ("file", "method", "minutes", "processors") if given(name)]:
        raise UsageError(f"--{alone[0].replace('file', 'out')} belongs to --queue LOG: add it")
    from commands.show import training as show
    from replay.run import scenario_overrides
    from replay.training import train as training_run

    team = training_run.Team(workers, ray, distributed)
    if tensorboard is not None:
        extras.require("tensorboard", "--tensorboard")
    if ray:
        extras.require("ray", "--ray")
    use = algorithm != "toy" if activate is None else activate
    with live_view.training(out, live, metrics_port) as (progress, tell):
        done = training_run.train(
            out.store, scenario_overrides.scenario(scenario, weights), dataset=dataset, algorithm=algorithm,
            settings=settings, start=start, seed=seed, resume=resume, activate=use, team=team,
            demonstrations=[out.run(run) for run in demonstrations], progress=progress, tell=tell,
        )  # fmt: skip
    if tensorboard is not None and done.run_id is not None:
        from replay.tracking.contract import track
        from replay.tracking.tensorboard_events import TensorboardEvents
        from replay.tracking.tracked_run import tracked

        found = track(TensorboardEvents(), tracked(out.store, done.run_id), tensorboard)
        found.write(force=True)
        out.console.note(f"curve for TensorBoard: {tensorboard / next(iter(found.files))}")
    out.show(done.to_json(), lambda console: show.trained(console, done.to_json()))
    if not done.finished:
        raise Interrupted("`twin train --resume` with the same options goes on")


def _train_order(
    out: Output, logs: tuple[Path, ...], file: Path | None, *, method: Any, minutes: float, seed: int | None,
    processors: int | None, resume: bool,
) -> None:  # fmt: skip
    """Learns an order of the queue.

    Raises:
        UsageError: an option has no meaning for it. Interrupted: by Ctrl-C, after the file was written.
    """
    from commands.show import training as show
    from replay.queueing.learning import train_order

    here = {"logs", "file", "method", "minutes", "processors", "seed", "resume"}
    for param in click.get_current_context().command.params:
        if param.expose_value and param.name not in here and given(str(param.name)):
            raise UsageError(f"{param.opts[0]} has no meaning for --queue; leave it out")
    with out.console.progress() as progress:
        done = train_order(
            logs, file or Path("order.json"), method=method, minutes=minutes, seed=seed or 0,
            processors=processors, resume=resume, progress=progress,
        )  # fmt: skip
    out.show(done.to_json(), lambda console: show.trained_order(console, done.to_json()))
    if not done.order.provenance["finished"]:
        raise Interrupted("`twin train --queue` with the same options and --resume goes on")


@writing_command
@scenario_option
@dataset_option
@click.option("--once", is_flag=True, help="Retrain now and return.")
@click.option("--every", metavar="TIME", help="Retrain again and again, for example every 6h.")
@click.option("--cron", metavar="LINE", help="Retrain by a crontab line, in UTC.")
@click.option(
    "--on-drift",
    "on_drift",
    is_flag=True,
    help="Look every 10m whether the newest run shows that the world changed, and retrain then.",
)
@with_output
def retrain(
    out: Output, scenario: str, dataset: str | None, once: bool, every: str | None, cron: str | None,
    on_drift: bool,
) -> None:  # fmt: skip
    """Train a challenger; promote it only if it beats the champion.

    They meet on the newest window of the trace. A schedule is followed until Ctrl-C and kept in the store:
    what was missed meanwhile is made up for, once, when it is followed again. With --json every retraining
    is a line of its own.

    \b
    Examples:
      twin retrain --once --scenario tri-7b
      twin retrain --every 6h
      twin retrain --cron "0 3 * * *"
      twin retrain --on-drift
    """
    if sum((once, every is not None, cron is not None, on_drift)) != 1:
        raise UsageError("say one of --once, --every TIME, --cron LINE, --on-drift")
    if once:
        from commands.show import training as show
        from replay.training import retrain as training_run
        from twin.scenario.prepare import load

        with out.console.progress() as progress:
            done = training_run.retrain(
                out.store, load(scenario), dataset=dataset, progress=progress
            ).to_json()
        out.show(done, lambda console: show.retrained(console, done))
        return
    from commands.show import training as show
    from replay.training import schedule, scheduled_retraining

    task = schedule.WATCHED if on_drift else schedule.SCHEDULED
    when = schedule.CHECK_INTERVAL if every is None else every
    trigger = schedule.every(when) if cron is None else schedule.cron(cron)

    def shown(done: "RetrainResult") -> None:
        found = done.to_json()
        out.show(found, lambda console: show.retrained(console, found))

    scheduled_retraining.follow(
        out.store, trigger, scenario=scenario, dataset=dataset, task=task, tell=out.console.note, show=shown
    )


@writing_command
@click.option("--rollback", is_flag=True, help="Go back to the checkpoint that was active before.")
@with_output
def policies(out: Output, rollback: bool) -> None:
    """List policies and checkpoints with where they come from.

    \b
    Examples:
      twin policies
      twin policies --rollback
    """
    from commands.show import training as show
    from replay.store import checkpoint_listing

    if rollback:
        from replay.training.rollback import rollback as go_back

        back = go_back(out.store)
        out.show(back.to_json(), lambda console: console.line(f"active checkpoint  {back.active}"))
        return
    found = checkpoint_listing.policies(out.store)
    out.show(found, lambda console: show.policies(console, found))
