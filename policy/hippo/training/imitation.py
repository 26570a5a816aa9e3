"""Imitation learning: demonstrations for the warm start, and its loss.

Demonstrations are decisions of a teacher at random times of the training trace (with nothing placed, then
some periods later with its own plan running, so that holding is demonstrated, too), or decisions from logged
runs. Logged ones are weighted by exp(advantage / beta), at most 20 (advantage-weighted regression, Peng et
al. 2019).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ingest.core.progress import Progress
from ingest.core.units import to_ns
from policy.control.knobs import KnobTuner, default_knobs
from policy.core.protocol import Policy
from policy.hippo.decoding.log_probability import TeacherForcingBatch, evaluate_actions, teacher_forcing_batch
from policy.hippo.decoding.sampling import Actions, forced_actions, joined
from policy.hippo.env.practice_trace import PracticeTrace
from policy.hippo.env.training_task import TrainingTask
from policy.hippo.networks.hippo_config import HiPpoConfig, ImitationConfig
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import UpperAgent
from policy.hippo.tables.features import situation
from policy.hippo.tables.observation import Observation, stack
from policy.hippo.tables.planning_tables import PlanningTables
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.core.view import View

MOST_PERIODS_BETWEEN = 12
"""Most periods between two queries of a sequence."""
QUERIES = 3
"""Queries of a teacher in one sequence."""
LARGEST_WEIGHT = 20.0
"""Largest weight of a logged decision."""


@dataclass(frozen=True, slots=True, eq=False)
class LoggedDemonstration:
    """A decision from an event log, and its advantage."""

    view: View
    plan: Plan | None  # None: hold
    advantage: float  # tokens over the next decisions, relative to the static plan's


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """B observations with the demonstrated actions, on one cluster."""

    problem: PlanningTables
    observation: Observation
    actions: Actions
    weight: Tensor  # (B,)

    def __len__(self) -> int:
        return len(self.observation)


@dataclass(frozen=True, eq=False)
class DemonstrationSet:
    """All demonstrations on one cluster, as a batch."""

    batch: TeacherForcingBatch
    weight: Tensor  # (B,)


def query_teacher(
    task: TrainingTask,
    teacher: Policy,
    config: HiPpoConfig,
    count: int,
    progress: Progress,
    stop: Callable[[], bool],
) -> Demonstrations | None:
    """Returns about `count` decisions of `teacher`, fewer after `stop`; None without any that the masks
    allow."""
    setup = task.setup
    rng = generator(config.seed, f"lessons-{teacher.name}-{setup.scenario.name}-{setup.trace_digest}")
    found: list[tuple[Observation, Actions]] = []
    for _ in range(-(-count // QUERIES)):
        if stop():
            break
        found += _query_sequence(task, teacher, config, rng)
        progress.advance(min(QUERIES, count), f"demonstrations of {teacher.name}")
    return _demonstrations(task.problem, found, torch.ones(len(found)))


def logged_demonstrations(
    task: TrainingTask, decisions: Sequence[LoggedDemonstration], config: ImitationConfig
) -> Demonstrations | None:
    """Returns logged decisions on the task's cluster; those that the masks do not allow and those with other
    GPUs alive are left out. None without any.
    """
    found, weights, problem = [], [], task.problem
    objective = task.setup.scenario.weights.vector
    knobs = KnobTuner(task.context(objective, np.random.default_rng(0)))
    for one in decisions:
        view = knobs.planning_view(one.view)
        running = view.plan  # without routes and warm-up, which the network does not choose
        target = running if one.plan is None else default_knobs(problem.estimator.job, one.plan)
        codes = problem.encode(target) if target is not None else None
        if codes is None or tuple(one.view.free_gpus) != problem.free:
            continue
        held = problem.encode(running) is not None if running is not None else False
        seen = situation(task.features, view, objective, held)
        actions = forced_actions(problem.masks, codes, np.array([target != running]))
        found.append((task.features.observe(seen), actions))
        weight = float(np.exp(one.advantage / config.beta)) if config.beta else 1.0
        weights.append(min(weight, LARGEST_WEIGHT))
    return _demonstrations(problem, found, torch.tensor(weights))


def _demonstrations(
    problem: PlanningTables, found: Sequence[tuple[Observation, Actions]], weight: Tensor
) -> Demonstrations | None:
    if not found:
        return None
    observations, actions = zip(*found, strict=True)
    return Demonstrations(problem, stack(list(observations)), joined(list(actions)), weight)


def _query_sequence(
    task: TrainingTask, teacher: Policy, config: HiPpoConfig, rng: np.random.Generator
) -> list[tuple[Observation, Actions]]:
    period_s, trace, problem = task.setup.scenario.control.period_s, task.training.direct, task.problem
    weights = _weights(config, task, rng)
    teacher.reset(task.context(weights, rng))
    index, plan, since, found = int(rng.integers(len(trace))), None, 0.0, []
    end = int(trace.segment_end[index])
    for _ in range(QUERIES):
        if index >= end:
            break
        decision = teacher.decide(_view(task, trace, index, plan, since))
        # Routes and warm-up are not the network's choice.
        target = plan if decision.plan is None else default_knobs(problem.estimator.job, decision.plan)
        codes = problem.encode(target) if target is not None else None
        if codes is None:
            break
        go = np.array([target != plan or not config.parts.hold])
        view = _view(task, task.training.for_weights(weights), index, plan, since)
        seen = situation(task.features, view, weights, plan is not None and config.parts.hold)
        found.append((task.features.observe(seen), forced_actions(problem.masks, codes, go)))
        jump = int(rng.integers(1, MOST_PERIODS_BETWEEN + 1))
        since = (0.0 if target != plan else since) + jump * period_s
        plan, index = target, index + jump
    return found


def _weights(config: HiPpoConfig, task: TrainingTask, rng: np.random.Generator) -> tuple[float, float, float]:
    """The scenario's weights half of the time, else drawn as in training."""
    own = config.rollout.weights or task.setup.scenario.weights.vector
    if config.rollout.weights is not None or rng.random() < 0.5:
        return own
    w = rng.dirichlet(config.rollout.dirichlet)
    return float(w[0]), float(w[1]), float(w[2])


