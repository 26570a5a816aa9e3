"""Fragmentation gradient descent: the node and GPU on which the fragmentation of the workload grows least.

Weng et al., "Beware of Fragmentation", USENIX ATC 2023, algorithm 1; the measure is in
`twin/placement/fragmentation.py`. The score is 100 x sigmoid of the fall in GPUs, a whole number, as
published. The paper knows the mix of tasks from the past; a queue counts the jobs submitted so far, anew
whenever their number has doubled."""

from twin.placement.recipe import PlacementRecipe

FGD = PlacementRecipe(
    "fgd", "fragments", "where fragmentation grows least", "Weng et al., ATC 2023, algorithm 1"
)
