"""Schedulers of a queue compared on a log, and on what others published.

In: a log in the Standard Workload Format, names of recipes, a rule set. Out: a `QueueComparison`. Start with
`comparison.py`; `sequences.py` cuts a log as RLScheduler does, `recorded.py` reads schedules that others
recorded, `published.py` puts published figures beside ours.
"""
