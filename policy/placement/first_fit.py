"""First fit: the first node of the cluster that has room (Johnson, JCSS 1974, for bins of one dimension)."""

from twin.placement.recipe import PlacementRecipe

FIRST_FIT = PlacementRecipe("first-fit", "first", "the first node that has room", "Johnson, JCSS 1974")
