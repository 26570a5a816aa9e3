"""The lower agents: one network, shared by all domains, that chooses (tp, pp) of a share.

The upper agent chooses domain, layers, dp and micro-batch size. GPUs are placed by `Estimator.place`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from policy.hippo.tables.observation import CHOICE

WIDTH = 32
MASKED = -1e9


@dataclass(frozen=True, eq=False)
class ChoiceLikelihood:
    """Choices under a categorical distribution, all (R,)."""

    choice: Tensor
    log_prob: Tensor
    entropy: Tensor


class LowerAgent(nn.Module):
    """Scores every inner configuration of a share by its features."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(CHOICE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.out = nn.Linear(WIDTH, 1)
        self.value_head = nn.Linear(WIDTH, 1)

    def logits(self, features: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
        """Returns logits (R, Q) and value (R,) from features (R, Q, CHOICE) and the mask (R, Q)."""
        mixed = self.score(features)
        weight = legal.to(mixed).unsqueeze(-1)
        pooled = (mixed * weight).sum(1) / weight.sum(1).clamp(min=1)
        logits = self.out(mixed).squeeze(-1).masked_fill(~legal, MASKED)
        return logits, self.value_head(pooled).squeeze(-1)


def likelihood(logits: Tensor, choice: Tensor) -> ChoiceLikelihood:
    """Returns log-probability and entropy of choices (R,) under `logits` (R, Q)."""
    log_prob = torch.log_softmax(logits, dim=-1)
    entropy = -(log_prob.exp() * log_prob).sum(-1)
    return ChoiceLikelihood(choice, log_prob.gather(-1, choice.unsqueeze(-1)).squeeze(-1), entropy)
