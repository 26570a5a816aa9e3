"""The command that compares schedulers on the queue of a log."""

from typing import Any

import click

from commands import completion as known
from commands.frame.options_as_settings import Names, given
from commands.frame.outage_options import OutageWords, outage_options
from commands.frame.power_options import PowerWords, power_options
from commands.frame.queue_question import QueueQuestion
from commands.output import PATH, Output, with_output, writing_command
from ingest.core.errors import UsageError


@writing_command
@click.argument("source", metavar="[LOG]", type=PATH, required=False)
@click.option(
    "--dataset", metavar="NAME", shell_complete=known.datasets,
    help="Take the jobs of this data set of the lake in place of LOG; NAME/FILE: of one of its files.",
)  # fmt: skip
@click.option(
    "--policy", "-p", "policies", cls=Names, multiple=True, metavar="NAME",
    help="Scheduler, as easy or saf+easy; repeatable, or with commas [fcfs, easy, easy-sjbf, conservative].",
)  # fmt: skip
@click.option(
    "--processors", type=click.IntRange(1, 10**9), metavar="N", help="Size of the machine [the log's header]."
)
@click.option(
    "--nodes", metavar="NODES",
    help='Nodes x GPUs and model, as "8 x 8 A100-80, 4 x 8 V100" (racks x in front), or a CSV file of nodes.',
)  # fmt: skip
@click.option(
    "--placement", "placements", cls=Names, multiple=True, metavar="NAME",
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
    help="Measured profiles: run times of a list of Gavel, Sia or Pollux; speeds of jobs that are changed.",
)  # fmt: skip
@click.option(
    "--profile-gpu",
    metavar="NAME",
    help="GPU of --profiles, as they name it [v100; dgx-ext; by goodput the first node's].",
)
@click.option(
    "--solve", type=click.Choice(["gpus"]), help="Find the least machine that meets --target, instead."
)
@click.option("--target", metavar="FIGURE=VALUE", help="With --solve: what may be at most, as p95_wait=1h.")
@click.option(
    "--changes", metavar="SET",
    help="When running jobs are changed, and what that costs: steady, paid, free or muri [steady].",
)  # fmt: skip
@click.option(
    "--most-preemptions", type=click.IntRange(0, 10**6), metavar="N",
    help="With --changes: no job is preempted more often [20 with steady].",
)  # fmt: skip
@click.option(
    "--oversubscription", type=click.FloatRange(0, 1e4, min_open=True), metavar="X",
    help="With racks in --nodes: network of a rack's nodes over its uplink, which jobs share, as 4.",
)  # fmt: skip
@outage_options
@click.option(
    "--dependencies", is_flag=True,
    help="Submit a job that names a preceding one (SWF field 17) its think time after that one's end.",
)  # fmt: skip
@click.option(
    "--shares", type=PATH, metavar="FILE",
    help="Shares of -p fair-tree-accounts, a CSV file account,user,shares [1 each].",
)  # fmt: skip
@power_options
@click.option("--keep", is_flag=True, help="Write each schedule as a run of the store: audit, SQL, report.")
@with_output
def queue(out: Output, /, **said: Any) -> None:
    """Compare schedulers on the jobs of LOG, any job log that the readers know.

    Every scheduler gets the same jobs on the same machine. With --prediction actual it knows run times
    that nobody knows before a job ends: a bound, not a scheduler to run.

    \b
    Examples:
      twin queue examples/queue.swf
      twin queue examples/queue.swf -p easy -p saf+easy --json
      twin queue examples/queue.swf -p easy --keep
      twin queue examples/queue.swf -p easy -p srtf -p tiresias --changes steady
      twin queue examples/stages.csv -p fair-links -p crux --nodes "2 x 4 x 8 V100" --oversubscription 4
      twin queue examples/queue.swf -p easy --processors 96 --power-cap 28kW --carbon 400
      twin queue examples/queue.swf -p saf+easy -p learned --checkpoint order.json
      twin queue examples/sessions.swf -p fcfs -p easy --dependencies
      twin queue examples/queue.swf --nodes "6 x 8 A100-80, 4 x 8 V100" --placement packing
      twin queue examples/queue.swf -p easy --nodes "10 x 8 V100" --mtbf-h 200 --checkpoint-interval-s 1800
      twin queue examples/queue.swf -p srtf --nodes "10 x 8 V100" --mtbf-h 200 --notice-s 10
      twin queue examples/queue.swf -p easy --nodes "10 x 8 V100" --sleep-after 10min --wake-time 2min
      twin queue examples/queue.swf -p easy --solve gpus --target p95_wait=1h
    """
    outages = OutageWords(**{name: said.pop(name) for name in OutageWords.__slots__})
    names = QueueQuestion.__dataclass_fields__
    words = {name: said.pop(name) for name in list(said) if name in names}
    asked = QueueQuestion(**words, power=PowerWords(**said), outages=outages, store=out.store)
    if asked.changes_runs:
        _changed(out, asked)
        return
    asked.check()
    if asked.target is not None:
        _least_machine(out, asked)
    elif asked.power.asked:
        _with_power(out, asked)
    elif asked.nodes is not None:
        _on_nodes(out, asked)
    else:
        _on_pool(out, asked)


