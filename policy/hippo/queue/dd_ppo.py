"""DD-PPO for the queue: workers that play windows alone and share nothing but gradients.

Sgambati, Vakanski and Anderson, "Decentralized Distributed Proximal Policy Optimization (DD-PPO) for High
Performance Computing Scheduling on Multi-User Systems" (arXiv:2505.03946), a re-implementation from the
abstract; the algorithm after Wijmans et al., "DD-PPO" (ICLR 2020): no server of parameters, advantages
normalised over all workers, the mean of the workers' gradients in each step, and a rollout that is stopped
early once enough workers are done. Their scorer is that of RLScheduler (Zhang et al., SC 2020), whose clip,
discount and lambda are taken.

The abstract leaves open: the reward (here minus the own log bounded slowdown, which the judge measures; no
heuristic is in it), the number of workers (here the windows of a step of Hi-PPO), backfilling (here EASY, as
for all learned orders), and the beginning (here imitation, as for Hi-PPO). Step sizes and gradient steps are
Hi-PPO's. Workers take one choice each in turn in one process, so that the mean is what an all-reduce gives
and a training is the same again; nothing is gained in time.
"""

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import nn

from policy.hippo.queue.ppo import ChoiceBatch, Ppo, PpoSettings, normalised
from policy.hippo.queue.rollout import QueueRollout, accruals, rollout
from policy.hippo.queue.windows import Window
from twin.queue.jobs import Float, Int
from twin.queue.recipe import JobScorer

WORKERS = PpoSettings().windows
"""Workers, one window each in a step: what Hi-PPO plays for one."""
MINIBATCHES = PpoSettings().windows
"""Parts of each worker's choices, so that a pass takes as many gradient steps as one of Hi-PPO."""
DONE, LEAST = 0.6, 0.25
"""Share of the workers that must be done before the others are stopped, and share of its window that each
plays in any case (Wijmans et al., section 3, and their published configuration)."""
SETTINGS = PpoSettings(windows=WORKERS, gamma=0.99, lam=0.97)


class QueueDdPpo(Ppo):
    """A scorer that improves by the mean gradient of workers."""

    def __init__(self, module: nn.Sequential, seed: int) -> None:
        super().__init__(module, seed, SETTINGS, own_rollout)

    def step(self, windows: Sequence[Any], random: np.random.Generator) -> None:
        """Lets each worker play a window, and learns from all."""
        chosen, scorer = random.integers(len(windows), size=WORKERS), self.scorer
        played = [self.play(windows[at], scorer, int(random.integers(2**62))) for at in chosen]
        taken = [one for one in played if len(one.begin)]
        if taken:
            stops = stopped_at([len(one.begin) for one in taken])
            self.learn([self.batch(one, stop) for one, stop in zip(taken, stops, strict=True)])

    def learn(self, batches: list[ChoiceBatch]) -> None:
        """Takes a step along the mean gradient of all workers, minibatch by minibatch, in every pass."""
        pieces = [one.pieces(MINIBATCHES) for one in normalised(batches)]
        for _ in range(self.settings.passes):
            for together in zip_longest(*pieces):
                of_workers = [one for one in together if one is not None]
                loss = torch.stack([self.clipped_loss(one) for one in of_workers]).mean()
                self.descend(self.optimiser, self.module, loss)
                error = torch.stack([self.critic_loss(one) for one in of_workers]).mean()
                self.descend(self.critic_optimiser, self.critic, error)


def own_rollout(window: Window, scorer: JobScorer, seed: int) -> QueueRollout:
    """Returns sampled choices in a window, priced without a heuristic."""
    return rollout(window, scorer, seed, own_cost)


def own_cost(window: Window, own_ns: Int, time_ns: Int) -> Float:
    """Returns the reward of each choice (k,): minus the own accrual until the next."""
    return -accruals(window, own_ns, time_ns)


def stopped_at(choices: list[int]) -> list[int]:
    """Returns how many choices each worker takes of those of its window, if all take one at a time."""
    enough = sorted(choices)[math.ceil(DONE * len(choices)) - 1]
    return [min(count, max(enough, math.ceil(LEAST * count))) for count in choices]
