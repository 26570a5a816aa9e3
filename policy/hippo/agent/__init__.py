"""Hi-PPO at decision time: propose, refine, verify, choose.

In: a `View` of the job and its links, a `Checkpoint`. Out: a `Decision`. The network proposes plans
(`coordinator.py`), local search refines them (`shortlist.py`, `local_search.py`), the cost model scores them
over the forecast horizon (`plan_verification.py`). Start at `agent.py`.
"""
