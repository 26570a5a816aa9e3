"""Schedulers of a queue, each an order and a backfill with its paper.

In: `QueueJobs` and the run times that the scheduler counts on. Out: the `OrderKeys` that sort the queue, and
the name of a backfill, as one `QueueRecipe`. Start with `registry.py`; the orders are in `fixed_orders.py`,
`aging_orders.py` and `served_orders.py`, and `published_slips.py` keeps formulas that were published with an
error, for comparisons with those results alone.
"""
