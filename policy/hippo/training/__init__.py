"""Training of Hi-PPO: imitation of planners, then PPO.

In: prepared scenarios, settings, logged decisions. Out: a `Checkpoint` and its learning curve, with a state
to resume from. Rollouts come from this process, worker processes or Ray (`rollout_workers.py`,
`ray_workers.py`); several learners may share gradients (`gradient_sharing.py`, `launch.py`). Start at
`train.py`.
"""
