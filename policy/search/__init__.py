"""Search for the fastest plans under one link state.

In: a `LinkState`, the `Estimator`, living GPUs and slowdowns. Out: plans with exact iteration times, or all
plans that were timed, as rows of arrays. Start at `plan_search.py`; the other modules are its steps, from
`plan_shapes.py` (what is enumerated) over `closed_form.py` (selection) to `batch_scoring.py` (exact times).
`genetic_allocation.py` searches something else: GPUs of nodes for the jobs of a queue.
"""
