"""Placements, each a short file with its paper: on which node and GPU a job lies.

In: nothing but the names of scores and gangs. Out: one `PlacementRecipe` a file; the formulas are compiled in
`twin/placement/scores.py`. Start with `registry.py`.
"""
