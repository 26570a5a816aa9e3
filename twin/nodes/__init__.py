"""Many jobs on a cluster of nodes, where a job needs a place: who starts when and where, to the nanosecond.

In: `QueueJobs` with their `Demands`, a `NodeCluster`, a `QueueRecipe`, a `PlacementRecipe` and the outages of
nodes (`outages.py`). Out: a `NodeSchedule` with every start and place, and its figures (`metrics.py`).
`kernel.py` is the compiled event loop, on top of that of one pool, with `state.py`, `passes.py` (who starts),
`faults.py` and `sleeping.py`; `referee.py` is the same in SimPy, which tests hold it equal to; `runs.py` has
all runs of jobs that faults end. Start with `on_nodes.py`.
"""
