"""Decentralised data-parallel PPO (DD-PPO, Wijmans et al. 2020): learners that share gradients.

Every learner collects its own rollouts and computes its own gradients; all apply their mean (all-reduce over
gloo), so copies stay equal without a server. Each minibatch's advantages are normalised by mean and variance
over all learners (all-reduce of count, sum and sum of squares, one message an epoch); DD-PPO normalises whole
rollouts. Slow learners can stop their rollouts early (`distributed.preempt`). A group of one learns exactly
what plain training learns.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from math import ceil
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.training.learner import PpoLearner, Weights
from policy.hippo.training.ppo_loss import moments, normalise, normalise_by

EarlyStop = Callable[[int], bool]
TIMEOUT = timedelta(hours=2)
"""Longest wait for another learner (the first one alone imitates and validates)."""


class GlooLearnerGroup:
    """A `policy.hippo.training.learner.LearnerGroup` over gloo, as this process uses it."""

    def __init__(self, rank: int, size: int, host: str, port: int, config: HiPpoConfig):
        self.rank, self.size, self.config = rank, size, config.distributed
        self._store = dist.TCPStore(host, port, size, is_master=rank == 0, timeout=TIMEOUT)
        dist.init_process_group("gloo", store=self._store, rank=rank, world_size=size, timeout=TIMEOUT)

    def close(self) -> None:
        """Leaves the group."""
        dist.destroy_process_group()

    # -- means over all

    def mean_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replaces the gradients by their mean, in one message."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        dist.all_reduce(flat)
        parts = (flat / self.size).split([grad.numel() for grad in grads])
        for parameter, grad, part in zip(parameters, grads, parts, strict=True):
            if parameter.grad is not None or self.size > 1:
                parameter.grad = part.reshape(grad.shape)

    def normalise(self, advantages: Sequence[Tensor]) -> list[Tensor]:
        """Normalises minibatch n of all learners as one; all have equally many."""
        if self.size == 1:
            return [normalise(advantage) for advantage in advantages]
        whole = torch.stack([moments(advantage) for advantage in advantages])
        dist.all_reduce(whole)
        return [normalise_by(one, all_) for one, all_ in zip(advantages, whole, strict=True)]

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Returns the mean of metrics; all learners have the same names."""
        names = sorted(values)
        sums = torch.tensor([values[name] for name in names], dtype=torch.float64)
        dist.all_reduce(sums)
        return dict(zip(names, (sums / self.size).tolist(), strict=True))

    def average_lower(self, learner: PpoLearner) -> None:
        """Averages the lower agents, which each learner trains during its rollouts."""
        learner.load_lower(self._mean_tensors(learner.lower_weights()))

    def _mean_tensors(self, weights: Weights) -> Weights:
        def mean(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: mean(value[name]) for name in sorted(value)}
            dist.all_reduce(value)
            return value / self.size

        whole: Weights = mean(weights)
        return whole

    def broadcast(self, state: Any) -> Any:
        """Returns the first learner's `state` in every process."""
        box = [state]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    # -- stragglers

    def early_stop(self, iteration: int, steps: int) -> EarlyStop:
        """Returns the rule that stops a rollout of `steps` early: enough others complete, a least share
        done."""
        least = max(1, ceil(self.config.least * steps))

        def stop(taken: int) -> bool:
            if self.config.preempt >= 1 or taken < least:
                return False
            return self._count_complete(iteration, 0) >= self.config.preempt * self.size

        return stop

    def mark_complete(self, iteration: int) -> None:
        """Marks this learner's rollouts of the iteration as complete."""
        if self.config.preempt < 1:
            self._count_complete(iteration, 1)

    def _count_complete(self, iteration: int, more: int) -> int:
        return int(self._store.add(f"complete-{iteration}", more))
