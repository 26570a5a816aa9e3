"""Learners that share gradients and nothing else: decentralised data-parallel PPO (DD-PPO, Wijmans et al.
2020).

Every learner collects its own rollouts and computes its own gradients; their mean (all-reduce over gloo)
moves all copies of the agents alike, so no server is needed and copies never differ. Advantages are
normalised with the mean and the variance of all learners' (all-reduce of count, sum and sum of squares, one
message an epoch): over each minibatch as everywhere here, which is then one of all learners together, where
DD-PPO's authors normalise the whole rollout once. Those whose rollouts take long can be told to stop early
(`distributed.preempt`). One learner alone learns exactly what training without this does.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from math import ceil
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.training.ppo_loss import moments, normalise, normalise_by
from policy.hippo.training.learner import Practice, Weights

Enough = Callable[[int], bool]
PATIENCE = timedelta(hours=2)
"""A learner waits this long for the others (the first one alone asks the teachers and validates)."""


class Learners:
    """This learner's end of the group; `policy.hippo.practice.Peers`."""

    def __init__(self, rank: int, size: int, host: str, port: int, config: HiPpoConfig):
        self.rank, self.size, self.config = rank, size, config.distributed
        self._store = dist.TCPStore(host, port, size, is_master=rank == 0, timeout=PATIENCE)
        dist.init_process_group("gloo", store=self._store, rank=rank, world_size=size, timeout=PATIENCE)

    def close(self) -> None:
        """Leave the group."""
        dist.destroy_process_group()

    # -- means over all

    def mean_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace the gradients by their mean, in one message."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        dist.all_reduce(flat)
        parts = (flat / self.size).split([grad.numel() for grad in grads])
        for parameter, grad, part in zip(parameters, grads, parts, strict=True):
            if parameter.grad is not None or self.size > 1:
                parameter.grad = part.reshape(grad.shape)

    def normalise(self, advantages: Sequence[Tensor]) -> list[Tensor]:
        """Minibatch n of all learners is normalised as one; all have as many."""
        if self.size == 1:
            return [normalise(advantage) for advantage in advantages]
        whole = torch.stack([moments(advantage) for advantage in advantages])
        dist.all_reduce(whole)
        return [normalise_by(one, all_) for one, all_ in zip(advantages, whole, strict=True)]

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Mean of figures; all learners name the same ones."""
        names = sorted(values)
        sums = torch.tensor([values[name] for name in names], dtype=torch.float64)
        dist.all_reduce(sums)
        return dict(zip(names, (sums / self.size).tolist(), strict=True))

    def mean_lower(self, practice: Practice) -> None:
        """Give every learner the mean of the lower agents, which learn on their own during a rollout."""
        practice.take_lower(self._mean_tensors(practice.lower_weights()))

    def _mean_tensors(self, weights: Weights) -> Weights:
        def mean(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: mean(value[name]) for name in sorted(value)}
            dist.all_reduce(value)
            return value / self.size

        whole: Weights = mean(weights)
        return whole

    def agree(self, state: Any) -> Any:
        """The first learner's `state`, for everybody."""
        box = [state]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    # -- stragglers

    def enough(self, iteration: int, steps: int) -> Enough:
        """Whether a rollout of `steps` may stop: enough others are complete, and a least part is done."""
        least = max(1, ceil(self.config.least * steps))

        def stop(taken: int) -> bool:
            if self.config.preempt >= 1 or taken < least:
                return False
            return self._complete(iteration, 0) >= self.config.preempt * self.size

        return stop

    def complete(self, iteration: int) -> None:
        """This learner's rollouts of the iteration are complete."""
        if self.config.preempt < 1:
            self._complete(iteration, 1)

    def _complete(self, iteration: int, more: int) -> int:
        return int(self._store.add(f"complete-{iteration}", more))
