"""The queue of a scenario: its jobs from the lake, made as it says, played by schedulers, each a run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import NS_PER_S, to_ns
from ingest.readers import job_logs
from ingest.readers.job_logs import LakeJobs
from policy.placement.registry import placement
from policy.queue.registry import recipe
from replay.logqueue import comparison, on_nodes
from replay.logqueue.comparison import QueueComparison
from replay.logqueue.on_nodes import NodeComparison
from replay.logqueue.run_events import QueueOrigin
from replay.queueing import on_sites, trained_models
from replay.queueing.on_sites import SiteComparison
from twin.nodes.outage_plan import OutagePlan
from twin.queue.jobs import QueueJobs
from twin.queue.rules import INSTANT, rule_set
from twin.settings.job_queue import Between, QueueScenario
from twin.settings.window import Window, split
from twin.traces.time_range import TimeRange
from twin.workload.selection import select
from twin.workload.shaping import Workload, shaped

USUAL_POLICY = "easy"
"""Scheduler of a scenario if none is named."""
Compared = QueueComparison | NodeComparison | SiteComparison


def changed(
    scenario: QueueScenario, *, dataset: str | None = None, window: Window | None = None,
    cut: TimeRange | None = None, seed: int | None = None, load: float | None = None,
) -> QueueScenario:  # fmt: skip
    """Returns the scenario with what a command says: NAME or NAME/FILE of the lake, a part of the log, a
    seed, and a load that multiplies its own.

    Raises:
        UsageError: a part is given in calendar times, or is empty.
    """
    jobs = scenario.jobs
    if dataset is not None:
        name, _, file = dataset.partition("/")
        jobs = jobs.model_copy(update={"dataset": name, "file": file or None})
    if window is not None:
        jobs = jobs.model_copy(update={"window": window})
    if cut is not None:
        jobs = jobs.model_copy(update={"window": _between(cut)})
    if load is not None:
        jobs = jobs.model_copy(update={"load": jobs.load * load})
    own = {} if seed is None else {"seed": seed}
    return scenario.model_copy(update={"jobs": jobs, **own})


def _between(cut: TimeRange) -> Between:
    """Returns the part of a log of --from and --to."""
    ends = [0 if cut.begin is None else cut.begin, to_ns(3e9) if cut.end is None else cut.end]
    if not all(isinstance(one, int) for one in ends):
        raise UsageError("--from and --to of a queue are seconds since its first submission")
    begin_s, end_s = (float(one) / NS_PER_S for one in ends if isinstance(one, int))
    if not 0 <= begin_s < end_s:
        raise UsageError(f"--from {begin_s:g} s is not before --to {end_s:g} s, or is negative")
    return Between(from_s=begin_s, to_s=end_s)


def replay(
    store: Path, scenario: QueueScenario, policies: Sequence[str] = (), *, keep: bool = True,
    progress: Progress = SILENT,
) -> Compared:  # fmt: skip
    """Returns what each scheduler makes of the queue of a scenario; each is a run of the store if `keep`.

    Raises:
        NotFoundError: the lake has no such jobs. UsageError: an unknown scheduler, placement or rule set, or
            they do not go together.
    """
    recipes = [recipe(name) for name in dict.fromkeys(policies or (USUAL_POLICY,))]
    rules, target = rule_set(scenario.rules), store if keep else None
    source = LakeJobs(store, scenario.jobs.source)
    if scenario.cluster is not None:
        log = select(job_logs.read(source), INSTANT, sum(one.gpus for one in scenario.cluster.domains))
        made = workload(log.jobs, scenario)
        log = replace(log, jobs=made.jobs, notes=(*log.notes, *made.notes))
        inputs = on_sites.inputs_of(store, scenario, log)
        over = on_sites.of_site_jobs(
            inputs, recipes, scenario, keep=target,
            origin=origin(scenario, replace(made, notes=inputs.log.notes)), progress=progress,
        )  # fmt: skip
        return replace(over, synthetic=made.synthetic)
    if scenario.nodes is None:
        log = select(job_logs.read(source), rules, scenario.processors)
        made = workload(log.jobs, scenario)
        log = replace(log, jobs=made.jobs, notes=(*log.notes, *made.notes))
        if scenario.trained is not None:
            log = trained_models.with_memory(log, scenario.trained, scenario.seed, progress)
            made = replace(made, notes=log.notes)
        found: QueueComparison | NodeComparison = comparison.of_jobs(
            log, recipes, prediction=scenario.prediction, rules=rules, keep=target,
            origin=origin(scenario, made), progress=progress,
        )  # fmt: skip
    else:
        places = [placement(scenario.placement or on_nodes.USUAL_PLACEMENT)]
        asked = on_nodes.read_on_nodes(source, scenario.nodes, rules, places)
        made = workload(asked.jobs, scenario)
        kept = replace(asked.demands, class_of=asked.demands.class_of[made.places])
        outages = outage_plan(scenario)
        made = replace(made, notes=(*made.notes, *outages.notes))
        asked = replace(asked, jobs=made.jobs, demands=kept, notes=(*asked.notes, *made.notes))
        found = on_nodes.of_node_jobs(
            asked, recipes, places, prediction=scenario.prediction, rules=rules, outages=outages,
            keep=target, seed=scenario.seed, origin=origin(scenario, made), progress=progress,
        )  # fmt: skip
    return replace(found, scenario=scenario.name, synthetic=made.synthetic)


def outage_plan(scenario: QueueScenario) -> OutagePlan:
    """Returns the outages of the nodes of a scenario; drawn faults go by its seed."""
    said = scenario.outages
    if said is None:
        return on_nodes.NEVER_OUT
    return OutagePlan(
        None if said.file is None else Path(said.file), 3600 * (said.mtbf_h or 0.0), 3600 * said.mttr_h,
        scenario.seed, said.checkpoint_interval_s,
    )  # fmt: skip


def workload(jobs: QueueJobs, scenario: QueueScenario) -> Workload:
    """Returns the jobs of a log as a scenario wants them.

    Raises:
        UsageError: none is left.
    """
    wanted, last_ns = scenario.jobs, int(jobs.submit_ns[-1])
    if isinstance(wanted.window, Between):
        begin, end = to_ns(wanted.window.from_s), to_ns(wanted.window.to_s)
    else:
        begin, end = split(last_ns, wanted.window)
        end += end == last_ns  # the last submission belongs to the part that ends with it
    return shaped(
        jobs, begin_ns=begin, end_ns=end, thin=wanted.thin, arrivals=wanted.arrivals,
        shape=wanted.weibull_shape, load=wanted.load, seed=scenario.seed,
    )  # fmt: skip


def origin(scenario: QueueScenario, made: Workload) -> QueueOrigin:
    """Returns what the header of a run tells of its jobs."""
    part = scenario.jobs.window
    window = f"{part.from_s:.15g} to {part.to_s:.15g} s" if isinstance(part, Between) else part
    return QueueOrigin(
        scenario.jobs.dataset, scenario.model_dump(mode="json"), window, scenario.seed, "; ".join(made.notes)
    )
