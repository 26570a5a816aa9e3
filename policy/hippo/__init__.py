"""Hi-PPO: a two-level PPO agent with a graph encoder proposes plans, and the twin's cost model verifies them.

`tables` holds one cluster and job as arrays, `networks` scores choices, `decoding` turns scores into plans;
`agent` decides in a run, `env` and `training` produce the weights. Start at `agent/agent.py`; the checkpoint
that comes with the project lies in `shipped`.
"""
