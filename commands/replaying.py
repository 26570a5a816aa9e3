"""Commands that run policies: one run, a re-run, off-policy estimates, benches."""

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands import completion as known
from commands import live as live_view
from commands.frame.options_as_settings import Names, OneOrMany, given
from commands.options import (
    Seconds,
    checkpoint_option,
    dataset_option,
    engine_option,
    from_option,
    link_option,
    live_option,
    port_option,
    scenario_option,
    seed_option,
    to_option,
    weights_option,
    window_option,
)
from commands.output import FOLDER, PATH, Output, command, goes_on, with_output, writing_command
from commands.queueing import bench_queues, replay_queue, what_if_of_queue
from ingest.core import extras
from ingest.core.errors import UsageError

if TYPE_CHECKING:
    from commands.show.console import Console
    from ingest.core.progress import Progress
    from replay.log.fold import Fold

Json = dict[str, Any]
Render = Callable[["Console"], None]
Watching = Callable[[], AbstractContextManager["tuple[Progress, Fold | None]"]]


@writing_command
@click.option(
    "--policy", "-p", cls=OneOrMany, multiple=True, shell_complete=known.policies,
    help="Name of a policy, see `twin policies`; of a scheduler in a queue, repeatable there [hippo; easy].",
)  # fmt: skip
@scenario_option
@dataset_option
@window_option
@from_option
@to_option
@engine_option
@seed_option
@weights_option
@link_option
@checkpoint_option
@click.option(
    "--plan",
    "plan_path",
    type=PATH,
    metavar="FILE",
    help="Keep the plan of `twin plan --out`, in its scenario.",
)
@click.option("--deadline/--no-deadline", default=False, help="Replace answers that come too late [no].")
@click.option("--resume", metavar="RUN", shell_complete=known.runs, help="Finish a run that was killed.")
@click.option(
    "--run",
    "logged",
    metavar="RUN",
    shell_complete=known.runs,
    help="Compute this run again; with --policy: what if?",
)
@click.option(
    "--from-decision",
    type=click.IntRange(0),
    metavar="N",
    help="With --run and --policy: keep its first N decisions.",
)
@click.option(
    "--until",
    type=Seconds(0, min_open=True),
    metavar="SECONDS",
    help="With --run: only as far as this time.",
)
@live_option
@port_option
@with_output
def replay(
    out: Output, policy: tuple[str, ...], scenario: str, dataset: str | None, window: Any,
    begin: str | None, end: str | None, engine: Any, seed: int | None, weights: str | None,
    links: tuple[str, ...], checkpoint: str | None, plan_path: Path | None, deadline: bool,
    resume: str | None, logged: str | None, from_decision: int | None, until: float | None, live: bool,
    metrics_port: int | None,
) -> None:  # fmt: skip
    """Run the twin on traces under a policy and log everything.

    `--run RUN` computes a logged run again and compares; `--policy` or `--link` beside it asks what if.
    A TIME is in seconds since the start of the
    trace, or a time such as 2020-01-01T02:00 (UTC unless it says otherwise) or 2020-01-01.
    A scenario whose `jobs` come from a log is a queue: policies are schedulers there, and are compared.

    \b
    Examples:
      twin replay --policy hippo --scenario quad-70b
      twin replay --policy mpc --from 2020-01-01T02:30 --to 2020-01-01T03:00
      twin replay --plan plan.yaml
      twin replay --run latest
      twin replay --run latest --policy mpc --from-decision 10
      twin replay --policy hippo --live --metrics-port 9109
      twin replay --run latest --link "us-east-1 > eu-west-1 = 0.5"
      twin replay --scenario queue-kth -p easy -p easy-sjbf
    """
    from commands.show import run as show
    from replay.planning import plan_file
    from replay.run import runner, scenario_overrides

    refuse_meaningless_options("--run" if logged else "--resume" if resume else "")
    if not given("policy") and (logged or plan_path):
        policy = ()  # a policy of files and variables is for new runs: it asks no what-if and changes no plan
    if logged is not None:
        view = partial(live_view.run, out, live, metrics_port)
        replay_logged_run(out, logged, single(policy), checkpoint, from_decision, until, links, view)
        return
    if not resume and plan_path is None and replay_queue(out, scenario, policy):
        return
    named = single(policy)
    refuse_checkpoint(named, checkpoint)
    cut = cut_of(begin, end)
    of_plan = plan_path is not None and not given("scenario")
    chosen = plan_file.world(plan_path) if plan_path is not None and of_plan else scenario
    world = None if resume else scenario_overrides.scenario(chosen, weights, links)
    kept = None if world is None or plan_path is None else plan_file.read(plan_path, world)
    if kept is not None and named is not None:
        raise UsageError("--plan and --policy do not go together: a kept plan decides nothing; leave one out")
    with live_view.run(out, live, metrics_port) as (progress, watch):
        if resume or world is None:
            killed = out.run(resume or "")
            done = runner.resume(out.store, killed, progress=progress, watch=watch)
        else:
            done = runner.run(
                out.store, policy="kept" if kept is not None else named or "hippo", plan=kept,
                scenario=world, dataset=dataset,
                window=cut or window, engine=engine, seed=seed, checkpoint=checkpoint,
                enforce_deadline=deadline, progress=progress, watch=watch,
            )  # fmt: skip
    out.show(done.to_json(), lambda console: show.run(console, done))


