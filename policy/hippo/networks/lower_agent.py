"""The lower agents: one network, shared by all domains, that arranges a share inside its domain.

The upper agent fixes domain, layers, dp and micro-batch size; the lower one picks (tp, pp) among the legal
ones. GPUs are those the share already holds when nothing else changed, else packed (`Estimator.place`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

CHOICE = 9
"""Features of one (tp, pp): see `choice_features`."""
WIDTH = 32
MASKED = -1e9
Int = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LowerAnswer:
    """Choice of each share and what learning needs, all (R,)."""

    choice: Tensor
    log_prob: Tensor
    entropy: Tensor


class LowerAgent(nn.Module):
    """Scores every inner configuration of a share from what it would mean."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(CHOICE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.out = nn.Linear(WIDTH, 1)
        self.value_head = nn.Linear(WIDTH, 1)

    def logits(self, features: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (R, Q) and value (R,) from features (R, Q, CHOICE) and the mask (R, Q)."""
        mixed = self.score(features)
        weight = legal.to(mixed).unsqueeze(-1)
        pooled = (mixed * weight).sum(1) / weight.sum(1).clamp(min=1)
        logits = self.out(mixed).squeeze(-1).masked_fill(~legal, MASKED)
        return logits, self.value_head(pooled).squeeze(-1)


def choice_features(
    fixed: NDArray[np.float32], pp: Int, layers: Int, behind: Int, current: Int, n_layers: int
) -> NDArray[np.float32]:
    """Features (R, Q, CHOICE) of every inner configuration of R shares: the constant ones, share of the
    layers, layers per stage, stages behind, is it in use.

    `fixed` (R, Q, CHOICE - 4), `pp` (R, Q), the others (R,).
    """
    out = np.empty((*pp.shape, CHOICE), dtype=np.float32)
    out[:, :, :-4] = fixed
    out[:, :, -4] = (layers / n_layers)[:, None]
    out[:, :, -3] = layers[:, None] / np.maximum(pp, 1) / n_layers
    out[:, :, -2] = (behind / 8)[:, None]
    out[:, :, -1] = np.arange(pp.shape[1]) == current[:, None]
    return out


def answer(logits: Tensor, choice: Tensor) -> LowerAnswer:
    """Log-probability and entropy of given choices (R,) under `logits` (R, Q)."""
    log_prob = torch.log_softmax(logits, dim=-1)
    entropy = -(log_prob.exp() * log_prob).sum(-1)
    return LowerAnswer(choice, log_prob.gather(-1, choice.unsqueeze(-1)).squeeze(-1), entropy)
