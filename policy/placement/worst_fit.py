"""Worst fit: the node on which the most stays free; and `spread`, which puts the GPUs of a gang one by one
on such nodes, all of one GPU model, as Kubernetes spreads by LeastAllocated.

The score is that of best fit, turned round.
"""

from twin.placement.recipe import PlacementRecipe

WORST_FIT = PlacementRecipe(
    "worst-fit", "leftover-most", "the node on which the most stays free", "Johnson, JCSS 1974"
)
SPREAD = PlacementRecipe(
    "spread", "leftover-most", "worst fit, GPU by GPU", "Kubernetes: LeastAllocated", gang="scattered"
)
