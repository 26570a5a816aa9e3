"""Placements over sites: to which data centre a job of a queue goes, by its data and what moving them costs.

What the rules mean is compiled in the room twin/sites.

`mast` is the choice of regions of MAST (Choudhury et al., OSDI 2024): jobs run where their data lie, data
are spread so that no region has more demand for GPUs than supply, and every region is looked at. There a
slow loop copies data ahead of the jobs, each day (temporal decoupling), and a fast one sends jobs to the
regions that hold a copy, which answer with plans. Left open, or not here: a log says nothing of the days to
come, and data lie at one site, so that a copy is made as the job starts, which holds its GPUs meanwhile. It
is made only where the region of the data has none free now: then to the region with the least demand over
supply, whose demand is what runs there, what waits for data there, and this job. The overload penalty of the
slow loop is this ratio, its quota of storage is unknown. The paper ranks plans by locality and by the work
that is preempted; nobody is preempted here, and ties go to the earliest predicted end. A job takes one
region; ways over several come last.
"""

from ingest.core.config import suggestion
from ingest.core.errors import UsageError
from twin.sites.inputs import SiteChoice

SITE_CHOICES: dict[str, SiteChoice] = {
    one.name: one
    for one in (
        SiteChoice("least-egress", "the least money for what leaves a site", "folklore"),
        SiteChoice("fastest", "the earliest predicted end, transfer included", "folklore"),
        SiteChoice("at-data", "where the data lie, however long that takes", "Zaharia et al., 2010"),
        SiteChoice("least-loaded", "the least share of GPUs in use", "folklore"),
        SiteChoice("mast", "where its data lie, then the least demand over supply", "Choudhury et al., 2024"),
        SiteChoice("first-site", "the first site with free GPUs", "folklore"),
    )
}
"""The first one is what a queue over sites has if none is named."""
GREENEST = SiteChoice("greenest", "the least carbon, at the intensity of now", "folklore")
"""Not among those of a scenario, which says no intensities of its sites."""
BY_NETWORK = SiteChoice("learned", "the highest score of a network", "Hi-PPO")


def site_choice(name: str) -> SiteChoice:
    """Returns the placement over sites of that name.

    Raises:
        UsageError: there is none.
    """
    if name in SITE_CHOICES:
        return SITE_CHOICES[name]
    raise UsageError(f"unknown placement over sites {name!r}{suggestion(name, SITE_CHOICES)}")
