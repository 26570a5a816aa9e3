"""Jobs whose run is changed: preempted, resumed, moved, resized, and those that share GPUs.

In: a `SharingWorld` (jobs, nodes, `ChangeRules`, measured `Speeds`) and a scheduler that sees a
`SharingView` at each event and answers with an `Allocation`. Out: a `SharedSchedule` with every event, and
its figures (`figures.py`). `engine.py` is the event loop on the compiled arithmetic of `progress.py`;
`referee.py` is the same in SimPy, which tests hold it equal to; `job_goodput.py` has speeds that follow from
batch and progress. `uplinks.py` has links that jobs share, `iterations.py` plays who waits on them.
Start with `view.py`; `changes.py` says when a run may be changed and what that costs,
`placing.py` where jobs lie.
"""
