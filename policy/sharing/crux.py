"""Crux: on shared links the job goes first whose traffic serves most GPU work (Cao et al., SIGCOMM 2024).

The GPU intensity of a job is the work of its iteration over the time of its traffic on the slowest link,
I = W / t (definition 2). Its priority is P = k I (equation 3). k is 1 for the reference job, which sends the
most, and for another job what it gains on one link with the reference job by going first, over what the
reference job gains, both in time on the link (section 4.2). GPU intensity decides on links alone: jobs run
first come first served, later ones pass what does not fit, nobody is preempted. `fair-links` is the same
queue with links shared fairly: the baseline of the paper, ECMP, without collisions of paths.

Work is GPUs x measured GPU stage, as the lists have no operations; time is the network stage, alike on every
uplink. Choice of paths (section 4.1): not applicable, an uplink is one path here. Compression to the 8 levels
of a switch (section 4.3): not built, each job has a level of its own; it matters where more than 8 share.

Left open: which of the jobs that now share is the reference job by bytes; here the one that sends for the
largest part of its time, ties to the first. A job with no gain beside a reference job without gain has k = 1.
Ties of priority go by submission. Example 1 of the paper comes out; in its example 2 both orders are equal
once iterations are steady, the difference that the paper draws is that of the first ones.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from twin.queue.jobs import Float, Int
from twin.sharing import placing
from twin.sharing.iterations import LinkFlow, Pattern, played
from twin.sharing.uplinks import patterns_of
from twin.sharing.view import Allocation, JobFacts, SharingView

MOST_FACTOR = 1e6
"""Correction of a job beside a reference job that loses nothing."""
GPU, NETWORK = 1, 2
"""Columns of measured stages."""


def intensity(gpus: Int, stages: Float) -> Float:
    """Returns W / t of each job (n,), infinite without traffic.

    `stages` (n, 3): times of storage and CPU, GPU and network in an iteration.
    """
    traffic = stages[:, NETWORK]
    found: Float = np.where(traffic > 0, gpus * stages[:, GPU] / np.where(traffic > 0, traffic, 1.0), np.inf)
    return found


def correction(job: Pattern, reference: Pattern) -> float:
    """Returns k of a job: its gain by going first on a link with the reference job, over the gain of that
    job; gains are parts of time on the link."""
    link, alike = (0,), [0.0, 0.0]
    behind = played([LinkFlow(reference, link, 0), LinkFlow(job, link, 1)], [1.0], alike)
    ahead = played([LinkFlow(reference, link, 1), LinkFlow(job, link, 0)], [1.0], alike)
    gain = job.lasts / ahead[1] - job.lasts / behind[1]
    lost = reference.lasts / behind[0] - reference.lasts / ahead[0]
    if gain <= 1e-9 and lost <= 1e-9:
        return 1.0
    return MOST_FACTOR if lost <= 1e-9 else max(gain, 0.0) / lost


@dataclass
class ByIntensity:
    """Ranks of jobs on links by P = k I."""

    facts: JobFacts
    factors: dict[tuple[Pattern, Pattern], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        measured = self.facts.speeds
        self.patterns = patterns_of(measured.iteration, measured.stages)
        self.intensity = intensity(self.facts.asked, measured.stages)

    def ranks(self, jobs: Int) -> Int:
        """Returns the rank of each of these jobs, the highest priority first."""
        found = [self._pattern(job) for job in jobs.tolist()]
        reference = max(found, key=lambda one: one.lasts / one.alone)
        weight = [
            self._factor(one, reference) * float(self.intensity[job])
            for one, job in zip(found, jobs.tolist(), strict=True)
        ]
        rank = np.empty(len(jobs), np.int64)
        rank[np.lexsort((jobs, -np.array(weight)))] = np.arange(len(jobs))
        return rank

    def _pattern(self, job: int) -> Pattern:
        pattern = self.patterns[job]
        assert pattern is not None, "a job goes over links by its measured stages"
        return pattern

    def _factor(self, job: Pattern, reference: Pattern) -> float:
        if job == reference:
            return 1.0
        if (job, reference) not in self.factors:
            self.factors[job, reference] = correction(job, reference)
        return self.factors[job, reference]


class FairLinks:
    """First come first served, later jobs pass; nobody is preempted, links are shared fairly."""

    def decide(self, view: SharingView) -> Allocation:
        """Returns running jobs where they are, and places for waiting ones."""
        return placing.fill(view, np.argsort(view.gpus == 0, kind="stable"))


@dataclass
class Crux:
    """The same queue, links by GPU intensity."""

    order: ByIntensity | None = None

    def decide(self, view: SharingView) -> Allocation:
        """Returns the places of the queue, with the order on links."""
        if self.order is None:
            self.order = ByIntensity(view.facts)
        return replace(FairLinks().decide(view), links=self.order)
