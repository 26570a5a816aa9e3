"""Proximal policy optimisation of the scorer (Schulman et al., arXiv:1707.06347) on choices inside EASY."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from policy.hippo.queue.network import critic, log_probabilities, queue_state, scorer_of
from policy.hippo.queue.rollout import QueueRollout, rollout
from twin.queue.jobs import Float
from twin.queue.recipe import JobScorer


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """Settings of an update: windows played for it, passes over their choices, clipping, discount and lambda
    of the advantages, step sizes of scorer and critic."""

    windows: int = 6
    passes: int = 4
    clip: float = 0.2
    gamma: float = 0.998
    lam: float = 0.95
    rate: float = 1e-3
    critic_rate: float = 3e-3
    norm: float = 0.5


class Ppo:
    """A scorer that improves by sampled choices of windows, which `play` plays; the critic is learned beside
    it."""

    def __init__(
        self, module: nn.Sequential, seed: int, settings: PpoSettings | None = None,
        play: Callable[[Any, JobScorer, int], QueueRollout] = rollout,
    ) -> None:  # fmt: skip
        features = next(layer.in_features for layer in module if isinstance(layer, nn.Linear))
        self.module, self.critic, self.play = module, critic(seed, features), play
        self.settings = settings or PpoSettings()
        self.optimiser = torch.optim.Adam(module.parameters(), lr=self.settings.rate)
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters(), lr=self.settings.critic_rate)

    @property
    def scorer(self) -> JobScorer:
        """The network as it is."""
        return scorer_of(self.module)

    def step(self, windows: Sequence[Any], random: np.random.Generator) -> None:
        """Plays windows and learns from them."""
        chosen, scorer = random.integers(len(windows), size=self.settings.windows), self.scorer
        played = [self.play(windows[at], scorer, int(random.integers(2**62))) for at in chosen]
        batches = [self._batch(one) for one in played if len(one.begin)]
        if batches:
            self._learn(batches)

    def _batch(self, one: QueueRollout) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Returns rows, begins, log-probabilities as sampled, advantages and returns of a window."""
        rows, begin = torch.from_numpy(one.rows), torch.from_numpy(one.begin)
        with torch.no_grad():
            sampled = log_probabilities(self.module(rows)[:, 0], begin)
            value = self.critic(queue_state(rows, begin))[:, 0].numpy()
        gain = advantages(one.reward, value, self.settings.gamma, self.settings.lam)
        return rows, begin, sampled, torch.from_numpy(gain), torch.from_numpy(gain + value)

    def _learn(self, batches: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]) -> None:
        """Takes a gradient step for each window, in every pass."""
        spread = torch.cat([one[3] for one in batches]).std() + 1e-8
        centre = torch.cat([one[3] for one in batches]).mean()
        for _ in range(self.settings.passes):
            for rows, begin, sampled, gain, target in batches:
                ratio = torch.exp(log_probabilities(self.module(rows)[:, 0], begin) - sampled)
                scaled, clip = (gain - centre) / spread, self.settings.clip
                surrogate = torch.minimum(ratio * scaled, ratio.clamp(1 - clip, 1 + clip) * scaled)
                self._descend(self.optimiser, self.module, -surrogate.mean())
                value = self.critic(queue_state(rows, begin))[:, 0]
                self._descend(self.critic_optimiser, self.critic, ((value - target) ** 2).mean())

    def _descend(self, optimiser: torch.optim.Optimizer, module: nn.Module, loss: Tensor) -> None:
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), self.settings.norm)
        optimiser.step()


def advantages(reward: Float, value: Float, gamma: float, lam: float) -> Float:
    """Returns generalised advantages (k,) of one window that ends (Schulman et al., ICLR 2016, eq. 16)."""
    found, running = np.zeros(len(reward)), 0.0
    for at in range(len(reward) - 1, -1, -1):
        later = value[at + 1] if at + 1 < len(value) else 0.0
        running = reward[at] + gamma * later - value[at] + gamma * lam * running
        found[at] = running
    return found
