"""A queue over sites as something to learn from: what a schedule costs job by job, and windows of it.

The cost of a job is its log bounded slowdown (over the run time of the log) plus what it caused of egress and
of carbon, each over the mean of a job under `fastest`: a cost of 0.01 is 1 % of slowdown, of that egress, or
of that carbon.
"""

from dataclasses import dataclass, replace

import numpy as np

from ingest.core.units import NS_PER_S
from policy.placement.sites import BY_NETWORK, site_choice
from policy.queue.registry import recipe
from twin.queue.jobs import Float, QueueJobs
from twin.queue.metrics import TAU_S
from twin.queue.recipe import JobScorer
from twin.sites.choosing import Choosing, choosing_of
from twin.sites.figures import carbon_kg, egress_usd
from twin.sites.inputs import SITE_RULES, SiteCarbon, SiteChoice, SiteJobs
from twin.sites.simulation import SiteSchedule, SiteWorld, simulate_on_sites

GPU_W = 400.0
"""Power of a GPU while a job holds it; costs are relative, so that it cancels."""
SITE_WINDOW, SITE_STRIDE = 1_000, 500
"""Jobs of a window, and from one to the next."""


@dataclass(frozen=True, eq=False)
class SitePart:
    """Jobs of a log over sites; times begin where those of the carbon intensities do."""

    jobs: QueueJobs
    asked: SiteJobs
    world: SiteWorld

    def select(self, chosen: slice) -> "SitePart":
        """Returns some of the jobs; times begin at the first of them, those of the intensities too."""
        jobs = self.jobs.select(chosen)
        asked = SiteJobs(*(np.ascontiguousarray(column[chosen]) for column in self.asked))
        begin = int(jobs.submit_ns.min())
        world, carbon = self.world, self.world.carbon
        if carbon is not None:
            first = int(np.searchsorted(carbon.at, begin, side="right")) - 1
            later = SiteCarbon(np.maximum(carbon.at[first:] - begin, 0), carbon.mg_kwh[first:])
            world = replace(world, carbon=later)
        return SitePart(replace(jobs, submit_ns=jobs.submit_ns - begin), asked, world)

    def split(self, share: float) -> tuple["SitePart", "SitePart"]:
        """Returns the first share of the jobs, and the others."""
        cut = round(share * len(self.jobs))
        return self.select(slice(cut)), self.select(slice(cut, None))

    def play(self, order: str, choice: SiteChoice, by: Choosing | None = None) -> SiteSchedule:
        """Returns the schedule of an order and a choice of sites."""
        return simulate_on_sites(self.jobs, self.asked, self.world, recipe(order), choice, by=by)

    def play_network(
        self, order: str, scorer: JobScorer, room: int = 0, seed: int = 0
    ) -> tuple[SiteSchedule, Choosing]:
        """Returns the schedule of an order and a network, and the trail of its choices."""
        rule = SITE_RULES.index(BY_NETWORK.name)
        by = choosing_of(rule, self.world.gpus, self.world.carbon, scorer, room, seed)
        return self.play(order, BY_NETWORK, by), by


@dataclass(frozen=True, slots=True)
class SitePrices:
    """Mean egress (US dollars) and carbon (kg) of a job that count as much as a slowdown e times as long."""

    egress_usd: float
    carbon_kg: float

    @classmethod
    def of(cls, part: SitePart, order: str) -> "SitePrices":
        """Returns the means under `fastest`."""
        done = part.play(order, site_choice("fastest"))
        return cls(float(egress_usd(done).mean()), float(carbon_kg(done, GPU_W).mean()))

    def extra(self, done: SiteSchedule) -> Float:
        """Returns egress and carbon of each job (n,) in units of cost."""
        egress = egress_usd(done) / self.egress_usd if self.egress_usd else 0.0
        carbon = carbon_kg(done, GPU_W) / self.carbon_kg if self.carbon_kg else 0.0
        return np.asarray(egress + carbon + np.zeros(len(done.jobs)))

    def costs(self, done: SiteSchedule) -> Float:
        """Returns the cost of each job (n,)."""
        return np.asarray(site_log_slowdowns(done) + self.extra(done))


def site_log_slowdowns(done: SiteSchedule) -> Float:
    """Returns log bounded slowdowns (n,), transfers and slow links included, over run times of the log."""
    jct_s = (done.end_ns - done.jobs.submit_ns) / NS_PER_S
    least_s = np.maximum(done.jobs.run_ns / NS_PER_S, TAU_S)
    return np.asarray(np.log(np.maximum(1.0, jct_s / least_s)))


@dataclass(frozen=True, eq=False)
class SiteWindow:
    """A part to practise on, the order and prices, the schedule of the heuristic and its costs (n,)."""

    part: SitePart
    order: str
    prices: SitePrices
    base: SiteSchedule
    cost: Float

    @classmethod
    def of(cls, part: SitePart, order: str, rule: SiteChoice, prices: SitePrices) -> "SiteWindow":
        """Returns a window played by the heuristic."""
        done = part.play(order, rule)
        return cls(part, order, prices, done, prices.costs(done))


def site_windows(part: SitePart, order: str, rule: SiteChoice, prices: SitePrices) -> list[SiteWindow]:
    """Returns windows of a part of at least one job."""
    firsts = range(0, max(len(part.jobs) - SITE_WINDOW // 2, 1), SITE_STRIDE)
    cut = [part.select(slice(first, first + SITE_WINDOW)) for first in firsts]
    return [SiteWindow.of(one, order, rule, prices) for one in cut]
