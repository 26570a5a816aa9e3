"""Tiresias: least attained service in two dimensions, discretised (Gu et al., NSDI 2019).

2D-LAS: jobs stand in queues by the GPU time that they have had; the limits, 3,250 and 7,200 GPU-seconds, are
those of the authors' simulator. Queues go in order, each first in first out; a job that does not fit is
passed over; running jobs move before waiting ones within a queue. A job goes down one queue at most at an
event, to its tail. The paper promotes a job that has waited long and leaves the time open; the simulator
does not, and neither is done here.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from ingest.core.units import NS_PER_S
from twin.queue.jobs import Float, Int
from twin.sharing import placing
from twin.sharing.view import Allocation, SharingView

LIMITS_GPU_S = (3_250, 7_200)
"""GPU-seconds after which a job leaves queue 0 and queue 1."""
LEAST_ENDED = 10
"""Jobs that have ended before a distribution is taken for known."""
LIMITS_NS = np.array(LIMITS_GPU_S, np.int64) * NS_PER_S


@dataclass
class Tiresias:
    """The queue of each job, and its place there: stamps ascend along a queue."""

    level: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    stamp: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    last: int = 0

    def decide(self, view: SharingView) -> Allocation:
        """Returns GPUs for jobs queue by queue; asks to be asked again when the next job goes down."""
        if not len(self.level):
            self.level, self.stamp = (np.zeros(len(view.facts.asked), np.int64) for _ in range(2))
        job = view.job
        self._append(job[len(job) - view.arrived :])
        self._demote(view)
        order = self._order(view)
        found = placing.count(view, order) if view.rules.counts else placing.fill(view, order)
        after = np.lexsort((self.stamp[job], found.gpus == 0, self.level[job]))
        self.stamp[job[after]] = self.stamp[job[order]]
        return replace(found, again_ns=self._next_demotion(view, found.gpus))

    def _order(self, view: SharingView) -> Int:
        """Returns the rows queue by queue, each first in first out."""
        return np.lexsort((self.stamp[view.job], self.level[view.job]))

    def _append(self, jobs: Int) -> None:
        """Puts jobs at the tail of their queues, in this order."""
        self.stamp[jobs] = self.last + 1 + np.arange(len(jobs))
        self.last += len(jobs)

    def _demote(self, view: SharingView) -> None:
        """Lets running jobs that have had their share go down one queue."""
        limit = np.append(LIMITS_NS, np.iinfo(np.int64).max)[self.level[view.job]]
        down = view.job[(view.gpus > 0) & (view.served_ns >= limit)]
        self.level[down] += 1
        self._append(down)

    def _next_demotion(self, view: SharingView, gpus: Int) -> int | None:
        """When the first running job has had its share, by whole seconds of its run as in the simulator."""
        level = self.level[view.job]
        going = np.flatnonzero((gpus > 0) & (level < len(LIMITS_GPU_S)))
        share_s = -(-np.array(LIMITS_GPU_S)[level[going]] // gpus[going])
        times = view.now_ns + share_s * NS_PER_S - view.executed_ns[going]
        later = times[times > view.now_ns]
        return int(later.min()) if len(later) else None


@dataclass
class TiresiasGittins(Tiresias):
    """The same queues, in each the job of the highest Gittins index first, ties by submission.

    `services`: GPU time of the jobs that have ended, ascending, for the distribution that the paper takes as
    known from history; before 10 have ended all indices are 0.
    """

    services: Float = field(default_factory=lambda: np.zeros(0))

    def _order(self, view: SharingView) -> Int:
        """Returns the rows queue by queue, each by the index."""
        new = view.ended_served_ns / NS_PER_S
        self.services = np.sort(np.concatenate((self.services, new)))
        index = gittins(self.services, view.served_ns / NS_PER_S, LIMITS_GPU_S[0])
        return np.lexsort((view.job, -index, self.level[view.job]))


def gittins(services: Float, had: Float, quantum: float) -> Float:
    """Returns the Gittins index of jobs that have had so much service (n,): the chance that a job of this
    distribution (m,), ascending, ends within the next quantum, over the service that it then takes on
    average. 0 where nothing is known."""
    if len(services) < LEAST_ENDED:
        return np.zeros(len(had))
    sums = np.concatenate(([0.0], np.cumsum(services)))
    first, last = (np.searchsorted(services, had + more, side="right") for more in (0.0, quantum))
    longer = np.maximum(len(services) - first, 1)
    taken = sums[last] - sums[first] - had * (last - first) + quantum * (len(services) - last)
    found: Float = np.where(last > first, (last - first) / longer, 0.0) / np.maximum(taken / longer, 1e-9)
    return found