def _changed(out: Output, asked: QueueQuestion) -> None:
    """Schedulers that preempt, share and resize."""
    from commands.show import queue as show
    from replay.queueing.changing import compare_changing

    asked.check_beside_changes()
    with out.console.progress() as progress:
        found = compare_changing(
            asked.jobs, asked.policies, rules=asked.change_rules, processors=asked.processors,
            nodes=asked.nodes, prediction=asked.prediction, profiles=asked.measured,
            oversubscription=asked.oversubscription, outages=asked.outages.plan(), progress=progress,
        )  # fmt: skip
    out.show(found.to_json(), lambda console: show.changing(console, found))


def _least_machine(out: Output, asked: QueueQuestion) -> None:
    """`--solve gpus`."""
    from commands.show import queue as show
    from replay.queueing import capacity

    wanted = capacity.CapacityTarget.parse(str(asked.target))
    with out.console.progress() as progress:
        least = capacity.solve(
            asked.jobs, wanted, asked.policies, processors=asked.processors, nodes=asked.nodes,
            place=next(iter(asked.placements), None), prediction=asked.prediction, rules=asked.held,
            outages=asked.outages.plan(), progress=progress,
        )  # fmt: skip
    out.show(least.to_json(), lambda console: show.capacity(console, least))


def _with_power(out: Output, asked: QueueQuestion) -> None:
    """Power, carbon and price of each schedule, on nodes or on one pool."""
    from commands.show import queue as show
    from replay.logqueue.powered import compare_on_nodes_with_power, compare_with_power

    words, choices = asked.power, asked.power.choices(out.store)
    with out.console.progress() as progress:
        if asked.nodes is not None:
            found = compare_on_nodes_with_power(
                asked.jobs, asked.nodes, choices, asked.policies, asked.placements,
                prediction=asked.prediction, rules=asked.held, owner=words.ledger,
                outages=asked.outages.plan(), sleep=words.sleep, progress=progress,
            )  # fmt: skip
        else:
            found = compare_with_power(
                asked.jobs, choices, asked.policies, processors=asked.processors,
                prediction=asked.prediction, rules=asked.held, owner=words.ledger, supplies=words.supplies,
                keep=asked.kept_in, progress=progress,
            )  # fmt: skip
    out.show(found.to_json(), lambda console: show.with_power(console, found))


def _on_nodes(out: Output, asked: QueueQuestion) -> None:
    """Jobs on nodes, by every placement."""
    from commands.show import queue as show
    from replay.logqueue.on_nodes import compare_on_nodes

    with out.console.progress() as progress:
        found = compare_on_nodes(
            asked.jobs, str(asked.nodes), asked.policies, asked.placements, prediction=asked.prediction,
            rules=asked.held, outages=asked.outages.plan(), keep=asked.kept_in, progress=progress,
        )  # fmt: skip
    out.show(found.to_json(), lambda console: show.on_nodes(console, found))


def _on_pool(out: Output, asked: QueueQuestion) -> None:
    """Jobs on one pool of processors."""
    from commands.show import queue as show
    from replay.logqueue.comparison import compare

    with out.console.progress() as progress:
        found = compare(
            asked.jobs, asked.policies, processors=asked.processors, prediction=asked.prediction,
            rules=asked.held, keep=asked.kept_in, profiles=asked.measured, learned=asked.learned,
            dependencies=asked.dependencies, shares=asked.fair_shares, progress=progress,
        )  # fmt: skip
    out.show(found.to_json(), lambda console: show.comparison(console, found))


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
    from replay.logqueue import logged_run

    if not logged_run.is_queue(out.store, run_id):
        return False
    from commands.show import queue as show
    from replay.logqueue import whatif

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
    from replay.logqueue import comparison
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
