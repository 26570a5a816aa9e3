"""Figures from events: key figures, prediction errors, paired comparisons, fronts, health of filters.

Comes in: the events of runs, and the headers and data of a store. Goes out: `Kpis`, `PairedDifference`,
`Health`, the status of a store. Most are folds over events (`replay/log`). Start at `kpis.py`, then
`paired_comparison.py`; `formatting.py` writes figures as text.
"""
