"""Best fit: the node on which the least stays free, the mean of CPU and GPUs.

Score: 100 (1 - mean of (free - asked) / most of the largest nodes), a whole number, as in the comparison of
FGD (Weng et al., ATC 2023), where it is BestFit."""

from twin.placement.recipe import PlacementRecipe

BEST_FIT = PlacementRecipe(
    "best-fit", "leftover-least", "the node on which the least stays free", "Weng et al., ATC 2023: BestFit"
)
