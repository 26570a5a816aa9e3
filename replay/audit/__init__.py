"""Audits of logged runs: integrity, accounts, re-execution, explanations of decisions, signatures.

Comes in: the log of a run. Goes out: `AuditReport`, `DecisionAudit`, `Explanation`, `Rerun`, `Signature`.
Start at `audit.py`; `conservation.py` checks the accounts, `explain.py` one decision, `queue_run.py` the
run of a queue.
"""
