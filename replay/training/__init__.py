"""Training and retraining of the learned policy: drift, schedule, champion against challenger, rollback.

Comes in: a scenario and a store. Goes out: checkpoints, the pointer to the active one, and logs of every
step. Start at `retrain.py`; `train.py` is `twin train`, `drift.py` and `schedule.py` decide when to
retrain.
"""
