"""Proximal policy optimisation of the scorer (Schulman et al., arXiv:1707.06347) on choices inside EASY."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
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
        batches = [self.batch(one) for one in played if len(one.begin)]
        if batches:
            self.learn(batches)

    def batch(self, one: QueueRollout, stop: int | None = None) -> "ChoiceBatch":
        """Returns the choices of a window; of one that is stopped early, those before it, and what the critic
        expects there."""
        rows, begin = torch.from_numpy(one.rows), torch.from_numpy(one.begin)
        with torch.no_grad():
            sampled = log_probabilities(self.module(rows)[:, 0], begin)
            value = self.critic(queue_state(rows, begin))[:, 0].numpy()
        end = len(begin) if stop is None else min(stop, len(begin))
        after = float(value[end]) if end < len(begin) else 0.0
        gain = advantages(one.reward[:end], value[:end], self.settings.gamma, self.settings.lam, after)
        whole = ChoiceBatch(rows, begin, sampled, torch.zeros(len(begin)), torch.zeros(len(begin)))
        return replace(
            whole.part(0, end), gain=torch.from_numpy(gain), target=torch.from_numpy(gain + value[:end])
        )

    def learn(self, batches: list["ChoiceBatch"]) -> None:
        """Takes a gradient step for each window, in every pass."""
        scaled = normalised(batches)
        for _ in range(self.settings.passes):
            for one in scaled:
                self.descend(self.optimiser, self.module, self.clipped_loss(one))
                self.descend(self.critic_optimiser, self.critic, self.critic_loss(one))

    def clipped_loss(self, one: "ChoiceBatch") -> Tensor:
        """Returns minus the clipped surrogate (eq. 7), mean over choices."""
        clip = self.settings.clip
        ratio = torch.exp(log_probabilities(self.module(one.rows)[:, 0], one.begin) - one.sampled)
        surrogate = torch.minimum(ratio * one.gain, ratio.clamp(1 - clip, 1 + clip) * one.gain)
        return -surrogate.mean()

    def critic_loss(self, one: "ChoiceBatch") -> Tensor:
        """Returns the mean squared error of the critic."""
        value = self.critic(queue_state(one.rows, one.begin))[:, 0]
        return ((value - one.target) ** 2).mean()

    def descend(self, optimiser: torch.optim.Optimizer, module: nn.Module, loss: Tensor) -> None:
        """Takes a gradient step, clipped by its norm."""
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), self.settings.norm)
        optimiser.step()


@dataclass(frozen=True, eq=False)
class ChoiceBatch:
    """Choices to learn from: rows (e, features), first row of each choice (k,), log-probabilities as sampled,
    advantages and returns (k,)."""

    rows: Tensor
    begin: Tensor
    sampled: Tensor
    gain: Tensor
    target: Tensor

    def part(self, first: int, end: int) -> "ChoiceBatch":
        """Returns the choices from first to before end."""
        start = int(self.begin[first])
        stop = int(self.begin[end]) if end < len(self.begin) else len(self.rows)
        kept = slice(first, end)
        return ChoiceBatch(
            self.rows[start:stop], self.begin[kept] - start, self.sampled[kept], self.gain[kept],
            self.target[kept],
        )  # fmt: skip

    def pieces(self, count: int) -> list["ChoiceBatch"]:
        """Returns the choices in so many runs, of equal length within one; fewer where choices are."""
        bounds = np.linspace(0, len(self.begin), min(count, len(self.begin)) + 1).astype(int).tolist()
        return [self.part(first, end) for first, end in pairwise(bounds)]


def normalised(batches: list[ChoiceBatch]) -> list[ChoiceBatch]:
    """Returns batches whose advantages have mean 0 and deviation 1 over all of them."""
    gains = torch.cat([one.gain for one in batches])
    spread, centre = gains.std() + 1e-8, gains.mean()
    return [replace(one, gain=(one.gain - centre) / spread) for one in batches]


def advantages(reward: Float, value: Float, gamma: float, lam: float, after: float = 0.0) -> Float:
    """Returns generalised advantages (k,) of one window (Schulman et al., ICLR 2016, eq. 16), with the value
    of the state `after` its last choice, 0 where it ends."""
    found, running = np.zeros(len(reward)), 0.0
    for at in range(len(reward) - 1, -1, -1):
        later = value[at + 1] if at + 1 < len(value) else after
        running = reward[at] + gamma * later - value[at] + gamma * lam * running
        found[at] = running
    return found
