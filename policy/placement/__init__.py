"""Placements, each a short file with its paper: on which node and GPU a job lies.

In: nothing but the names of scores and gangs. Out: one `PlacementRecipe` a file; what the names mean is
compiled in the room twin/placement. Start with `registry.py`."""
