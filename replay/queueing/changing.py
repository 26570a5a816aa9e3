"""Schedulers that preempt, share and resize, compared on the jobs of one log: `twin queue --changes`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import to_ns
from ingest.readers import job_logs
from ingest.readers.clusters.profiled_runs import RunProfiles
from ingest.readers.clusters.scaling_tables import MeasuredScaling, is_scaling, scaling_tables
from ingest.readers.clusters.training_lists import TrainingDemand, training_demands
from ingest.readers.job_logs import LakeJobs
from policy.queue import registry as queue_registry
from policy.sharing import registry
from replay.logqueue.comparison import read_to_json
from replay.logqueue.on_nodes import NEVER_OUT
from replay.queueing import goodput_jobs
from replay.queueing.node_models import NodesAsked
from twin.nodes.outage_plan import OutagePlan
from twin.nodes.outages import NodeOutages
from twin.queue.jobs import Float, Int, Prediction, QueueJobs
from twin.queue.rules import INSTANT, PREDICTSIM
from twin.queue.simulation import simulate
from twin.sharing import engine
from twin.sharing.changes import MURI_PAUSES_S, PPM, UNKNOWN_PAUSE_S, ChangeRules, pauses_ns
from twin.sharing.curves import SpeedCurve, SpeedCurves
from twin.sharing.engine import SharedSchedule, SharingWorld
from twin.sharing.figures import SharingFigures, left_alone, sharing_figures
from twin.sharing.node_faults import NoticedOutages
from twin.sharing.speeds import MeasuredSpeeds
from twin.workload.selection import LogJobs, select

NS_PER_MS = 1_000_000
ALONE_LONGER = 1.015
"""Iteration of a job alone over the listed one, as Muri measured it."""
NO_SCALING: Mapping[tuple[str, int], MeasuredScaling] = {}
USUAL = ("srtf", "srsf", "tiresias")
"""Schedulers that are compared if none are named."""


@dataclass(frozen=True, eq=False)
class ChangingComparison:
    """The jobs of a log on equal nodes (a pool is one node), and the figures of each scheduler by name."""

    log: LogJobs
    world: SharingWorld
    prediction: Prediction
    figures: dict[str, SharingFigures]
    outages: OutagePlan = NEVER_OUT

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin queue --changes --json`."""
        rules = self.world.rules
        return {
            "schema": "twin.queue/1",
            "log": self.log.name,
            "scenario": None,
            "synthetic_arrivals": False,
            "processors": self.log.processors,
            "nodes": self.world.nodes,
            "node_gpus": self.world.node_gpus,
            "prediction": self.prediction,
            "rules": INSTANT.name,
            "changes": rules.name,
            "synthetic_faults": self.outages.mtbf_s > 0,
            "uplinks": None if self.world.uplinks is None else list(self.world.uplinks.capacity),
            "most_preemptions_allowed": rules.most_preemptions,
            "results": [
                {"policy": name, "run": None, **one.to_json(), "intervals": None}
                for name, one in self.figures.items()
            ],
            **read_to_json(self.log),
        }


def compare_changing(
    source: Path | LakeJobs, policies: Sequence[str], *, rules: ChangeRules, processors: int | None = None,
    nodes: str | None = None, prediction: Prediction = "estimate", profiles: RunProfiles | None = None,
    oversubscription: float | None = None, outages: OutagePlan = NEVER_OUT, progress: Progress = SILENT,
) -> ChangingComparison:  # fmt: skip
    """Returns what each scheduler makes of the jobs of a log; one that leaves running jobs alone (easy) is
    played beside them on a pool.

    `profiles` of a folder of throughput tables (ElasticFlow) let jobs run on other sizes; others give run
    times to a list that has none. `oversubscription`: network of the nodes of a rack over what its uplink
    carries, which jobs share; None: nobody waits for a link. `outages`: faults and drains of the nodes.

    Raises:
        InputError: the log cannot be read or has no job. NotFoundError: the lake has none.
        UsageError: an unknown scheduler, or one that cannot be played on this log.
    """
    names = tuple(dict.fromkeys(policies or USUAL))
    registry.check_known(names)
    asked = NodesAsked.parse(nodes)
    if profiles is not None and isinstance(source, Path) and goodput_jobs.fits(source, profiles, asked):
        log, world = by_goodput(goodput_jobs.read(source, profiles, asked), asked, rules, prediction)
    else:
        log, world = _by_runs(source, asked, rules, processors, prediction, profiles)
    if oversubscription is not None:
        links, note = asked.uplinks(world, oversubscription)
        log, world = replace(log, notes=(*log.notes, note)), replace(world, uplinks=links)
    log = replace(log, notes=(*log.notes, *outages.notes_beside_changes))
    for name in names:
        _check(name, world, nodes)
    progress.start(len(names), "queue", "schedulers")
    found = dict[str, SharingFigures]()
    for name in names:
        progress.advance(0, name)
        found[name] = _play(name, world, prediction, outages)
        progress.advance(1, name)
    return ChangingComparison(log, world, prediction, found, outages)


