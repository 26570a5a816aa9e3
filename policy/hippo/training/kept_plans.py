"""Rollouts in which a decision is judged by what its plan brings while it is kept for hours.

A plan is chosen once and kept, so a step of a bandit says more of it than an episode: the return of a
decision is the mean reward of the plan it leads to over periods spread over the whole past, the same periods
for all, so that no window's luck is in it. The pause of a move lengthens the time of those periods. The
baseline is the return of the likeliest answer in the same situation (self-critical training, Rennie et al.
2017): an answer gains only by being better than what the policy would do anyway.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from policy.hippo.agent.shortlist import keys
from policy.hippo.decoding import action_encoding
from policy.hippo.decoding.log_probability import teacher_forcing_batch
from policy.hippo.decoding.sampling import GREEDY, Actions, joined, sample
from policy.hippo.env.training_task import TrainingTask
from policy.hippo.env.vector_env import COMPONENTS, CONSTRAINTS, LOWEST_EFFICIENCY, BatchedTwins
from policy.hippo.tables.features import Situation
from policy.hippo.tables.observation import Observation, stack
from policy.hippo.tables.planning_tables import Codes
from policy.hippo.training.learner import PpoLearner, Rollout
from policy.hippo.training.rollout import REWARD_SCALE, offered_choices

Float = NDArray[np.float64]
Int = NDArray[np.int64]

MIXED = (0.6, 0.2, 0.2)
"""Any weights but those of speed alone: messages take direct links."""
LONGEST_PAUSE = 0.9
"""Most of the time kept that a pause takes; a move over a dead link has no end."""


@dataclass(frozen=True, eq=False)
class KeptRewards:
    """Mean components of the reward and values of the soft constraints of E decisions (E, 3)."""

    components: Float
    limited: Float

    def reward(self, weights: Float) -> Float:
        """Returns the reward under the weights (E, 3) of each."""
        found: Float = (weights * np.array([1.0, 1.0, -1.0]) * self.components).sum(1)
        return found


def kept_rewards(twins: BatchedTwins, judge: BatchedTwins, periods: Int, kept_s: float) -> KeptRewards:
    """Returns what the plans of `twins` bring over `periods`, kept for `kept_s` seconds with the pause of
    each; `judge` is another copy of the twins, and is left in another state."""
    each = np.empty((twins.size, 7))
    for relayed, weights in ((True, (1.0, 0.0, 0.0)), (False, MIXED)):
        some = np.flatnonzero(twins.relayed == relayed)
        if len(some):
            plans = twins.plan.take(some)
            _, first, which = np.unique(keys(plans), return_index=True, return_inverse=True)
            each[some] = _means(judge, plans.take(first), periods, weights)[which]
    paused = np.minimum(twins.pause_s / kept_s, LONGEST_PAUSE)
    efficiency, utilisation, cost = each[:, 0], each[:, 1], each[:, 2]
    slower = np.maximum(1.0 - (1.0 - efficiency) / (1.0 - paused), LOWEST_EFFICIENCY)
    ran = np.maximum(each[:, 6] * kept_s * (1.0 - paused), 1e-9)
    moved = twins.owed_usd / ran / twins.base_usd if twins.base_usd > 0 else np.zeros(twins.size)
    components = np.stack([slower, utilisation * (1.0 - paused), np.minimum(cost + moved, 3.0)], axis=1)
    return KeptRewards(components, np.column_stack([each[:, 3:5], paused]))


def _means(judge: BatchedTwins, plans: Codes, periods: Int, weights: tuple[float, float, float]) -> Float:
    """Means over the periods of components, constraints and iterations per second, (P, 7)."""
    count = len(plans)
    judge.begin(np.tile(periods, count), weights)
    step = judge.step(plans.take(np.repeat(np.arange(count), len(periods))), np.ones(judge.size, np.bool_))
    rate = step.iterations[:, None] / judge.period_s
    columns = np.concatenate([step.components, step.limited, rate], axis=1)
    mean: Float = columns.reshape(count, len(periods), 7).mean(axis=1)
    return mean


def collect_kept(learner: PpoLearner, task: TrainingTask, rounds: int, rng: np.random.Generator) -> Rollout:
    """Collects a decision of each twin, `rounds` times from random moments; the lower agents learn at every
    round."""
    config, kept = learner.config, learner.config.ppo.kept_periods
    twins, judge = task.twins(config), task.twins(config)
    periods = np.linspace(0, len(twins.trace) - 1, min(kept, len(twins.trace))).round().astype(np.int64)
    offered, kept_s = offered_choices(task, config), kept * twins.period_s
    seen, taken, columns, figures, lower = [], [], [], [], []
    running: Codes | None = None
    for _ in range(rounds):
        seed = int(rng.integers(2**62))
        observation = task.features.observe(_begin(twins, seed, running))
        uniform = rng.random((twins.size, 2 + 3 * task.problem.k))
        with torch.no_grad():
            state = learner.upper.encode(observation)
            sampled = sample(learner.upper, learner.lower, offered, observation, uniform, state)
            likeliest = sample(
                learner.upper, learner.lower, offered, observation, np.full_like(uniform, GREEDY), state
            )
            value = learner.upper.value(state).numpy().astype(np.float64)
        outcomes = []
        for actions in (sampled.actions, likeliest.actions):
            _begin(twins, seed, running)
            _decide(twins, task, actions)
            outcomes.append(kept_rewards(twins, judge, periods, kept_s))
        running = twins.plan
        weights = twins.twin_weights
        own, base = (
            REWARD_SCALE * (one.reward(weights) - one.limited @ learner.penalties) for one in outcomes
        )
        log_prob = sampled.log_prob + (0.0 if config.parts.hierarchy else sampled.lower_log_prob)
        columns.append(np.stack([np.asarray(log_prob, dtype=np.float64), value, own - base, own]))
        seen.append(observation)
        taken.append(sampled.actions)
        lower.append(learner.learn_lower(task.problem, task.lower_reward, observation, sampled.actions))
        figures.append(_figures(outcomes[0], weights, observation, sampled.actions))
    means = {name: float(np.mean([one[name] for one in figures])) for name in figures[0]}
    means["lower_reward"] = float(np.mean(lower))
    return _rollout(task, learner, seen, taken, np.concatenate(columns, axis=1), means)


def _begin(twins: BatchedTwins, seed: int, running: Codes | None) -> Situation:
    """Starts the twins as `seed` says; every other one that has a plan has the one of `running`, so that
    the network learns to keep its own plans, too."""
    twins.reset(np.random.default_rng(seed))
    if running is not None:
        own = twins.has_plan & (np.arange(twins.size) % 2 == 1)
        for array in ("knob", "count", "domain", "layers", "choice"):
            getattr(twins.plan, array)[own] = getattr(running, array)[own]
    return twins.situation()


def _decide(twins: BatchedTwins, task: TrainingTask, actions: Actions) -> None:
    """Changes the plans of the twins, with pauses and egress of the moves."""
    codes, go, _ = action_encoding.rows_to_plans(
        action_encoding.actions_to_rows(actions, task.problem.masks), task.problem.masks
    )
    twins.owed_usd += twins.migrate(codes, go | ~twins.has_plan)


def _figures(found: KeptRewards, weights: Float, seen: Observation, actions: Actions) -> dict[str, float]:
    """What the learning curve shows, as `policy.hippo.training.rollout.collect` has it."""
    named = dict(zip(COMPONENTS, found.components.mean(axis=0).tolist(), strict=True))
    limits = (f"limited_{name}" for name in CONSTRAINTS)
    named |= dict(zip(limits, found.limited.mean(axis=0).tolist(), strict=True))
    moves = float((actions.go * (seen.current_knob >= 0)).float().mean())
    return named | {"reward": float(found.reward(weights).mean()), "moves": moves}


def _rollout(
    task: TrainingTask,
    learner: PpoLearner,
    seen: list[Observation],
    taken: list[Actions],
    columns: Float,
    means: dict[str, float],
) -> Rollout:
    batch = teacher_forcing_batch(offered_choices(task, learner.config), stack(seen), joined(taken))
    log_prob, value, advantage, target = (torch.from_numpy(row).float() for row in columns)
    return Rollout(batch, log_prob, value, advantage, target, len(value), means)
