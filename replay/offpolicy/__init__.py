"""Off-policy estimation: tokens that another policy would have trained, from logs alone; demonstrations.

Comes in: logged runs and the name of a policy. Goes out: `OffPolicy` with estimates and intervals, and
demonstrations for imitation learning. Start at `evaluation.py`; the estimators are in `estimators.py`.
"""
