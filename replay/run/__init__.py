"""Runs of policies: the loop, its preparation, the guard of decisions, branches and what-ifs.

Comes in: a `PreparedScenario` and a policy, or a logged run. Goes out: a log and a `RunResult` or `WhatIf`.
Start at `loop.py` (next fact, view, policy, decision, log), then `runner.py`, which prepares, starts and
resumes runs.
"""
