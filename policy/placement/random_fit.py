"""Random: any node that has room, each as likely, and any GPU of it that has room for a share.

The draw depends on the seed and the number of the job alone, so that a run can be repeated.
"""

from twin.placement.recipe import PlacementRecipe

RANDOM_FIT = PlacementRecipe("random", "random", "any node that has room", "Weng et al., ATC 2023: Random")
