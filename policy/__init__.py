"""The policy protocol, Hi-PPO, the baselines and the clairvoyant bound."""
