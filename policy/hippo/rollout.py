"""Practice in the twins: collect a rollout (the lower agents learn at every step of it), update the upper
agent after.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policy.hippo.config import HiPpoConfig
from policy.hippo.course import Course
from policy.hippo.decode import GREEDY, Actions, codes_of, joined, judge, judge_lower, sample
from policy.hippo.env import CONSTRAINTS
from policy.hippo.gae import advantages
from policy.hippo.lower import LowerAgent
from policy.hippo.observation import Observation, stack
from policy.hippo.ppo import Loss, Multipliers, loss, normalise
from policy.hippo.problem import Problem
from policy.hippo.upper import Encoded, UpperAgent

Float = NDArray[np.float64]

REWARD_SCALE = 0.1
"""Keeps discounted sums of rewards near 1, where clipping the value by 0.2 is a sensible step."""


@dataclass(frozen=True, eq=False)
class Rollout:
    """B = T x E decisions of one course, flattened."""

    problem: Problem
    observation: Observation
    actions: Actions
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    reward: float
    violations: dict[str, float]
    components: Float  # (3,) mean R_eff, R_util, R_cost
    moves: float  # share of decisions that moved a running plan
    lower: float  # mean reward of the lower agents


class Practice:
    """Both agents with their optimisers and the multipliers of the soft constraints."""

    def __init__(self, upper: UpperAgent, lower: LowerAgent, config: HiPpoConfig):
        self.upper, self.lower, self.config = upper, lower, config
        self.optimiser = torch.optim.Adam(upper.parameters(), lr=config.ppo.lr, eps=1e-5)
        self.lower_optimiser = torch.optim.Adam(lower.parameters(), lr=config.lower.lr, eps=1e-5)
        limits = dict.fromkeys(CONSTRAINTS, 0.0) | {"interruption": config.penalties.interruption_limit}
        self.multipliers = Multipliers(
            limits, config.penalties.multiplier_lr, config.penalties.multiplier_max
        )

    # -- collecting

    def collect(self, course: Course, steps: int, rng: np.random.Generator) -> Rollout:
        """`steps` decisions in each twin of the course, from fresh starts."""
        twins, k = course.twins(self.config), course.problem.k
        seen = twins.reset(rng)
        observation = course.features.observe(seen)
        state = self._encoded(observation)
        observations, actions, records = [], [], []
        lower_rewards = []
        mu = np.array([self.multipliers.values[name] for name in CONSTRAINTS])
        for _ in range(steps):
            uniform = rng.random((twins.size, 2 + 3 * k))
            sampled = sample(self.upper, self.lower, course.problem, observation, uniform, state)
            action, value = sampled.actions, self._value(state)
            step = twins.step(codes_of(action, k), action.go.numpy() == 1)
            later = course.features.observe(step.after)
            state = self._encoded(later)
            after = self._value(state)
            lower_rewards.append(self._learn_lower(course, observation, action))
            reward = REWARD_SCALE * (step.reward - step.violations @ mu)
            records.append(
                (
                    reward,
                    value,
                    after,
                    step.truncated,
                    sampled.log_prob,
                    step.reward,
                    step.violations,
                    step.components,
                    action.go.numpy() * seen.has_plan,
                )
            )
            observations.append(observation)
            actions.append(action)
            seen, observation = step.after, later
            if step.truncated.any():
                seen = twins.reset(rng, step.truncated)
                observation = course.features.observe(seen)
                state = self._encoded(observation)
        return self._rollout(course.problem, observations, actions, records, float(np.mean(lower_rewards)))

    def _encoded(self, observation: Observation) -> Encoded:
        with torch.no_grad():  # the upper agent does not learn until the rollout is over
            return self.upper.encode(observation)

    def _value(self, state: Encoded) -> NDArray[np.float32]:
        with torch.no_grad():
            return np.asarray(self.upper.value(state).numpy())

    def _rollout(
        self,
        problem: Problem,
        observations: list[Observation],
        actions: list[Actions],
        records: Sequence[tuple[NDArray[Any], ...]],
        lower: float,
    ) -> Rollout:
        columns = [np.stack(column).astype(np.float64) for column in zip(*records, strict=True)]
        reward, value, after, truncated, log_prob, raw, violations, components, moves = columns
        cut = truncated > 0
        cut[-1] = True  # the rollout ends here: nothing may leak from the next one
        advantage, target = advantages(
            reward,
            value,
            after,
            np.zeros_like(cut),
            cut,
            gamma=self.config.ppo.gamma,
            lam=self.config.ppo.gae_lambda,
        )
        flat = [torch.from_numpy(a.reshape(-1)).float() for a in (log_prob, value, advantage, target)]
        means = dict(zip(CONSTRAINTS, violations.mean((0, 1)).tolist(), strict=True))
        return Rollout(
            problem,
            stack(observations),
            joined(actions),
            flat[0],
            flat[1],
            flat[2],
            flat[3],
            float(raw.mean()),
            means,
            components.mean((0, 1)),
            float(moves.mean()),
            lower,
        )

    def _learn_lower(self, course: Course, observation: Observation, action: Actions) -> float:
        """One policy-gradient step on the shares just placed; each is an episode of one step."""
        row, step = (action.domain >= 0).nonzero(as_tuple=True)
        answered, value = judge_lower(self.lower, course.problem, observation, action, row, step)
        z = course.problem.class_of[action.domain[row, step].numpy()]
        table = course.lower_reward[action.knob[row].numpy(), z, action.choice[row, step].numpy()]
        reward = torch.from_numpy(table).to(value)
        error = reward - value
        objective = (error.detach() * answered.log_prob).mean() - 0.5 * error.pow(2).mean()
        total = -objective - self.config.ppo.entropy_coef * answered.entropy.mean()
        self.step(self.lower_optimiser, total, self.lower)
        return float(reward.mean())

    def step(self, optimiser: torch.optim.Optimizer, total: Tensor, agent: torch.nn.Module) -> None:
        """One step of gradient descent on `total`, the gradient of `agent` clipped."""
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(agent.parameters(), self.config.ppo.max_grad_norm)
        optimiser.step()

    # -- learning

    def update(self, rollouts: list[Rollout], rng: np.random.Generator) -> dict[str, float]:
        """PPO epochs over the rollouts; stops early when the policy has moved by the target KL."""
        ppo, sums, batches, epochs = self.config.ppo, np.zeros(5), 0, 0
        for _ in range(ppo.update_epochs):
            kl = []
            for rollout, index in self._minibatches(rollouts, rng):
                got = self._minibatch(rollout, index)
                self.step(self.optimiser, got.total, self.upper)
                kl.append(got.approx_kl.item())
                parts = (got.policy, got.value, got.entropy, got.approx_kl, got.clip_fraction)
                sums += [part.item() for part in parts]
                batches += 1
            epochs += 1
            if np.mean(kl) > ppo.target_kl:
                break
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
        return dict(zip(names, (sums / max(batches, 1)).tolist(), strict=True)) | {"epochs": float(epochs)}

    def _minibatch(self, rollout: Rollout, index: Tensor) -> Loss:
        ppo = self.config.ppo
        judged = judge(
            self.upper,
            self.lower,
            rollout.problem,
            rollout.observation.take(index),
            rollout.actions.take(index),
        )
        return loss(
            log_prob=judged.log_prob,
            old_log_prob=rollout.log_prob[index],
            advantage=normalise(rollout.advantage[index]),
            value=judged.value,
            old_value=rollout.value[index],
            target=rollout.target[index],
            entropy=judged.entropy,
            clip_range=ppo.clip_range,
            value_clip=ppo.value_clip,
            value_coef=ppo.value_coef,
            entropy_coef=ppo.entropy_coef,
        )

    def _minibatches(self, rollouts: list[Rollout], rng: np.random.Generator) -> list[tuple[Rollout, Tensor]]:
        """Shuffled minibatches, each from one course, in random order."""
        size = self.config.ppo.minibatch_size
        found = []
        for rollout in rollouts:
            order = torch.from_numpy(rng.permutation(len(rollout.value)))
            found += [(rollout, part) for part in order.split(size)]
        return [found[i] for i in rng.permutation(len(found))]


def score(upper: UpperAgent, lower: LowerAgent, course: Course, config: HiPpoConfig) -> dict[str, float]:
    """Mean reward of the network's own greedy answers on the validation footage, all of it in one pass.

    The stretch is cut into as many episodes as there are twins; every one starts with nothing placed.
    """
    twins = course.twins(config, validate=True)
    film = twins.footage
    count = max(1, min(twins.size, len(film) // 8))
    length = len(film) // count
    twins.size = count
    twins.reset(np.random.default_rng(0))
    twins.at[:] = np.arange(count) * length
    twins.has_plan[:] = False
    twins.w[:] = twins.weights
    total, moves, parts = 0.0, 0.0, np.zeros(3)
    seen = twins.situation()
    uniform = np.full((count, 2 + 3 * course.problem.k), GREEDY)
    for _ in range(length):
        action = sample(upper, lower, course.problem, course.features.observe(seen), uniform).actions
        step = twins.step(codes_of(action, course.problem.k), action.go.numpy() == 1)
        moves += float((action.go.numpy() * seen.has_plan).mean())
        total, parts, seen = total + float(step.reward.mean()), parts + step.components.mean(0), step.after
    names = ("efficiency", "utilisation", "cost")
    means = dict(zip(names, (parts / length).tolist(), strict=True))
    return {"score": total / length, "moves": moves / length} | means
