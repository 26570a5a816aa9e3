"""Hi-PPO for the queue: a network orders waiting jobs inside EASY, begun at the best heuristic.

In: jobs of logs, each on its pool. Out: a `LearnedOrder`. `windows.py` chooses the heuristic and the parts
that are worth learning from, `rollout.py` plays a window and prices its choices, `network.py` has scorer and
critic; `imitation.py` brings the scorer to the heuristic, `ppo.py` goes on from there, `evolution.py` is the
control, an evolution strategy on a network of 67 weights. `dd_ppo.py` and `sla_morl.py` are two published
learners on the same choices, features and imitation. Start at `training.py`.
Over several sites a network chooses where each job runs, or that it waits for a site: `site_windows.py`
prices a schedule job by job (slowdown, egress, carbon), `site_training.py` begins at the best rule and goes
on with the same two methods.
"""
