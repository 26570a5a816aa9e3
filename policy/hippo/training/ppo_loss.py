"""The PPO loss, advantage normalisation, and multipliers of the soft constraints."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss of one minibatch: `total` is minimised, the rest goes to the learning curve."""

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def loss(
    *,
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    value: Tensor,
    old_value: Tensor,
    target: Tensor,
    entropy: Tensor,
    clip_range: float,
    value_clip: float,
    value_coef: float,
    entropy_coef: float,
) -> Loss:
    """Clipped surrogate, clipped value error and entropy bonus; every argument is (B,).

        L = -E[min(r A, clip(r, 1-eps, 1+eps) A)] + c_v E[max((V-R)^2, (V_clip-R)^2)]/2 - c_e E[H]

    Schulman et al. 2017, eqs. 7 and 9; KL by the k3 estimator (r - 1) - log r.
    """
    log_ratio = log_prob - old_log_prob
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    policy = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    near = old_value + (value - old_value).clamp(-value_clip, value_clip)
    error = 0.5 * torch.maximum((value - target) ** 2, (near - target) ** 2).mean()
    bonus = entropy.mean()
    with torch.no_grad():
        kl = (ratio - 1 - log_ratio).mean()
        fraction = ((ratio - 1).abs() > clip_range).float().mean()
    total = policy + value_coef * error - entropy_coef * bonus
    return Loss(total, policy, error, bonus, kl, fraction)


def normalise(advantage: Tensor) -> Tensor:
    """Normalises a batch (B,) to mean 0 and sd 1; a batch of one is unchanged."""
    if len(advantage) < 2:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std(unbiased=False) + 1e-8)


def moments(advantage: Tensor) -> Tensor:
    """Returns count, sum and sum of squares of a batch (B,); float64 (3,), additive over parts."""
    wide = advantage.double()
    return torch.stack([torch.tensor(float(len(wide)), dtype=wide.dtype), wide.sum(), wide.square().sum()])


def normalise_by(advantage: Tensor, whole: Tensor) -> Tensor:
    """Normalises a batch (B,) as part of a larger one with the `moments` `whole` (3,)."""
    count, total, squares = whole.tolist()
    if count < 2:
        return advantage
    mean = total / count
    sd = max(squares / count - mean * mean, 0.0) ** 0.5
    return (advantage - mean) / (sd + 1e-8)


class Multipliers:
    """Lagrange multipliers mu >= 0 of soft constraints mean g <= limit.

    The reward is r - sum_i mu_i g_i (the limits would add a constant); after each rollout projected dual
    ascent, mu_i = max(mu_i + lr (mean g_i - limit_i), 0). g must not be clipped at its limit, else mu could
    only rise.
    """

    def __init__(self, limits: Mapping[str, float], lr: float, maximum: float):
        self.names = tuple(limits)
        self._limits = dict(limits)
        self._lr, self._maximum = lr, maximum
        self.values = dict.fromkeys(self.names, 0.0)

    def update(self, means: Mapping[str, float]) -> None:
        """Makes one step of dual ascent from the mean of each constraint's value."""
        for name in self.names:
            step = self._lr * (means[name] - self._limits[name])
            self.values[name] = min(max(self.values[name] + step, 0.0), self._maximum)
