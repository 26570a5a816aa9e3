"""Many jobs that wait for one pool of identical processors: who starts when, to the nanosecond.

In: `QueueJobs`, the size of the pool, a `QueueRecipe` (order and backfill) and `QueueRules` (how a simulator
treats events of one instant). Out: a `QueueSchedule` with every start, and its figures (`metrics.py`).
`kernel.py` is the compiled event loop (on the arrays of `pool.py`), with `reservations.py` for conservative
backfilling; `referee.py` is the same in SimPy, which tests hold it equal to; `scoring.py` is an order that a
network makes; `theory.py` has the formulas of queueing theory. Start with `simulation.py`. The same on nodes,
where a job needs a place: the room `twin/nodes`.
"""
