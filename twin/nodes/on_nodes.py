"""Jobs on a cluster of nodes under one recipe and one placement: who starts when, and where."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from twin.nodes import kernel
from twin.nodes.faults import BROKEN, WRITTEN, faults_of, interruptions
from twin.nodes.outages import NO_OUTAGES, UNBROKEN, Interruptions, NodeOutages
from twin.nodes.sleeping import SleepRule, sleepers
from twin.nodes.state import site_of
from twin.placement.cluster import MILLI, NodeCluster
from twin.placement.demands import Demands, possible
from twin.placement.recipe import Int, PlacementRecipe
from twin.queue.jobs import Prediction, QueueJobs
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import INSTANT, QueueRules
from twin.queue.simulation import QueueSchedule, check_together

USUAL_RUNS = 8
"""Runs that an outage ends, and slots of a run, for which there is room at first."""


@dataclass(frozen=True, eq=False)
class NodeSchedule:
    """The jobs as they ran with their starts (n,), nanoseconds, who overtook the head (n,), and the slots of
    job j: `slots[first[j]:first[j + 1]]`, each node x GPUs of the largest node + GPU.

    With `outages` starts, overtaking and slots are those of the last run of each job; `broken` are the runs
    that faults ended, with what checkpoints every `checkpoint_interval_ns` kept of them (0: none were made).
    `runs.py` has all runs. `woke_ns`: how long each job waited from its start for nodes that slept (n,),
    None: no node sleeps."""

    jobs: QueueJobs
    cluster: NodeCluster
    demands: Demands
    start_ns: Int
    backfilled: NDArray[np.bool_]
    first: Int
    slots: Int
    outages: NodeOutages = NO_OUTAGES
    broken: Interruptions = UNBROKEN
    checkpoint_interval_ns: int = 0
    woke_ns: Int | None = None

    @property
    def kept_ns(self) -> Int:
        """Returns the work that ended runs of each job have kept for its last one (n,), nanoseconds."""
        kept = np.zeros(len(self.jobs), np.int64)
        np.add.at(kept, self.broken.job, self.broken.kept_ns)
        return kept

    @property
    def end_ns(self) -> Int:
        """Returns the ends of jobs (n,), nanoseconds."""
        return self.work_ns + self.jobs.run_ns

    @property
    def work_ns(self) -> Int:
        """Returns the ends less the run times (n,), nanoseconds: when the work of jobs begins that lasts."""
        begun = self.start_ns - self.kept_ns
        return begun if self.woke_ns is None else begun + self.woke_ns

    @property
    def as_pool(self) -> QueueSchedule:
        """Returns the schedule with processors in thousandths of a GPU, for figures of time and use.

        A start there is the end less the run time: with faults, and nodes that wake, the wait is all time in
        which a job gets no further for good, and use is work that lasts."""
        milli = self.demands.wants.gpus * self.demands.wants.milli
        jobs = replace(self.jobs, processors=milli[self.demands.class_of])
        return QueueSchedule(jobs, self.cluster.total_gpus * MILLI, self.work_ns, self.backfilled)

    @property
    def in_gpus(self) -> QueueSchedule:
        """Returns the schedule with processors in GPUs; in thousandths where jobs share GPUs."""
        milli = self.demands.wants.milli
        if ((milli > 0) & (milli < MILLI)).any():
            return self.as_pool
        jobs = replace(self.jobs, processors=self.demands.wants.gpus[self.demands.class_of])
        return QueueSchedule(jobs, self.cluster.total_gpus, self.work_ns, self.backfilled)

    def nodes_of(self, job: int) -> list[int]:
        """Returns the nodes of a job, first to last."""
        width = int(self.cluster.gpus.max())
        return sorted({int(slot) // width for slot in self.slots[self.first[job] : self.first[job + 1]]})


def simulate_on_nodes(
    jobs: QueueJobs, demands: Demands, cluster: NodeCluster, recipe: QueueRecipe,
    placement: PlacementRecipe, *, prediction: Prediction = "estimate", rules: QueueRules = INSTANT,
    seed: int = 0, outages: NodeOutages = NO_OUTAGES, checkpoint_interval_ns: int = 0,
    sleep: SleepRule | None = None,
) -> NodeSchedule:  # fmt: skip
    """Returns what a recipe and a placement make of the jobs on the nodes.

    A fault of a node sends its jobs back to the queue; what a job ran up to its last checkpoint is kept.
    Checkpoints are made every `checkpoint_interval_ns` of a run, and cost nothing; 0: there are none. With
    `sleep` nodes without jobs sleep, and jobs wait until their nodes wake.

    Raises:
        UsageError: a job does not fit into the empty cluster, the recipe cannot be played there, or an outage
            is of no node, or nodes sleep that fail, or under a recipe that promises starts.
    """
    check_on_nodes(jobs, demands, cluster, recipe, placement, rules)
    outages.check(cluster)
    if outages.slow:
        raise UsageError(
            f"node {outages.slow[0].node} is slow for a time: slow nodes are played beside schedulers that "
            "change runs; add --changes, or leave rows of kind slow out"
        )
    if sleep is not None and sleep.wake_ns and (len(outages) or recipe.backfill == "conservative"):
        raise UsageError(
            f"{recipe.name}: nodes that wake go without outages, and without conservative backfilling, whose "
            "promised starts they would move; take another policy, as easy"
        )
    played = jobs.cut_at_estimate() if rules.cuts else jobs
    predicted = played.predicted_ns(prediction)
    keys, runs = recipe.keys(played, predicted), USUAL_RUNS * len(outages)
    slots = USUAL_RUNS * runs
    while True:  # a second time, if there was no room to write down the runs that faults ended
        asleep = sleepers(sleep, len(cluster), played.submit_ns)
        site = site_of(cluster, demands, placement, seed, asleep)
        faults = faults_of(outages, len(cluster), checkpoint_interval_ns, runs, slots)
        start_ns, backfilled = kernel.play(played, predicted, site, keys, recipe.backfill, rules, faults)
        if faults.counts[BROKEN] <= runs and faults.counts[WRITTEN] <= slots:
            break
        runs, slots = int(faults.counts[BROKEN]), int(faults.counts[WRITTEN])
    broken = interruptions(faults, site.first)
    return NodeSchedule(
        played, cluster, demands, start_ns, backfilled, site.first, site.slots, outages, broken,
        checkpoint_interval_ns, None if sleep is None else asleep.woke,
    )  # fmt: skip


def check_on_nodes(
    jobs: QueueJobs, demands: Demands, cluster: NodeCluster, recipe: QueueRecipe, placement: PlacementRecipe,
    rules: QueueRules,
) -> None:  # fmt: skip
    """Checks that the jobs can be played.

    Raises:
        UsageError: they cannot.
    """
    jobs.check()
    check_together(recipe, rules)
    if rules.cuts and len(jobs) and jobs.estimate_ns.min() < 0:
        raise UsageError(
            f"a job without an estimate; rules {rules.name} end a run at its estimate: take it out"
        )
    fit = possible(cluster, demands.wants, placement.gang)[demands.class_of]
    if not fit.all():
        job = int(jobs.number[int(np.flatnonzero(~fit)[0])])
        raise UsageError(
            f"{int((~fit).sum()):,} jobs, job {job} the first, fit on no nodes: take them out first"
        )
