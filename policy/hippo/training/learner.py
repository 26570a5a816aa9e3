"""Both agents as they learn: the upper one by PPO over whole rollouts, the lower ones at every step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.decoding.sampling import Actions, judge_lower
from policy.hippo.env.vector_env import CONSTRAINTS
from policy.hippo.decoding.log_probability import Case, judge
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.observation import Observation
from policy.hippo.training.ppo_loss import Loss, Multipliers, loss, normalise
from policy.hippo.tables.planning_tables import Problem
from policy.hippo.networks.upper_agent import UpperAgent

Weights = dict[str, Any]
"""Tensors by name, optimiser state included."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """B decisions of one course, in the order in which they were taken."""

    case: Case
    log_prob: Tensor  # (B,)
    value: Tensor
    advantage: Tensor
    target: Tensor
    planned: int  # decisions that were to be taken; fewer were, where others had finished long before
    metrics: dict[str, float]


class Peers(Protocol):
    """Those who learn the same agents together: `policy.hippo.distributed.Learners`, or nobody else."""

    rank: int
    size: int

    def mean_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replace the gradients of the parameters by their mean over all."""
        ...

    def normalise(self, advantages: Sequence[Tensor]) -> list[Tensor]:
        """Advantages of minibatches with mean 0 and standard deviation 1, each over what all have in it."""
        ...

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Mean of figures over all."""
        ...

    def mean_lower(self, practice: "Practice") -> None:
        """Give everybody the mean of the lower agents."""
        ...

    def agree(self, state: Any) -> Any:
        """What the first one says."""
        ...

    def enough(self, iteration: int, steps: int) -> Callable[[int], bool]:
        """Whether a rollout of `steps` may stop early, asked with the steps taken."""
        ...

    def complete(self, iteration: int) -> None:
        """One's rollouts of the iteration are complete."""
        ...


class Alone:
    """Nobody else."""

    rank, size = 0, 1

    def mean_gradients(self, parameters: Sequence[Tensor]) -> None:
        """One's own."""

    def normalise(self, advantages: Sequence[Tensor]) -> list[Tensor]:
        """Over one's own."""
        return [normalise(advantage) for advantage in advantages]

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """One's own."""
        return values

    def mean_lower(self, practice: "Practice") -> None:
        """One's own."""

    def agree(self, state: Any) -> Any:
        """One's own."""
        return state

    def enough(self, iteration: int, steps: int) -> Callable[[int], bool]:
        """Nobody waits."""
        return lambda taken: False

    def complete(self, iteration: int) -> None:
        """Nobody waits."""


