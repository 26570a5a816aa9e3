"""Runs of a store as things to list, to set beside each other and to take away.

Comes in: a store, names of runs, a condition in SQL. Goes out: rows, comparisons, a plot, what was removed.
`listing.py` has the rows, `selection.py` the condition, `cached_figures.py` key figures that are computed
once; `side_by_side.py` and `overlay.py` compare; `removal.py` and `garbage.py` take away. Start at
`listing.py`.
"""
