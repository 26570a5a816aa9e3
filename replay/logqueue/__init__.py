"""Schedulers of a queue compared on a log, on what others published, and kept as runs.

In: a job log or jobs of the lake, names of recipes, a rule set. Out: a `QueueComparison`. Start with
`comparison.py`; `sequences.py` cuts a log as RLScheduler does, `recorded.py` reads schedules that others
recorded, `published.py` puts published figures beside ours. A kept schedule: `run_events.py` writes its
events, those of jobs and nodes from `job_changes.py`; `logged_run.py` reads them, `waiting.py` says why a job
waited, `start_forecast.py` when it starts. On the nodes of a cluster: `on_nodes.py`; `filling_published.py`
fills FGD's cluster as published, with random numbers of Go (`go_random.py`)."""
