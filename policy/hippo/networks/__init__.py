"""The neural networks of Hi-PPO, their settings and checkpoint files.

In: an `Observation` as tensors. Out: logits and values of the upper agent (hold or move, knob, domains,
layers) and of the lower agents (tp and pp inside a domain); checkpoints by their SHA-256. Start at
`upper_agent.py`; `hippo_config.py` has all settings.
"""
