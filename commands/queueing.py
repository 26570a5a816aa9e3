"""The command that compares schedulers on the queue of a log."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion as known
from commands.frame.power_options import PowerWords, power_options
from commands.options import given
from commands.output import PATH, Output, with_output, writing_command
from ingest.core.errors import UsageError

if TYPE_CHECKING:
    from policy.queue.checkpoint import LearnedOrder


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
    "--checkpoint", type=PATH, metavar="FILE", help="Weights of -p learned, from `twin train --queue`."
)
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
@click.option(
    "--profiles", type=PATH, metavar="DIR",
    help="Measured profiles: run times of a list of Gavel, Sia or Pollux; with --changes speeds over GPUs.",
)  # fmt: skip
@click.option("--profile-gpu", metavar="NAME", help="GPU of --profiles, as they name it [v100; dgx-ext].")
@click.option(
    "--solve", type=click.Choice(["gpus"]), help="Find the least machine that meets --target, instead."
)
@click.option("--target", metavar="FIGURE=VALUE", help="With --solve: what may be at most, as p95_wait=1h.")
@click.option(
    "--changes", metavar="SET",
    help="When running jobs are changed, and what that costs: steady, free or muri [steady].",
)  # fmt: skip
@click.option(
    "--most-preemptions", type=click.IntRange(0, 10**6), metavar="N",
    help="With --changes: no job is preempted more often [20 with steady].",
)  # fmt: skip
@power_options
@click.option("--keep", is_flag=True, help="Write each schedule as a run of the store: audit, SQL, report.")
@with_output
def queue(
    out: Output, /, source: Path | None, dataset: str | None, policies: tuple[str, ...],
    processors: int | None, nodes: str | None, placements: tuple[str, ...], checkpoint: Path | None,
    prediction: str, rules: str, profiles: Path | None, profile_gpu: str | None, solve: str | None,
    target: str | None, changes: str | None, most_preemptions: int | None, keep: bool,
    **power: Any,
) -> None:  # fmt: skip
    """Compare schedulers on the jobs of LOG, any job log that the readers know.

    Every scheduler gets the same jobs on the same machine. With --prediction actual it knows run times
    that nobody knows before a job ends: a bound, not a scheduler to run.

    \b
    Examples:
      twin queue examples/queue.swf
      twin queue examples/queue.swf -p easy -p saf+easy --json
      twin queue examples/queue.swf -p easy --keep
      twin queue examples/queue.swf -p easy -p srtf -p tiresias --changes steady
      twin queue examples/queue.swf -p easy --processors 96 --power-cap 28kW --carbon 400
      twin queue examples/queue.swf -p saf+easy -p learned --checkpoint order.json
      twin queue examples/queue.swf --nodes "6 x 8 A100-80, 4 x 8 V100" --placement packing
      twin queue examples/queue.swf -p easy --solve gpus --target p95_wait=1h
    """
    from typing import cast

    from commands.show import queue as show
    from ingest.readers.clusters.profiled_runs import RunProfiles
    from ingest.readers.job_logs import LakeJobs
    from twin.queue.jobs import Prediction
    from twin.queue.rules import RULES, rule_set
    from twin.sharing.changes import CHANGES

    if source is not None and not given("dataset"):
        dataset = None  # a LOG that is named wins over a file of settings
    if (source is None) == (dataset is None):
        raise UsageError("name a LOG, or --dataset NAME of the lake, and not both")
    if nodes is None and placements:
        raise UsageError("--placement: one pool of processors has no places; add --nodes")
    jobs = source if source is not None else LakeJobs(out.store, str(dataset))
    if rules in CHANGES and rules not in RULES:
        raise UsageError(f"--rules says how a simulator treats events: for {rules} say --changes {rules}")
    predicted, held = cast(Prediction, prediction), rule_set(rules)
    measured = None if profiles is None else RunProfiles(profiles, profile_gpu)
    if profile_gpu is not None and measured is None:
        raise UsageError("--profile-gpu belongs to --profiles DIR")
    if _changing(policies, changes, most_preemptions):
        _refuse_beside_changes(keep=keep, placements=placements, solve=solve, power=power)
        _compare_changing(
            out, jobs, policies, changes, most_preemptions, processors, nodes, predicted, measured
        )
        return
    if measured is not None and (source is None or nodes is not None or solve is not None):
        raise UsageError("--profiles goes with a LOG on one pool: without --dataset, --nodes and --solve")
    if (solve is None) != (target is None):
        raise UsageError("--solve gpus and --target FIGURE=VALUE go together: say both")
    words = PowerWords(**power)
    learned = _learned(checkpoint, policies, words.asked or nodes is not None or solve is not None or keep)
    if words.asked and (solve is not None or measured is not None):
        raise UsageError("options of power go without --solve and --profiles")
    if words.of_one_gpu and nodes is not None:
        raise UsageError(
            "--nodes say themselves which GPUs there are: leave --gpu, --idle-power, --busy-power and "
            "--supplies out"
        )
    if target is not None:
        from replay.queueing import capacity

        if keep or len(placements) > 1:
            raise UsageError("--solve goes without --keep and with one --placement: leave them out")
        wanted = capacity.CapacityTarget.parse(target)
        with out.console.progress() as progress:
            least = capacity.solve(
                jobs, wanted, policies, processors=processors, nodes=nodes,
                place=placements[0] if placements else None, prediction=predicted, rules=held,
                progress=progress,
            )  # fmt: skip
        out.show(least.to_json(), lambda console: show.capacity(console, least))
        return
    if nodes is not None:
        from replay.queue.on_nodes import compare_on_nodes

        if processors is not None:
            raise UsageError("--nodes goes without --processors: take one of them")
        if words.asked:
            from replay.queue.powered import compare_on_nodes_with_power

            if keep:
                raise UsageError("--keep of power is that of one pool: leave --nodes out, or its options")
            with out.console.progress() as progress:
                drawn = compare_on_nodes_with_power(
                    jobs, nodes, words.choices(out.store), policies, placements, prediction=predicted,
                    rules=held, owner=words.ledger, progress=progress,
                )  # fmt: skip
            out.show(drawn.to_json(), lambda console: show.with_power(console, drawn))
            return
        with out.console.progress() as progress:
            placed = compare_on_nodes(
                jobs, nodes, policies, placements, prediction=predicted, rules=held,
                keep=out.store if keep else None, progress=progress,
            )  # fmt: skip
        out.show(placed.to_json(), lambda console: show.on_nodes(console, placed))
        return
    if words.asked:
        from replay.queue.powered import compare_with_power

        with out.console.progress() as progress:
            powered = compare_with_power(
                jobs, words.choices(out.store), policies, processors=processors, prediction=predicted,
                rules=held, owner=words.ledger, supplies=words.supplies,
                keep=out.store if keep else None, progress=progress,
            )  # fmt: skip
        out.show(powered.to_json(), lambda console: show.with_power(console, powered))
        return
    from replay.queue.comparison import compare

    with out.console.progress() as progress:
        found = compare(
            jobs, policies, processors=processors, prediction=predicted, rules=held,
            keep=out.store if keep else None, profiles=measured, learned=learned,
            progress=progress,
        )  # fmt: skip
    out.show(found.to_json(), lambda console: show.comparison(console, found))


def _changing(policies: tuple[str, ...], changes: str | None, most_preemptions: int | None) -> bool:
    """Returns True if runs may be changed: by an option, or by a scheduler that does it."""
    from policy.sharing import registry

    registry.check_known(policies)
    asked = changes is not None or any(name in registry.RECIPES for name in policies)
    if most_preemptions is not None and not asked:
        raise UsageError("--most-preemptions goes with --changes, or a policy that preempts, as srtf")
    return asked


def _refuse_beside_changes(
    *, keep: bool, placements: tuple[str, ...], solve: str | None, power: dict[str, Any]
) -> None:
    """Refuses options that mean nothing where running jobs are changed."""
    if keep:
        raise UsageError("--keep keeps runs that nobody changes; leave it out beside schedulers that preempt")
    if placements:
        raise UsageError("--placement: schedulers that change runs consolidate jobs on nodes; leave it out")
    if solve is not None or PowerWords(**power).asked:
        raise UsageError("--solve and options of power go with schedulers that leave running jobs alone")
    if given("rules"):
        raise UsageError("--rules goes with schedulers that leave running jobs alone; say --changes SET here")


def _compare_changing(
    out: Output, jobs: Any, policies: tuple[str, ...], changes: str | None, most_preemptions: int | None,
    processors: int | None, nodes: str | None, prediction: Any, profiles: Any,
) -> None:  # fmt: skip
    """`twin queue --changes`: schedulers that preempt, share and resize."""
    from dataclasses import replace

    from commands.show import queue as show
    from replay.queueing.changing import compare_changing
    from twin.sharing.changes import STEADY, change_rules

    if nodes is not None and processors is not None:
        raise UsageError("--nodes goes without --processors: take one of them")
    rules = change_rules(changes or STEADY.name)
    if most_preemptions is not None:
        rules = replace(rules, most_preemptions=most_preemptions)
    with out.console.progress() as progress:
        found = compare_changing(
            jobs, policies, rules=rules, processors=processors, nodes=nodes, prediction=prediction,
            profiles=profiles, progress=progress,
        )  # fmt: skip
    out.show(found.to_json(), lambda console: show.changing(console, found))


def _learned(checkpoint: Path | None, policies: tuple[str, ...], elsewhere: bool) -> "LearnedOrder | None":
    """Returns the order of a checkpoint; None without one.

    Raises:
        UsageError: nobody asked for it, or it is not played there.
    """
    if checkpoint is None:
        return None
    from policy.queue import checkpoint as stored
    from policy.queue.registry import LEARNED

    if LEARNED not in policies:
        raise UsageError(f"--checkpoint belongs to -p {LEARNED}: add it")
    if elsewhere:
        raise UsageError(
            f"-p {LEARNED} goes with one pool: without --nodes, --solve, --keep and options of power"
        )
    return stored.load(checkpoint)


MEANINGLESS = {
    "engine", "weights", "links", "checkpoint", "deadline", "live", "metrics_port", "perturb", "pareto",
    "jobs", "ray", "bound", "prove", "plots",
}  # fmt: skip
"""Options of `twin replay` and `twin bench` that have no meaning in a queue."""


def refuse_meaningless(what: str) -> None:
    """Refuses options that have no meaning for a queue.

    Raises:
        UsageError: one is given.
    """
    for param in click.get_current_context().command.params:
        if param.name in MEANINGLESS and given(param.name):
            raise UsageError(f"{param.opts[0]} has no meaning for {what}, a queue of jobs; leave it out")


def replay_queue(out: Output, name: str, policies: tuple[str, ...]) -> bool:
    """`twin replay --scenario QUEUE`: each scheduler is a run; returns False if the scenario is no queue."""
    from twin.scenario import queue_file

    scenario = queue_file.load(name)
    if scenario is None:
        return False
    from commands.show import queue as show
    from replay.queueing import scenario_run
    from twin.traces.time_range import TimeRange

    refuse_meaningless(scenario.name)
    said = click.get_current_context().params
    cut = TimeRange.parse(said["begin"], said["end"])
    if cut is not None and given("window"):
        raise UsageError("--window does not go with --from and --to, which say themselves what is replayed")
    wanted = scenario_run.changed(
        scenario, dataset=said["dataset"], window=said["window"] if given("window") else None, cut=cut,
        seed=said["seed"],
    )  # fmt: skip
    with out.console.progress() as progress:
        found = scenario_run.replay(out.store, wanted, policies if given("policy") else (), progress=progress)
    out.show(found.to_json(), lambda console: show.compared(console, found))
    return True


def what_if_of_queue(out: Output, run_id: str, policy: str) -> bool:
    """`twin replay --run RUN --policy OTHER` of a queue run; returns False if the run is none."""
    from replay.queue import logged_run

    if not logged_run.is_queue(out.store, run_id):
        return False
    from commands.show import queue as show
    from replay.queue import whatif

    refuse_meaningless(run_id)
    for option in ("until", "from_decision"):
        if given(option):
            raise UsageError(
                f"--{option.replace('_', '-')}: a what-if of a queue begins and ends with its run"
            )
    found = whatif.what_if(out.store, run_id, policy)
    out.show(found.to_json(), lambda console: show.what_if(console, found))
    return True


def bench_queues(
    out: Output, names: tuple[str, ...], policies: tuple[str, ...], seeds: int, load: str | None
) -> bool:
    """`twin bench --scenario QUEUE`: schedulers over loads and seeds; returns False if no scenario is a
    queue."""
    from twin.scenario import queue_file

    found = [(name, queue_file.load(name)) for name in names]
    queues = [one for _, one in found if one is not None]
    if not queues:
        return False
    if other := next((name for name, one in found if one is None), None):
        raise UsageError(f"--scenario {other} is no queue of jobs as {queues[0].name} is: compare them apart")
    from commands.show import queue as show
    from replay.queue import comparison
    from replay.queueing import bench, scenario_run
    from replay.run import scenario_overrides

    refuse_meaningless(queues[0].name)
    said = click.get_current_context().params
    wanted = [
        scenario_run.changed(
            one, dataset=said["dataset"], window=said["window"] if given("window") else None,
            seed=said["seed"],
        )
        for one in queues
    ]  # fmt: skip
    loads = scenario_overrides.parse_loads(load) if load else ()
    with out.console.progress() as progress:
        result = bench.bench(
            out.store, wanted, policies if given("policies") else comparison.USUAL[1:3], seeds=seeds,
            loads=loads, progress=progress,
        )  # fmt: skip
    out.show(result.to_json(), lambda console: show.bench(console, result))
    return True
