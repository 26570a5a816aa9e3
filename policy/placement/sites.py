"""Placements over sites: to which data centre a job of a queue goes, by its data and what moving them costs.

What the rules mean is compiled in the room twin/sites.
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
