"""Power of a site as the sum of its jobs': idle nodes, what jobs add, and what conversion takes on top."""

from dataclasses import dataclass, replace

import numpy as np

from ingest.core.errors import UsageError
from twin.power.conversion import NOTHING_LOST, ConversionChain, EfficiencyCurve
from twin.power.step_series import Int, StepSeries
from twin.queue.jobs import QueueJobs
from twin.queue.simulation import QueueSchedule

MW_PER_W = 1000
"""Milliwatts in a watt."""
MOST_W = 1e9
"""Power of a processor or a site lies below it: a gigawatt."""


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Power of a site of equal processors, milliwatts.

    idle_mw: of a processor that has no job, its share of the node included. job_mw: what a processor draws
    beyond that while a job holds it. name: where the figures come from.

    Raises:
        UsageError: a busy processor draws less than an idle one, or a figure is beyond all reason.
    """

    name: str
    idle_mw: int
    job_mw: int
    chain: ConversionChain = NOTHING_LOST

    def __post_init__(self) -> None:
        if not 0 <= self.idle_mw < MOST_W * MW_PER_W or not 0 <= self.job_mw < MOST_W * MW_PER_W:
            raise UsageError(
                f"{self.name}: {self.idle_mw / MW_PER_W:g} W idle and "
                f"{(self.idle_mw + self.job_mw) / MW_PER_W:g} W busy; "
                "a processor draws at least 0 W, and at least as much busy as idle"
            )

    @classmethod
    def of_watts(
        cls, name: str, idle_w: float, busy_w: float, chain: ConversionChain = NOTHING_LOST
    ) -> "PowerModel":
        """Returns the model of watts, each rounded to milliwatts."""
        idle_mw = _mw(name, idle_w)
        return cls(name, idle_mw, _mw(name, busy_w) - idle_mw, chain)

    def with_supplies(self, processors: int, points: tuple[tuple[float, float], ...]) -> "PowerModel":
        """Returns the model of a site whose power supplies follow a curve of efficiency by load.

        They are rated for twice the busy power of all processors, since pairs share the load for redundancy.
        """
        rated_mw = 2 * processors * (self.idle_mw + self.job_mw)
        stages = (EfficiencyCurve("power supplies", rated_mw, points), *self.chain.stages)
        return replace(self, chain=ConversionChain(stages))

    def of_jobs(self, jobs: QueueJobs) -> Int:
        """Returns what each job adds while it runs (n,), milliwatts."""
        return jobs.processors * self.job_mw

    def idle_site_mw(self, processors: int) -> int:
        """Returns what the computers of an idle site draw."""
        return processors * self.idle_mw


def _mw(name: str, watts: float) -> int:
    if not 0 <= watts < MOST_W:
        raise UsageError(f"{name}: {watts:g} W for a processor; give 0 to 1e9")
    return round(watts * MW_PER_W)


@dataclass(frozen=True, eq=False)
class SitePower:
    """Power of a site from the first submission to the last end, milliwatts; all change at the same instants.

    jobs: what jobs add. computers: with the idle power. meter: with conversion and cooling; what is paid.
    """

    jobs: StepSeries
    computers: StepSeries
    meter: StepSeries
    job_mw: Int
    """What each job adds (n,)."""


def site_power(done: QueueSchedule, model: PowerModel) -> SitePower:
    """Returns the power of a schedule of at least one job, changing only when jobs start and end."""
    return power_of(done, model.of_jobs(done.jobs), model.idle_site_mw(done.processors), model.chain)


def power_of(
    done: QueueSchedule, job_mw: Int, idle_mw: int, chain: ConversionChain, more: StepSeries | None = None
) -> SitePower:
    """Returns the power of a schedule whose jobs (n,) add so many milliwatts each to an idle site's, which
    draws `more` than `idle_mw` over the same time; less where it is negative."""
    begin_ns, end_ns = int(done.jobs.submit_ns.min()), int(done.end_ns.max())
    added = of_runs(done.start_ns, done.end_ns, job_mw, begin_ns, end_ns)
    idle = np.full(len(added.at_ns), idle_mw, np.int64)
    if more is not None:
        at = np.union1d(added.at_ns, more.at_ns)
        added = StepSeries(at, added.at(at), end_ns)
        idle = idle_mw + more.at(at)
    computers = added.mapped(added.value + idle)
    return SitePower(added, computers, computers.mapped(chain.metered_mw(computers.value)), job_mw)


def of_runs(begins_ns: Int, ends_ns: Int, power_mw: Int, begin_ns: int, end_ns: int) -> StepSeries:
    """Returns the sum of runs (n,) that draw a constant power each, from `begin_ns` to `end_ns`."""
    times = np.concatenate((begins_ns, ends_ns))
    return StepSeries.of_changes(times, np.concatenate((power_mw, -power_mw)), begin_ns, end_ns)
