"""Learning of both agents: the upper one by PPO over rollouts, the lower ones at every step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policy.hippo.decoding.log_probability import TeacherForcingBatch, evaluate_actions
from policy.hippo.decoding.sampling import Actions, evaluate_lower
from policy.hippo.env.vector_env import CONSTRAINTS
from policy.hippo.networks.hippo_config import HiPpoConfig
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import UpperAgent
from policy.hippo.tables.observation import Observation
from policy.hippo.tables.planning_tables import PlanningTables
from policy.hippo.training.ppo_loss import Loss, Multipliers, loss, normalise

Weights = dict[str, Any]
"""Tensors by name, optimiser state included."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """B decisions of one task, in the order in which they were taken."""

    batch: TeacherForcingBatch
    log_prob: Tensor  # (B,)
    value: Tensor
    advantage: Tensor
    target: Tensor
    planned: int  # decisions requested; B is smaller after an early stop
    metrics: dict[str, float]


class LearnerGroup(Protocol):
    """Learners with equal copies of the agents: `policy.hippo.training.gradient_sharing.GlooLearnerGroup`, or
    `SingleLearner`."""

    rank: int
    size: int

    def mean_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Replaces the gradients of the parameters by their mean over all learners."""
        ...

    def normalise(self, advantages: Sequence[Tensor]) -> list[Tensor]:
        """Returns advantages of minibatches normalised to mean 0 and sd 1, each over all learners."""
        ...

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Returns the mean of metrics over all learners."""
        ...

    def average_lower(self, learner: "PpoLearner") -> None:
        """Averages the lower agents over all learners."""
        ...

    def broadcast(self, state: Any) -> Any:
        """Returns the first learner's `state`."""
        ...

    def early_stop(self, iteration: int, steps: int) -> Callable[[int], bool]:
        """Returns the rule that stops a rollout of `steps` early, by the steps taken."""
        ...

    def mark_complete(self, iteration: int) -> None:
        """Marks the rollouts of the iteration as complete."""
        ...


class SingleLearner:
    """A group of one learner."""

    rank, size = 0, 1

    def mean_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Does nothing."""

    def normalise(self, advantages: Sequence[Tensor]) -> list[Tensor]:
        """Returns each minibatch normalised."""
        return [normalise(advantage) for advantage in advantages]

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Returns `values`."""
        return values

    def average_lower(self, learner: "PpoLearner") -> None:
        """Does nothing."""

    def broadcast(self, state: Any) -> Any:
        """Returns `state`."""
        return state

    def early_stop(self, iteration: int, steps: int) -> Callable[[int], bool]:
        """Returns a rule that never stops."""
        return lambda taken: False

    def mark_complete(self, iteration: int) -> None:
        """Does nothing."""