def _view(task: TrainingTask, trace: PracticeTrace, index: int, plan: Plan | None, since_s: float) -> View:
    problem = task.problem
    return View(
        now_ns=to_ns(index * task.setup.scenario.control.period_s),
        trigger="start" if plan is None else "period",
        forecast=trace.forecast(index),
        plan=plan,
        free_gpus=problem.free,
        slowdown=np.ones(problem.k),
        since_move_s=since_s,
        tokens=0.0,
    )


def imitation_loss(
    upper: UpperAgent, lower: LowerAgent, demonstrations: DemonstrationSet, index: Tensor, entropy_coef: float
) -> Tensor:
    """Returns the weighted negative log-likelihood of the actions `index` under both agents, less an entropy
    bonus.

    The bonus keeps other plans than the teacher's possible, so that PPO can still change the policy.
    """
    evaluation = evaluate_actions(upper, lower, demonstrations.batch.take(index))
    weight = demonstrations.weight[index]
    likelihood = (weight * (evaluation.log_prob + evaluation.lower_log_prob)).sum() / weight.sum()
    return -likelihood - entropy_coef * (evaluation.entropy + evaluation.lower_entropy).mean()


def merge_demonstrations(found: Sequence[Demonstrations]) -> list[DemonstrationSet]:
    """Returns demonstrations merged by cluster."""
    by_problem: dict[int, list[Demonstrations]] = {}
    for demonstration in found:
        by_problem.setdefault(id(demonstration.problem), []).append(demonstration)
    return [_merge(parts) for parts in by_problem.values()]


def _merge(parts: Sequence[Demonstrations]) -> DemonstrationSet:
    observation, actions = stack([one.observation for one in parts]), joined([one.actions for one in parts])
    batch = teacher_forcing_batch(parts[0].problem, observation, actions)
    return DemonstrationSet(batch, torch.cat([one.weight for one in parts]))


def batch_indices(demonstrations: DemonstrationSet, size: int, rng: np.random.Generator) -> Tensor:
    """Returns the indices of one random batch."""
    return torch.from_numpy(rng.integers(0, len(demonstrations.batch), min(size, len(demonstrations.batch))))