class Practice:
    """Both agents with their optimisers and the multipliers of the soft constraints."""

    def __init__(self, upper: UpperAgent, lower: LowerAgent, config: HiPpoConfig, peers: Peers | None = None):
        self.upper, self.lower, self.config = upper, lower, config
        self.peers: Peers = peers or Alone()
        # Without a hierarchy there is one agent, and PPO teaches all of it.
        self.taught = [*upper.parameters(), *([] if config.parts.hierarchy else lower.parameters())]
        self.optimiser = torch.optim.Adam(self.taught, lr=config.ppo.lr, eps=1e-5, fused=True)
        self.lower_optimiser = torch.optim.Adam(lower.parameters(), lr=config.lower.lr, eps=1e-5, fused=True)
        penalties = config.penalties
        self.multipliers = Multipliers(penalties.limits, penalties.multiplier_lr, penalties.multiplier_max)

    @property
    def penalties(self) -> NDArray[np.float64]:
        """Multipliers in the order of `CONSTRAINTS`."""
        return np.array([self.multipliers.values[name] for name in CONSTRAINTS])

    # -- the lower agents, which a rollout changes

    def lower_weights(self) -> Weights:
        """A copy of the lower agents with their optimiser."""
        state = self.lower_optimiser.state_dict()["state"]
        moments = {f"{i}.{name}": value.clone() for i, one in state.items() for name, value in one.items()}
        return {name: t.clone() for name, t in self.lower.state_dict().items()} | {"moments": moments}

    def take_lower(self, weights: Weights) -> None:
        """Go on from such a copy."""
        names = self.lower.state_dict().keys()
        self.lower.load_state_dict({name: weights[name] for name in names})
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in weights["moments"].items():
            i, name = key.split(".")
            state.setdefault(int(i), {})[name] = value.clone()
        whole = self.lower_optimiser.state_dict()
        self.lower_optimiser.load_state_dict({"state": state, "param_groups": whole["param_groups"]})

    def learn_lower(
        self, problem: Problem, reward: NDArray[np.float64], seen: Observation, given: Actions
    ) -> float:
        """One policy-gradient step on the shares just placed; each is an episode of one step.

        `reward` is the problem's table (C, Z, Q). Returns the mean reward.
        """
        row, step = (given.domain >= 0).nonzero(as_tuple=True)
        z = problem.class_of[given.domain[row, step].numpy()]
        table = reward[given.knob[row].numpy(), z, given.choice[row, step].numpy()]
        if self.config.parts.hierarchy:
            answered, value = judge_lower(self.lower, problem, seen, given, row, step)
            worth = torch.from_numpy(table).to(value)
            error = worth - value
            objective = (error.detach() * answered.log_prob).mean() - 0.5 * error.pow(2).mean()
            total = -objective - self.config.ppo.entropy_coef * answered.entropy.mean()
            self.lower_optimiser.zero_grad(set_to_none=True)
            total.backward()
            torch.nn.utils.clip_grad_norm_(self.lower.parameters(), self.config.ppo.max_grad_norm)
            self.lower_optimiser.step()
        return float(table.mean())

    # -- learning from a warm start and from rollouts

    def follow(self, total: Tensor) -> None:
        """One step of both agents down the gradient of an imitation loss."""
        self.lower_optimiser.zero_grad(set_to_none=True)
        self.optimiser.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.taught, self.config.ppo.max_grad_norm)
        self.optimiser.step()
        if self.config.parts.hierarchy:
            self.lower_optimiser.step()

    def update(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> dict[str, float]:
        """PPO epochs over the rollouts; stops early when the policy has moved by the target KL."""
        ppo, sums, batches, epochs = self.config.ppo, np.zeros(5), 0, 0
        for _ in range(ppo.update_epochs):
            kl = []
            parts = self._minibatches(rollouts, rng)
            scaled = self.peers.normalise([rollout.advantage[index] for rollout, index in parts])
            for (rollout, index), advantage in zip(parts, scaled, strict=True):
                got = self._loss(rollout, index, advantage)
                self.optimiser.zero_grad(set_to_none=True)
                got.total.backward()
                self.peers.mean_gradients(self.taught)
                torch.nn.utils.clip_grad_norm_(self.taught, ppo.max_grad_norm)
                self.optimiser.step()
                kl.append(got.approx_kl.item())
                told = (got.policy, got.value, got.entropy, got.approx_kl, got.clip_fraction)
                sums += [one.item() for one in told]
                batches += 1
            epochs += 1
            if self.peers.mean({"kl": float(np.mean(kl))})["kl"] > ppo.target_kl:
                break
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
        return dict(zip(names, (sums / max(batches, 1)).tolist(), strict=True)) | {"epochs": float(epochs)}

    def _loss(self, rollout: Rollout, index: Tensor, advantage: Tensor) -> Loss:
        ppo, flat = self.config.ppo, not self.config.parts.hierarchy
        judged = judge(self.upper, self.lower if flat else None, rollout.case.take(index))
        return loss(
            log_prob=judged.log_prob + judged.lower_log_prob,
            old_log_prob=rollout.log_prob[index],
            advantage=advantage,
            value=judged.value,
            old_value=rollout.value[index],
            target=rollout.target[index],
            entropy=judged.entropy + judged.lower_entropy,
            clip_range=ppo.clip_range,
            value_clip=ppo.value_clip,
            value_coef=ppo.value_coef,
            entropy_coef=ppo.entropy_coef,
        )

    def _minibatches(
        self, rollouts: Sequence[Rollout], rng: np.random.Generator
    ) -> list[tuple[Rollout, Tensor]]:
        """Shuffled minibatches, each from one course, in random order.

        A rollout that was cut short has as many as it should have had: peers must take their steps together.
        """
        size, found = self.config.ppo.minibatch_size, []
        for rollout in rollouts:
            order = torch.from_numpy(rng.permutation(len(rollout.value)))
            whole = len(order) == rollout.planned
            parts = order.split(size) if whole else order.tensor_split(-(-rollout.planned // size))
            found += [(rollout, part) for part in parts]
        return [found[i] for i in rng.permutation(len(found))]