SETTLED = {
    "scenario", "dataset", "window", "begin", "end", "engine", "seed", "weights", "deadline", "resume",
    "plan_path",
}  # fmt: skip
"""Options of `twin replay` that a logged run has settled."""
MEANINGLESS = {
    "--run": SETTLED,
    "--resume": (SETTLED - {"resume"}) | {"policy", "links", "checkpoint", "from_decision", "until"},
    "": {"from_decision", "until"},
}
"""Options that have no meaning beside --run, beside --resume, and in a new run."""


def refuse_meaningless_options(mode: str) -> None:
    """Refuses an option that has no meaning in this mode.

    Raises:
        UsageError: one was given that has no meaning there.
    """
    for param in click.get_current_context().command.params:
        if given(param.name or "") and param.name in MEANINGLESS[mode]:
            what = f"does not go with {mode}, which keeps what the run was started with"
            raise UsageError(f"{param.opts[0]} {what if mode else 'belongs to --run RUN'}")


def single(policies: tuple[str, ...]) -> str | None:
    """Returns the policy of a run; None where none is named.

    Raises:
        UsageError: several are named.
    """
    if len(policies) > 1:
        raise UsageError(
            f"a run has one policy, not {' and '.join(policies)}; `twin bench` compares several, and "
            "`twin replay` those of a queue"
        )
    return policies[0] if policies else None


def cut_of(begin: str | None, end: str | None) -> Any:
    """The `TimeRange` of --from and --to; None without them.

    Raises:
        UsageError: one is no time, or --window is given beside them.
    """
    from twin.traces.time_range import TimeRange

    cut = TimeRange.parse(begin, end)
    if cut is not None and given("window"):
        raise UsageError("--window does not go with --from and --to, which say themselves what is replayed")
    return cut


def refuse_checkpoint(policy: str | None, checkpoint: str | None) -> None:
    """Refuses a checkpoint for a policy that has no weights.

    Raises:
        UsageError: it is not learned, or there is no such policy.
    """
    from policy.core import registry

    if policy is not None and checkpoint is not None and not registry.entry(policy).learned:
        raise UsageError(f"--checkpoint: {policy} is not learned and takes none; leave it out")


