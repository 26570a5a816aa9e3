"""From logits to plans and back.

In: networks, observations, masks. Out: plans sampled share by share under the masks (`sampling.py`, compiled
in `autoregressive.py`), their log-probabilities (`log_probability.py`), and plans as rows of integers for
Gymnasium (`action_encoding.py`). `unmasked.py` is an ablation. Start at `sampling.py`.
"""
