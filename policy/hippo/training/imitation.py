"""Warm start: follow decisions that were already made, before learning from reward.

They come from a teacher that is asked at random times of the practice footage (first with nothing placed,
then again a little later with its own plan running, so that holding is among its lessons), or from the logs
of runs. What was logged can be weighted by how well it turned out: exp(advantage / beta), at most 20
(advantage-weighted regression, Peng et al. 2019).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ingest.core.progress import Progress
from ingest.core.units import to_ns
from policy.hippo.networks.hippo_config import HiPpoConfig, ImitationConfig
from policy.hippo.env.training_task import Course
from policy.hippo.decoding.sampling import Actions, joined, replayed
from policy.hippo.tables.features import situation
from policy.hippo.env.practice_trace import Footage
from policy.hippo.decoding.log_probability import Case, case, judge
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.observation import Observation, stack
from policy.hippo.tables.planning_tables import Problem
from policy.hippo.networks.upper_agent import UpperAgent
from policy.control.knobs import Knobs, plain
from policy.core.protocol import Policy
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.core.view import Forecast, View

LATER = 12
"""A second question comes 1 to this many periods after the first."""
QUESTIONS = 3
"""Questions in a row to one teacher."""
HEAVIEST = 20.0
"""Largest weight of a decision."""


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    """A decision from an event log, and how much better than usual its consequences were."""

    view: View
    plan: Plan | None  # None: hold
    advantage: float  # relative to what the static plan would have trained meanwhile


@dataclass(frozen=True, eq=False)
class Lessons:
    """What was seen and answered, B of them, on one cluster."""

    problem: Problem
    observation: Observation
    actions: Actions
    weight: Tensor  # (B,)

    def __len__(self) -> int:
        return len(self.observation)


@dataclass(frozen=True, eq=False)
class Material:
    """All lessons on one cluster, ready to be learned."""

    case: Case
    weight: Tensor  # (B,)


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
    found: list[tuple[Observation, Actions]] = []
    for _ in range(-(-count // QUESTIONS)):
        if stop():
            break
        found += _conversation(course, teacher, config, rng)
        progress.advance(min(QUESTIONS, count), f"asking {teacher.name}")
    return _lessons(course.problem, found, torch.ones(len(found)))


def logged_lessons(course: Course, decisions: Sequence[Logged], config: ImitationConfig) -> Lessons | None:
    """What decisions of logged runs on the course's cluster teach; those that the masks do not offer are left
    out, as are those on another set of living GPUs.
    """
    found, weights, problem = [], [], course.problem
    objective = course.setup.scenario.weights.vector
    knobs = Knobs(course.context(objective, np.random.default_rng(0)))
    for one in decisions:
        view = knobs.view(one.view)
        running = view.plan  # knobs are not the network's
        target = running if one.plan is None else plain(one.plan)
        codes = problem.encode(target) if target is not None else None
        if codes is None or tuple(one.view.free_gpus) != problem.free:
            continue
        held = problem.encode(running) is not None if running is not None else False
        seen = situation(problem, view, objective, held)
        answer = replayed(problem.masks, codes, np.array([target != running]))
        found.append((course.features.observe(seen), answer))
        weights.append(min(float(np.exp(one.advantage / config.beta)), HEAVIEST) if config.beta else 1.0)
    return _lessons(problem, found, torch.tensor(weights))


def _lessons(
    problem: Problem, found: Sequence[tuple[Observation, Actions]], weight: Tensor
) -> Lessons | None:
    if not found:
        return None
    return Lessons(problem, stack([seen for seen, _ in found]), joined([given for _, given in found]), weight)


def _conversation(
    course: Course, teacher: Policy, config: HiPpoConfig, rng: np.random.Generator
) -> list[tuple[Observation, Actions]]:
    period_s, film, problem = course.setup.scenario.control.period_s, course.practice.direct, course.problem
    weights = _weights(config, course, rng)
    teacher.reset(course.context(weights, rng))
    at, plan, since, found = int(rng.integers(len(film))), None, 0.0, []
    end = int(film.segment_end[at])
    for _ in range(QUESTIONS):
        if at >= end:
            break
        decision = teacher.decide(_view(course, film, at, plan, since))
        target = plan if decision.plan is None else plain(decision.plan)  # knobs are not the network's
        codes = problem.encode(target) if target is not None else None
        if codes is None:
            break
        go = np.array([target != plan or not config.parts.hold])
        view = _view(course, course.practice.seen(weights), at, plan, since)
        seen = situation(problem, view, weights, plan is not None and config.parts.hold)
        found.append((course.features.observe(seen), replayed(problem.masks, codes, go)))
        jump = int(rng.integers(1, LATER + 1))
        since = (0.0 if target != plan else since) + jump * period_s
        plan, at = target, at + jump
    return found


def _weights(config: HiPpoConfig, course: Course, rng: np.random.Generator) -> tuple[float, float, float]:
    """The scenario's weights half of the time, else drawn as in practice."""
    own = config.rollout.weights or course.setup.scenario.weights.vector
    if config.rollout.weights is not None or rng.random() < 0.5:
        return own
    w = rng.dirichlet(config.rollout.dirichlet)
    return float(w[0]), float(w[1]), float(w[2])


def _view(course: Course, film: Footage, at: int, plan: Plan | None, since_s: float) -> View:
    problem = course.problem
    return View(
        now_ns=to_ns(at * course.setup.scenario.control.period_s),
        trigger="start" if plan is None else "period",
        forecast=Forecast(
            film.horizons_s, film.bandwidth_bps[at], film.sd_log[at], film.latency_s[at], film.widths[at]
        ),
        plan=plan,
        free_gpus=problem.free,
        slowdown=np.ones(problem.k),
        since_move_s=since_s,
        tokens=0.0,
    )


def batch_loss(
    upper: UpperAgent, lower: LowerAgent, material: Material, index: Tensor, entropy_coef: float
) -> Tensor:
    """Mean negative log-likelihood of the answers `index` under both agents, weighted, less an entropy bonus.

    The bonus keeps plans apart from the teacher's possible, so that reward can still change the policy.
    """
    judged, weight = judge(upper, lower, material.case.take(index)), material.weight[index]
    likelihood = (weight * (judged.log_prob + judged.lower_log_prob)).sum() / weight.sum()
    return -likelihood - entropy_coef * (judged.entropy + judged.lower_entropy).mean()


def taught(found: Sequence[Lessons]) -> list[Material]:
    """Lessons on one problem joined."""
    by_problem: dict[int, list[Lessons]] = {}
    for lesson in found:
        by_problem.setdefault(id(lesson.problem), []).append(lesson)
    return [_material(some) for some in by_problem.values()]


def _material(some: Sequence[Lessons]) -> Material:
    observation, actions = stack([one.observation for one in some]), joined([one.actions for one in some])
    return Material(case(some[0].problem, observation, actions), torch.cat([one.weight for one in some]))


def draw(material: Material, size: int, rng: np.random.Generator) -> Tensor:
    """Indices of one batch."""
    return torch.from_numpy(rng.integers(0, len(material.case), min(size, len(material.case))))