def replay_logged_run(
    out: Output, run: str, policy: str | None, checkpoint: str | None, decision: int | None,
    until: float | None, links: tuple[str, ...], view: Watching,
) -> None:  # fmt: skip
    """`twin replay --run`: repeats a run, as it was, or with another policy or other links."""
    from commands.show import whatif as show
    from replay.audit import rerun
    from replay.run import scenario_overrides, whatif

    run_id = out.run(run)
    if policy is not None and what_if_of_queue(out, run_id, policy):
        return
    refuse_checkpoint(policy, checkpoint)
    if policy is None and not links:
        if decision is not None or checkpoint is not None:
            raise UsageError("--from-decision and --checkpoint with --run need --policy")
        with view() as (progress, watch):
            same = rerun.recompute(out.store, run_id, until_s=until, progress=progress, watch=watch)
        out.show(same.to_json(), lambda console: show.rerun(console, same))
        sys.exit(0 if same.equal else 3)
    with view() as (progress, watch):
        found = whatif.what_if(
            out.store, run_id, policy, links=[scenario_overrides.parse_link(text) for text in links],
            checkpoint=checkpoint, from_decision=decision or 0, until_s=until, progress=progress,
            watch=watch,
        )  # fmt: skip
    out.show(found.to_json(), lambda console: show.what_if(console, found))


@command
@click.argument("logged", shell_complete=known.runs, metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--policy", "-p", required=True, shell_complete=known.policies, help="The policy that is asked about."
)
@checkpoint_option
@with_output
def offpolicy(out: Output, logged: tuple[str, ...], policy: str, checkpoint: str | None) -> None:
    """Estimate from logs alone what another policy would have earned.

    By importance sampling and doubly robust estimates; see docs/guides/replay.md.

    \b
    Example: twin offpolicy latest --policy mpc
    """
    from commands.show import whatif as show
    from replay.offpolicy import evaluation

    refuse_checkpoint(policy, checkpoint)
    run_ids = [out.run(run) for run in logged]
    with out.console.progress() as progress:
        found = evaluation.estimate(out.store, run_ids, policy, checkpoint=checkpoint, progress=progress)
    out.show(found.to_json(), lambda console: show.offpolicy(console, found))


