"""Packing: GPUs that are shared already first, then whole GPUs of nodes in use, then idle nodes.

As in MLaaS of Weng et al. (NSDI 2022); points as GpuPacking in the comparison of FGD (Weng et al., ATC 2023).
"""

from twin.placement.recipe import PlacementRecipe

PACKING = PlacementRecipe(
    "packing", "packing", "GPUs and nodes in use first", "Weng et al., NSDI 2022 and ATC 2023: GpuPacking"
)
