"""Many jobs on a cluster of nodes, where a job needs a place: who starts when and where, to the nanosecond.

In: `QueueJobs` with their `Demands`, a `NodeCluster`, a `QueueRecipe`, a `PlacementRecipe` and the outages of
nodes (`outages.py`). Out: a `NodeSchedule` with every start and place, all runs of its jobs (`runs.py`), and
its figures (`metrics.py`). `kernel.py` is the compiled event loop, on top of that of one pool, with `state.py`,
`passes.py` (who starts) and `faults.py`; `referee.py` is the same in SimPy, which tests hold it equal to;
`selection.py` says which rows of a log nodes can run. Start with `on_nodes.py`.
"""
