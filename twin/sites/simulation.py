"""Jobs on several sites under one recipe and one choice of sites: who starts when, where, and ends when."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from twin.queue.jobs import Int, Prediction, QueueJobs
from twin.queue.recipe import QueueRecipe
from twin.queue.simulation import QueueSchedule
from twin.sites import kernel
from twin.sites.choosing import Choosing
from twin.sites.inputs import SiteCarbon, SiteChoice, SiteJobs, SiteLinks, SiteOptions, check_site_jobs


@dataclass(frozen=True, slots=True, eq=False)
class SiteWorld:
    """The sites: their names and GPUs (K,), the links between them, and the ways to run jobs of each size."""

    names: tuple[str, ...]
    gpus: Int
    links: SiteLinks
    options: SiteOptions
    carbon: SiteCarbon | None = None
    """None: unknown, so that no rule may ask for it."""


@dataclass(frozen=True, eq=False)
class SiteSchedule:
    """The jobs as they ran (cut at their estimates) with starts, ends (n,), nanoseconds, the way of each (n,)
    and which overtook the head (n,)."""

    jobs: QueueJobs
    asked: SiteJobs
    world: SiteWorld
    start_ns: Int
    end_ns: Int
    option: Int
    backfilled: NDArray[np.bool_]

    @property
    def as_pool(self) -> QueueSchedule:
        """Returns the schedule on a pool of all GPUs, where a run lasts as long as the job held them."""
        jobs = replace(self.jobs, run_ns=self.end_ns - self.start_ns)
        return QueueSchedule(jobs, int(self.world.gpus.sum()), self.start_ns, self.backfilled)


def simulate_on_sites(
    jobs: QueueJobs, asked: SiteJobs, world: SiteWorld, recipe: QueueRecipe, choice: SiteChoice, *,
    prediction: Prediction = "estimate", by: Choosing | None = None,
) -> SiteSchedule:  # fmt: skip
    """Returns what a recipe and a choice of sites make of the jobs, under the rules `instant`.

    `by` is the network of the choice `learned`.

    Raises:
        UsageError: the choice looks at what is not given, a job fits on no site, or a link that one waits
            for stays dead.
    """
    if choice.name == "greenest" and world.carbon is None:
        raise UsageError("greenest: the carbon intensity of the sites is not given; take another placement")
    if choice.name == "learned" and (by is None or recipe.backfill == "conservative"):
        raise UsageError("learned: a placement over sites needs its network, and no conservative backfilling")
    jobs.check()
    played = jobs.cut_at_estimate()
    predicted = played.predicted_ns(prediction)
    check_site_jobs(played.run_ns, predicted, asked, world.options)
    start_ns, end_ns, option, backfilled = kernel.play(
        played, predicted, asked, world.gpus, world.links, world.options, recipe.keys(played, predicted),
        recipe.backfill, choice.name, world.carbon, by,
    )  # fmt: skip
    return SiteSchedule(played, asked, world, start_ns, end_ns, option, backfilled)