def by_goodput(
    found: goodput_jobs.GoodputJobs, asked: NodesAsked, rules: ChangeRules, prediction: Prediction
) -> tuple[LogJobs, SharingWorld]:
    """Returns the jobs of a list of Sia or Pollux, whose speeds follow from batch and progress.

    Raises:
        UsageError: the rules take a restart at every event.
    """
    jobs, size = found.log.jobs, asked.size or found.log.processors
    none = np.zeros(len(jobs)), np.zeros((len(jobs), 3))
    speeds = MeasuredSpeeds(*none, SpeedCurves.rigid(jobs.processors))
    log = replace(found.log, notes=(*found.log.notes, *asked.notes))
    return log, SharingWorld(
        jobs, jobs.predicted_ns(prediction), found.pause_ns, len(asked), size, rules, speeds, found.kinds,
        asked.sizes, found.goodput,
    )  # fmt: skip


def _by_runs(
    source: Path | LakeJobs, asked: NodesAsked, rules: ChangeRules, processors: int | None,
    prediction: Prediction, profiles: RunProfiles | None,
) -> tuple[LogJobs, SharingWorld]:  # fmt: skip
    """Returns the jobs of a log whose run times are known, with the speeds that sharing and sizes bring."""
    count, size = len(asked), asked.size
    scaling = dict[tuple[str, int], MeasuredScaling]()
    if profiles is not None and is_scaling(profiles.folder):
        scaling, profiles = dict(scaling_tables(profiles.folder)), None
    log = select(job_logs.read(source, profiles), PREDICTSIM, sum(asked.each) or processors)
    log, kinds = asked.kinds(log, source, profiles)
    demands = training_demands(source) if isinstance(source, Path) else {}
    world, more = world_of(log, demands, rules, count, size or log.processors, prediction, scaling)
    extra = () if profiles is None else (profiles.note,)
    world = replace(world, kinds=kinds, sizes=asked.sizes)
    return replace(log, notes=(*log.notes, *asked.notes, *more, *extra)), world


def world_of(
    log: LogJobs, demands: Mapping[str, TrainingDemand], rules: ChangeRules, nodes: int, node_gpus: int,
    prediction: Prediction, scaling: Mapping[tuple[str, int], MeasuredScaling] = NO_SCALING,
) -> tuple[SharingWorld, tuple[str, ...]]:  # fmt: skip
    """Returns the jobs of a log on equal nodes under these rules, and what is to be known of them."""
    jobs = log.jobs.cut_at_estimate()
    known = [demands.get(log.ids.get(int(number), "")) for number in jobs.number]
    jobs = _by_iterations(jobs, known)
    stretched = replace(
        jobs, run_ns=_stretched(jobs.run_ns, rules), estimate_ns=_stretched(jobs.estimate_ns, rules)
    )
    models = [None if one is None else one.model for one in known]
    pause = pauses_ns(models, jobs.processors)
    notes = []
    unknown = sum(model not in MURI_PAUSES_S for model in models)
    if unknown and (rules.costs or rules.charges_events):
        notes.append(f"{unknown:,} jobs have no measured restart; each is taken to pause {UNKNOWN_PAUSE_S} s")
    curves, said = _curves(known, jobs.processors, scaling, nodes * node_gpus)
    speeds = MeasuredSpeeds(*_stages(known), curves)
    world = SharingWorld(
        stretched, stretched.predicted_ns(prediction), pause, nodes, node_gpus, rules, speeds
    )
    return world, (*notes, *said)