@writing_command
@click.option(
    "--policy",
    "-p",
    "policies",
    cls=Names,
    multiple=True,
    shell_complete=known.policies,
    help="Repeatable, or with commas [static single greedy mpc hippo].",
)
@click.option(
    "--scenario",
    "-s",
    "scenarios",
    multiple=True,
    shell_complete=known.scenarios,
    help="Name or YAML file; repeatable [tri-7b].",
)
@dataset_option
@window_option
@engine_option
@seed_option
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    default=1,
    metavar="N",
    help="That many worlds, from the seed on [1].",
)
@weights_option
@link_option
@click.option("--perturb", metavar="C,C", help="Also with noise of these levels on links, as in 0.1,0.3.")
@click.option("--load", metavar="L,L", help="Also with jobs coming so many times as fast, as in 0.8,1.2.")
@click.option(
    "--pareto",
    is_flag=False,
    flag_value=4,
    type=click.IntRange(1, 16),
    metavar="[N]",
    help="Also with a grid of weights in steps of 1/N [4]: fronts.",
)
@click.option("--jobs", "-j", type=click.IntRange(1), metavar="J", help="Processes [cores].")
@click.option(
    "--ray",
    type=click.IntRange(0, 10_000),
    default=0,
    metavar="N",
    help="Instead: N tasks at a time on a Ray cluster (extra `ray`).",
)
@checkpoint_option
@click.option("--bound/--no-bound", default=True, help="Compute the clairvoyant bound [yes].")
@click.option("--prove", is_flag=True, help="Hold the bound against all orders, cuts and shared sizes.")
@click.option("--plots", type=FOLDER, metavar="DIR", help="Draw what was found into DIR, an SVG each.")
@with_output
def bench(
    out: Output, policies: tuple[str, ...], scenarios: tuple[str, ...], dataset: str | None, window: Any,
    engine: Any, seed: int | None, seeds: int, weights: str | None, links: tuple[str, ...],
    perturb: str | None, load: str | None, pareto: int | None, jobs: int | None, ray: int,
    checkpoint: str | None, bound: bool, prove: bool, plots: Path | None,
) -> None:  # fmt: skip
    """Compare policies in the same worlds, beside the bound.

    More than one world (several scenarios or seeds, --perturb, --load, --pareto) run in parallel, and
    what is finished in the store is not run again. --ray runs them, or the policies of one world, on the
    cluster of RAY_ADDRESS, else on one of this machine: the same runs, also when a worker dies on the way.

    \b
    Examples:
      twin bench --scenario tri-7b -p static -p mpc -p hippo
      twin bench -s tri-7b -s storm --seeds 5 --perturb 0.1,0.3
      twin bench -s queue --seeds 5 --load 0.8,1.2
      twin bench -s quad-70b --seeds 5 --pareto 8 --plots plots
      twin bench -s quad-70b --seeds 5 --ray 64
      twin bench -s queue-kth -p easy -p saf+easy --load 0.8,1.2
    """
    from commands.show import bench_table
    from commands.show import run as show
    from policy.bound.bound import ANY, PRICED
    from policy.core import registry
    from replay.bench import bench as benchmark
    from replay.bench import comparison, fronts, result_events
    from replay.bench.world import BenchWorld
    from replay.run import scenario_overrides

    if bench_queues(out, scenarios, policies, seeds, load):
        return
    if ray:
        if given("jobs") and given("ray"):
            raise UsageError("take one of --jobs and --ray")
        extras.require("ray", "--ray")
    chosen = policies or comparison.DEFAULT_POLICIES
    if not any(registry.entry(name).learned for name in chosen):
        refuse_checkpoint(chosen[0], checkpoint)
    overridden = [scenario_overrides.scenario(name, weights, links) for name in scenarios or ("tri-7b",)]
    worlds = [BenchWorld.of(scenario, dataset, window, engine, seed) for scenario in overridden]
    noises = scenario_overrides.parse_noises(perturb) if perturb else ()
    loads = scenario_overrides.parse_loads(load) if load else ()
    if prove and not bound:
        raise UsageError("--prove is about the bound: leave --no-bound out")
    priced = ANY if prove else PRICED
    with out.console.progress() as progress:
        if len(worlds) == 1 and seeds == 1 and not noises and not loads and not pareto and not ray:
            one = comparison.compare(
                out.store, chosen, worlds[0], checkpoint=checkpoint, with_bound=bound, priced=priced,
                progress=progress,
            )  # fmt: skip
            result = benchmark.single(out.store, worlds[0], one)
            verdicts = result_events.log(out.store, result)
            found, render = (
                {**one.to_json(), "verdicts": list(verdicts)},
                lambda console: show.comparison(console, one, verdicts),
            )
            results = list(result.scenarios)
        else:
            with goes_on("the same `twin bench` command takes over the runs that are finished"):
                result = benchmark.bench(
                    out.store, chosen, worlds, seeds=seeds, noises=noises, loads=loads,
                    pareto=fronts.grid(pareto or 0), checkpoint=checkpoint, with_bound=bound, priced=priced,
                    jobs=jobs, ray=ray, progress=progress,
                )  # fmt: skip
            verdicts = result_events.log(out.store, result)
            found, render = (
                {**result.to_json(), "verdicts": list(verdicts)},
                lambda console: bench_table.bench(console, result, verdicts),
            )
            results = list(result.scenarios)
    if plots is not None:
        found, render = with_plots(out, found, render, results, plots)
    out.show(found, render)


def with_plots(
    out: Output, found: Json, render: Render, results: Iterable[Any], folder: Path
) -> tuple[Json, Render]:
    """Draw the results of scenarios into `folder`; what is shown, with the files that were written."""
    from replay.bench import plots as bench_plots
    from replay.bench.chart_style import Panel

    written = bench_plots.write(out.store, [Panel.of(one) for one in results], folder)

    def both(console: "Console") -> None:
        render(console)
        for plot in written:
            console.line(f"plot: {plot.path}")

    return {**found, "plots": [plot.to_json() for plot in written]}, both
