"""Scattered: GPUs one by one from the first nodes that have any, all of one GPU model.

A job starts as soon as enough GPUs are free anywhere: on nodes of one model the queue moves as on one pool.
What it costs is locality, which is not charged here."""

from twin.placement.recipe import PlacementRecipe

SCATTERED = PlacementRecipe(
    "scattered", "first", "free GPUs wherever they are", "Jeon et al., ATC 2019: relaxed locality",
    gang="scattered",
)  # fmt: skip
