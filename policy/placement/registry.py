"""Placements by name. A new one is a file with a recipe and a line here."""

from ingest.core.names import chosen
from policy.placement.best_fit import BEST_FIT
from policy.placement.clustering import CLUSTERING
from policy.placement.dot_product import DOT_PRODUCT, TETRIS
from policy.placement.fgd import FGD
from policy.placement.first_fit import FIRST_FIT
from policy.placement.packing import PACKING
from policy.placement.racks import RACK, RACK_FIRST
from policy.placement.random_fit import RANDOM_FIT
from policy.placement.scattered import SCATTERED
from policy.placement.worst_fit import SPREAD, WORST_FIT
from twin.placement.recipe import PlacementRecipe

PLACEMENTS = {
    one.name: one
    for one in (
        BEST_FIT, FIRST_FIT, WORST_FIT, PACKING, CLUSTERING, DOT_PRODUCT, TETRIS, FGD, RANDOM_FIT, SPREAD,
        SCATTERED, RACK, RACK_FIRST,
    )
}  # fmt: skip
"""The first one is what a cluster of nodes has if none is named."""


def placement(name: str) -> PlacementRecipe:
    """Returns the placement of that name.

    Raises:
        UsageError: there is none.
    """
    return chosen(PLACEMENTS, name, "placement")