class PpoLearner:
    """Both agents with their optimisers and the multipliers of the soft constraints."""

    def __init__(
        self, upper: UpperAgent, lower: LowerAgent, config: HiPpoConfig, group: LearnerGroup | None = None
    ):
        self.upper, self.lower, self.config = upper, lower, config
        self.group: LearnerGroup = group or SingleLearner()
        # Without the hierarchy PPO trains both levels as one agent.
        self.trained_parameters = [
            *upper.parameters(),
            *([] if config.parts.hierarchy else lower.parameters()),
        ]
        self.optimiser = torch.optim.Adam(self.trained_parameters, lr=config.ppo.lr, eps=1e-5, fused=True)
        self.lower_optimiser = torch.optim.Adam(lower.parameters(), lr=config.lower.lr, eps=1e-5, fused=True)
        penalties = config.penalties
        self.multipliers = Multipliers(penalties.limits, penalties.multiplier_lr, penalties.multiplier_max)

    @property
    def penalties(self) -> NDArray[np.float64]:
        """Multipliers in the order of `CONSTRAINTS`."""
        return np.array([self.multipliers.values[name] for name in CONSTRAINTS])

    # -- lower agents, which rollouts train

    def lower_weights(self) -> Weights:
        """Returns a copy of the lower agents with their optimiser."""
        state = self.lower_optimiser.state_dict()["state"]
        moments = {f"{i}.{name}": value.clone() for i, one in state.items() for name, value in one.items()}
        return {name: t.clone() for name, t in self.lower.state_dict().items()} | {"moments": moments}

    def load_lower(self, weights: Weights) -> None:
        """Loads a copy that `lower_weights` returned."""
        names = self.lower.state_dict().keys()
        self.lower.load_state_dict({name: weights[name] for name in names})
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in weights["moments"].items():
            i, name = key.split(".")
            state.setdefault(int(i), {})[name] = value.clone()
        whole = self.lower_optimiser.state_dict()
        self.lower_optimiser.load_state_dict({"state": state, "param_groups": whole["param_groups"]})

    def learn_lower(
        self, problem: PlanningTables, reward: NDArray[np.float64], observation: Observation, actions: Actions
    ) -> float:
        """Makes a policy-gradient step on the shares just placed, each an episode of one step.

        `reward` is the task's table (C, Z, Q). Returns the mean reward.
        """
        row, step = (actions.domain >= 0).nonzero(as_tuple=True)
        z = problem.class_of[actions.domain[row, step].numpy()]
        table = reward[actions.knob[row].numpy(), z, actions.choice[row, step].numpy()]
        if self.config.parts.hierarchy:
            evaluation, value = evaluate_lower(self.lower, problem, observation, actions, row, step)
            target = torch.from_numpy(table).to(value)
            error = target - value
            objective = (error.detach() * evaluation.log_prob).mean() - 0.5 * error.pow(2).mean()
            total = -objective - self.config.ppo.entropy_coef * evaluation.entropy.mean()
            self.lower_optimiser.zero_grad(set_to_none=True)
            total.backward()
            torch.nn.utils.clip_grad_norm_(self.lower.parameters(), self.config.ppo.max_grad_norm)
            self.lower_optimiser.step()
        return float(table.mean())

    # -- imitation and PPO

    def imitate(self, total: Tensor) -> None:
        """Makes one step of both agents on an imitation loss."""
        self.lower_optimiser.zero_grad(set_to_none=True)
        self.optimiser.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.trained_parameters, self.config.ppo.max_grad_norm)
        self.optimiser.step()
        if self.config.parts.hierarchy:
            self.lower_optimiser.step()

    def update(self, rollouts: Sequence[Rollout], rng: np.random.Generator) -> dict[str, float]:
        """Makes PPO epochs over the rollouts, until the target KL is exceeded; returns metrics."""
        ppo, sums, batches, epochs = self.config.ppo, np.zeros(5), 0, 0
        for _ in range(ppo.update_epochs):
            kl = []
            parts = self._minibatches(rollouts, rng)
            scaled = self.group.normalise([rollout.advantage[index] for rollout, index in parts])
            for (rollout, index), advantage in zip(parts, scaled, strict=True):
                result = self._loss(rollout, index, advantage)
                self.optimiser.zero_grad(set_to_none=True)
                result.total.backward()
                self.group.mean_gradients(self.trained_parameters)
                torch.nn.utils.clip_grad_norm_(self.trained_parameters, ppo.max_grad_norm)
                self.optimiser.step()
                kl.append(result.approx_kl.item())
                values = (result.policy, result.value, result.entropy, result.approx_kl, result.clip_fraction)
                sums += [one.item() for one in values]
                batches += 1
            epochs += 1
            if self.group.mean({"kl": float(np.mean(kl))})["kl"] > ppo.target_kl:
                break
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
        return dict(zip(names, (sums / max(batches, 1)).tolist(), strict=True)) | {"epochs": float(epochs)}

    def _loss(self, rollout: Rollout, index: Tensor, advantage: Tensor) -> Loss:
        ppo, flat = self.config.ppo, not self.config.parts.hierarchy
        evaluation = evaluate_actions(self.upper, self.lower if flat else None, rollout.batch.take(index))
        entropy = evaluation.entropy + evaluation.lower_entropy
        return loss(
            log_prob=evaluation.log_prob + evaluation.lower_log_prob,
            old_log_prob=rollout.log_prob[index],
            advantage=advantage,
            value=evaluation.value,
            old_value=rollout.value[index],
            target=rollout.target[index],
            entropy=entropy if ppo.entropy_coef else entropy.detach(),  # else its gradient is 0
            clip_range=ppo.clip_range,
            value_clip=ppo.value_clip,
            value_coef=ppo.value_coef,
            entropy_coef=ppo.entropy_coef,
        )

    def _minibatches(
        self, rollouts: Sequence[Rollout], rng: np.random.Generator
    ) -> list[tuple[Rollout, Tensor]]:
        """Returns shuffled minibatches, each of one task, in random order.

        A rollout stopped early has as many as requested, since learners of a group step together.
        """
        size, found = self.config.ppo.minibatch_size, []
        for rollout in rollouts:
            order = torch.from_numpy(rng.permutation(len(rollout.value)))
            whole = len(order) == rollout.planned
            parts = order.split(size) if whole else order.tensor_split(-(-rollout.planned // size))
            found += [(rollout, part) for part in parts]
        return [found[i] for i in rng.permutation(len(found))]
