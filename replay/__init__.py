"""Runs: decisions become a log, figures, reports and trained weights.

Rooms from the bottom up: `log`, `store`, `metrics`, `sql`, `run`, then `audit`, `bench` and `offpolicy`,
`report` and `training`, and `api`, behind which `import twin` lies. A `PreparedScenario` and a policy come
in, a durable log and what is computed from it go out. Start at `run/loop.py` and `log/run_log.py`.
"""