def _curves(
    known: Sequence[TrainingDemand | None], asked: Int,
    scaling: Mapping[tuple[str, int], MeasuredScaling], most: int,
) -> tuple[SpeedCurves, tuple[str, ...]]:  # fmt: skip
    """Returns the measured speeds of jobs over sizes, and what is to be known of them."""
    if not scaling:
        return SpeedCurves.rigid(asked), ()
    made = {
        key: SpeedCurve(f"{one.model}, batch {one.batch}", np.array(one.gpus), np.array(one.rate))
        for key, one in scaling.items()
        if one.gpus
    }
    found = [None if one is None else made.get((one.model, one.batch)) for one in known]
    curves = SpeedCurves.of(asked, found, most)
    missing, outside = sum(one is None for one in found), int((curves.row < 0).sum())
    notes = ["speeds between two measured sizes are interpolated; no job runs outside of its measured sizes"]
    if missing:
        notes.append(f"{missing:,} jobs have no measured curve: they run on what they ask for")
    if outside > missing:
        notes.append(
            f"{outside - missing:,} jobs ask for a size outside of their curve: they run on it alone"
        )
    return curves, tuple(notes)


def _stages(known: Sequence[TrainingDemand | None]) -> tuple[Float, Float]:
    """Returns the time of an iteration (n,) and of its stages (n, 3), 0 where they are not known."""
    found = [None if one is None or not one.stages_ms else one for one in known]
    iteration = np.array([0.0 if one is None else one.iteration_ms * ALONE_LONGER for one in found])
    return iteration, np.array([(0.0,) * 3 if one is None else one.stages_ms for one in found])


def _by_iterations(jobs: QueueJobs, known: Sequence[TrainingDemand | None]) -> QueueJobs:
    """Returns the jobs with iterations x time of an iteration as run time and estimate where both are known:
    the duration that a list prints is rounded."""
    run_ns = [
        run if one is None or not one.iteration_ms else one.iterations * round(one.iteration_ms * NS_PER_MS)
        for one, run in zip(known, jobs.run_ns.tolist(), strict=True)
    ]
    exact = np.array(run_ns, np.int64)
    same = jobs.estimate_ns == jobs.run_ns
    return replace(jobs, run_ns=exact, estimate_ns=np.where(same, exact, np.maximum(jobs.estimate_ns, exact)))


def _stretched(run_ns: Int, rules: ChangeRules) -> Int:
    """Run times times the stretch, in whole nanoseconds."""
    whole, rest = np.divmod(run_ns, PPM)
    stretched: Int = whole * rules.stretch_ppm + rest * rules.stretch_ppm // PPM
    return stretched


def _check(name: str, world: SharingWorld, nodes: str | None) -> None:
    """Checks that a scheduler can be played."""
    if name not in registry.RECIPES:
        if nodes is not None:
            raise UsageError(
                f"{name} leaves running jobs alone: play it on nodes without --changes, or here on a pool"
            )
        return
    if registry.RECIPES[name].by_links and world.uplinks is None:
        raise UsageError(f"policy {name}: jobs share no link; add --oversubscription, with racks in --nodes")
    if registry.RECIPES[name].by_deadline and (world.jobs.deadline_ns < 0).all():
        raise UsageError(f"policy {name}: no job has a deadline; take another")


def _play(
    name: str, world: SharingWorld, prediction: Prediction, outages: OutagePlan = NEVER_OUT
) -> SharingFigures:
    if name in registry.RECIPES:
        chosen = registry.RECIPES[name]
        if world.goodput is not None:
            world = replace(world, goodput=replace(world.goodput, tuned=chosen.tunes))
        if outages.any:
            return sharing_figures(with_outages(world, chosen, outages))
        return sharing_figures(engine.play(world, chosen.make()))
    recipe = queue_registry.recipe(name)
    done = simulate(world.jobs, world.gpus, recipe, prediction=prediction, rules=INSTANT)
    return sharing_figures(left_alone(world, done.start_ns))


def with_outages(world: SharingWorld, chosen: registry.SharingRecipe, outages: OutagePlan) -> SharedSchedule:
    """Returns what a scheduler makes of the jobs on nodes that fail or are drained.

    Raises:
        InputError: the file of outages cannot be read. UsageError: rules under which nodes cannot fail, or
            jobs do not end.
    """

    def played(*, outages: NodeOutages, checkpoint_interval_ns: int) -> SharedSchedule:
        faults = NoticedOutages(outages, checkpoint_interval_ns, fault_ns, slow_ns, chosen.resizes)
        return engine.play(replace(world, faults=faults), chosen.make())

    fault_ns, slow_ns = to_ns(outages.notice_s), to_ns(outages.notice_slow_s)
    return outages.play(range(world.nodes), world.jobs, played)
