"""Warm start: follow a planner's decisions before learning from reward.

The teacher (by default `mpc`) is asked at random times of the practice footage: first with nothing placed,
then again a little later with its own plan running, so that holding is among its lessons.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ingest.progress import Progress
from ingest.units import to_ns
from policy.hippo.config import HiPpoConfig
from policy.hippo.course import Course
from policy.hippo.decode import Actions, joined, judge, replayed
from policy.hippo.features import situation
from policy.hippo.lower import LowerAgent
from policy.hippo.observation import Observation, stack
from policy.hippo.problem import Problem
from policy.hippo.upper import UpperAgent
from policy.protocol import Context, Policy
from twin.plan import Plan
from twin.seeds import generator
from twin.view import Forecast, View

LATER = 12
"""A second question comes 1 to this many periods after the first."""
QUESTIONS = 3
"""Questions in a row to one teacher."""


@dataclass(frozen=True, eq=False)
class Lessons:
    """What the teacher saw and answered, B of them, on one cluster."""

    problem: Problem
    observation: Observation
    actions: Actions

    def __len__(self) -> int:
        return len(self.observation)


def lessons(
    course: Course,
    teacher: Policy,
    config: HiPpoConfig,
    count: int,
    progress: Progress,
    stop: Callable[[], bool],
) -> Lessons | None:
    """About `count` decisions of `teacher`, fewer after `stop`; None where it chose nothing that the masks
    offer.
    """
    rng = generator(
        config.seed, f"lessons-{teacher.name}-{course.setup.scenario.name}-{course.setup.trace_digest}"
    )
    observations: list[Observation] = []
    actions: list[Actions] = []
    for _ in range(-(-count // QUESTIONS)):
        if stop():
            break
        for observation, action in _conversation(course, teacher, config, rng):
            observations.append(observation)
            actions.append(action)
        progress.advance(min(QUESTIONS, count), f"asking {teacher.name}")
    return Lessons(course.problem, stack(observations), joined(actions)) if observations else None


def _conversation(
    course: Course, teacher: Policy, config: HiPpoConfig, rng: np.random.Generator
) -> list[tuple[Observation, Actions]]:
    control, film, problem = course.setup.scenario.control, course.practice, course.problem
    weights = _weights(config, course, rng)
    context = Context(problem.estimator, control.period_s, course.features.restart_s, weights, rng)
    teacher.reset(context)
    at, plan, since, found = int(rng.integers(len(film))), None, 0.0, []
    end = int(film.segment_end[at])
    for _ in range(QUESTIONS):
        if at >= end:
            break
        view = _view(course, at, plan, since)
        decision = teacher.decide(view)
        target = decision.plan or plan
        codes = problem.encode(target) if target is not None else None
        if codes is None:
            break
        go = np.array([decision.plan is not None])
        seen = situation(problem, view, weights, plan is not None)
        found.append((course.features.observe(seen), replayed(problem.masks, codes, go)))
        jump = int(rng.integers(1, LATER + 1))
        since = (0.0 if go[0] else since) + jump * control.period_s
        plan, at = target, at + jump
    return found


def _weights(config: HiPpoConfig, course: Course, rng: np.random.Generator) -> tuple[float, float, float]:
    """The scenario's weights half of the time, else drawn as in practice."""
    own = config.rollout.weights or course.setup.scenario.weights.vector
    if config.rollout.weights is not None or rng.random() < 0.5:
        return own
    w = rng.dirichlet(config.rollout.dirichlet)
    return float(w[0]), float(w[1]), float(w[2])


def _view(course: Course, at: int, plan: Plan | None, since_s: float) -> View:
    film, problem = course.practice, course.problem
    return View(
        now_ns=to_ns(at * course.setup.scenario.control.period_s),
        trigger="start" if plan is None else "period",
        forecast=Forecast(film.horizons_s, film.bandwidth_bps[at], film.sd_log[at], film.latency_s[at]),
        plan=plan,
        free_gpus=problem.free,
        slowdown=np.ones(problem.k),
        since_move_s=since_s,
        tokens=0.0,
    )


def batch_loss(
    upper: UpperAgent, lower: LowerAgent, lesson: Lessons, index: Tensor, entropy_coef: float
) -> Tensor:
    """Mean negative log-likelihood of the teacher's answers `index` under both agents, less an entropy bonus.

    The bonus keeps plans apart from the teacher's possible, so that reward can still change the policy.
    """
    observation, actions = lesson.observation.take(index), lesson.actions.take(index)
    judged = judge(upper, lower, lesson.problem, observation, actions)
    likelihood = (judged.log_prob + judged.lower_log_prob.sum(1)).mean()
    return -likelihood - entropy_coef * (judged.entropy + judged.lower_entropy.sum(1)).mean()


def taught(material: Sequence[Lessons]) -> list[Lessons]:
    """Lessons of equal shape on one problem joined, the rest as they are."""
    by_problem: dict[int, list[Lessons]] = {}
    for lesson in material:
        by_problem.setdefault(id(lesson.problem), []).append(lesson)
    return [
        Lessons(
            some[0].problem, stack([one.observation for one in some]), joined([one.actions for one in some])
        )
        for some in by_problem.values()
    ]


def draw(lesson: Lessons, size: int, rng: np.random.Generator) -> Tensor:
    """Indices of one batch."""
    return torch.from_numpy(rng.integers(0, len(lesson), min(size, len(lesson))))
