"""Clairvoyant bounds: what could have been trained with the future of every link known.

In: the `WanTrace` of a run, the `Estimator`, and the plans that compared policies used. Out: a `Bound` with
the best path through (time, plan), the best plan that is never changed, a proven ceiling where the space of
plans is small enough, and the compute capacity. Start at `bound.py`; `time_grid.py` has the time slots that
all share.
"""
