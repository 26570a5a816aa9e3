"""Schedulers of changing jobs by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingest.core.errors import UsageError
from ingest.core.names import unknown
from policy.queue import registry as queue_registry
from policy.sharing.antman import AntMan
from policy.sharing.crux import Crux, FairLinks
from policy.sharing.elasticflow import DeadlineAdmission, ElasticEdf
from policy.sharing.gandiva import Gandiva
from policy.sharing.gavel import GavelRounds
from policy.sharing.lucid import LucidPacking
from policy.sharing.mast import PriorityQueue
from policy.sharing.muri import Muri
from policy.sharing.pollux import PolluxSearch
from policy.sharing.preemptive_orders import EarliestDeadline, LeastAttained
from policy.sharing.sia import SiaRounds
from policy.sharing.srtf import Srtf
from policy.sharing.tiresias import Tiresias, TiresiasGittins
from twin.sharing.view import SharingScheduler


@dataclass(frozen=True, slots=True)
class SharingRecipe:
    """One scheduler: its name, what makes one for a run, what it is and who published it.

    by_deadline: it needs deadlines. by_links: it needs links that jobs share. tunes: its jobs take the batch
    of the most goodput, not that of the list. resizes: a job may go on with fewer GPUs as a node of it fails.
    """

    name: str
    make: Callable[[], SharingScheduler]
    summary: str
    source: str
    by_deadline: bool = False
    tunes: bool = False
    by_links: bool = False
    resizes: bool = False


RECIPES = {
    one.name: one
    for one in (
        SharingRecipe("srtf", Srtf, "shortest remaining time first", "Schrage, Operations Research 1968"),
        SharingRecipe("srsf", lambda: Srtf(by_service=True), "shortest remaining time x GPUs first",
                      "Gu et al., NSDI 2019"),
        SharingRecipe("tiresias", Tiresias, "least attained service in queues (2D-LAS)",
                      "Gu et al., NSDI 2019"),
        SharingRecipe("tiresias-gittins", TiresiasGittins, "the same queues, by Gittins index in each",
                      "Gu et al., NSDI 2019"),
        SharingRecipe("muri-s", lambda: Muri(known=True),
                      "stages of jobs interleaved, least remaining service", "Zhao et al., SIGCOMM 2022"),
        SharingRecipe("muri-l", lambda: Muri(known=False), "stages of jobs interleaved, least service had",
                      "Zhao et al., SIGCOMM 2022"),
        SharingRecipe("antman", AntMan, "opportunistic jobs in what guaranteed ones leave",
                      "Xiao et al., OSDI 2020"),
        SharingRecipe("gandiva", Gandiva, "all jobs at once, in turns or packed", "Xiao et al., OSDI 2018"),
        SharingRecipe("gavel", GavelRounds, "max-min fair time on GPUs of several models, in rounds",
                      "Narayanan et al., OSDI 2020"),
        SharingRecipe("gavel-blind", lambda: GavelRounds(aware=False),
                      "the same rounds as if all models were as fast", "Narayanan et al., OSDI 2020"),
        SharingRecipe("lucid", LucidPacking, "no preemption, mild pairs packed", "Hu et al., ASPLOS 2023"),
        SharingRecipe("mast", PriorityQueue, "the highest priority first, lower ones preempted",
                      "Choudhury et al., OSDI 2024"),
        SharingRecipe("fair-links", FairLinks, "first come first served, links between racks shared fairly",
                      "Cao et al., SIGCOMM 2024"),
        SharingRecipe("crux", Crux, "the same queue, on links the highest GPU intensity first",
                      "Cao et al., SIGCOMM 2024", by_links=True),
        SharingRecipe("elasticflow", DeadlineAdmission, "admission by deadline, each job on its least share",
                      "Gu et al., ASPLOS 2023", by_deadline=True, resizes=True),
        SharingRecipe("edf-elastic", ElasticEdf, "earliest deadline first, each job on its fastest size",
                      "Gu et al., ASPLOS 2023", by_deadline=True, resizes=True),
        SharingRecipe("pollux", PolluxSearch, "the power mean of speedups in goodput, by a genetic algorithm",
                      "Qiao et al., OSDI 2021", tunes=True, resizes=True),
        SharingRecipe("sia", SiaRounds, "goodput on GPUs of several models, an integer program each minute",
                      "Jayaram Subramanya et al., SOSP 2023", tunes=True, resizes=True),
        SharingRecipe("las-preemptive", LeastAttained, "least attained service first",
                      "Nuyens and Wierman, 2008"),
        SharingRecipe("edf-preemptive", EarliestDeadline, "earliest deadline first",
                      "Liu and Layland, JACM 1973", by_deadline=True),
    )
}  # fmt: skip
"""A new scheduler is a file and a line here."""


def check_known(names: Sequence[str]) -> None:
    """Checks that each of these is a scheduler of changing jobs, or one of those that leave them alone.

    Raises:
        UsageError: one is neither.
    """
    known = [*RECIPES, *queue_registry.names()]
    for name in names:
        if name in RECIPES or name == queue_registry.LEARNED or queue_registry.known(name):
            continue
        alone = (*queue_registry.ALIASES, *queue_registry.ORDERS)
        raise UsageError(
            f"{unknown('policy', name, known, alone)}, and of those that change running jobs "
            f"{', '.join(RECIPES)}; an order takes a backfill behind +, as in saf+easy"
        )
