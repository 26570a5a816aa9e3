"""The environments in which Hi-PPO is trained.

In: a `PreparedScenario`. Out: observations, rewards and truncations, from E twins of one cluster stepped
together (`vector_env.py`) over links and forecasts computed beforehand (`practice_trace.py`);
`training_task.py` joins them with the cluster's tables. Start at `gym.py`, the Gymnasium interface.
"""
