"""Clustering: jobs of one size together; among such nodes the fullest.

Sizes are a share of a GPU, 1 GPU, 2 GPUs and so on. Gandiva (Xiao et al., OSDI 2018) places by this affinity;
points as GpuClustering in the comparison of FGD (Weng et al., ATC 2023).
"""

from twin.placement.recipe import PlacementRecipe

CLUSTERING = PlacementRecipe(
    "clustering", "affinity", "jobs of one size together", "Xiao et al., OSDI 2018; Weng et al., ATC 2023"
)
