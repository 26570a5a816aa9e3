"""The teacher that keeps the best plan of the past."""

from dataclasses import replace

import numpy as np

from policy.control.long_run import PastPlans
from policy.hippo.env.training_task import TrainingTask, prepare_task
from policy.hippo.networks.hippo_config import HiPpoConfig, RolloutConfig
from policy.hippo.training.past_teacher import PastTeacher
from tests.support.worlds import toy_setup
from twin.core.view import View

SPEED = (1.0, 0.0, 0.0)


def task() -> TrainingTask:
    config = HiPpoConfig(rollout=RolloutConfig(environments=2, episode_steps=4))
    return prepare_task(toy_setup(3, seconds=1800.0, steps={(0, 1): [(600.0, 4e8)]}), config)


def start(made: TrainingTask) -> View:
    problem = made.problem
    forecast, nominal = made.training.direct.forecast(0), np.ones(problem.k)
    return View(0, "start", forecast, None, problem.free, nominal, 0.0, 0.0)


def test_the_best_plan_of_the_past_and_then_a_hold() -> None:
    made, teacher = task(), PastTeacher()
    context = made.context(SPEED, np.random.default_rng(0))
    teacher.reset(context)
    view = start(made)
    first = teacher.decide(view).plan
    assert first == PastPlans.of(context).legal(made.problem.free, 1)[0]
    assert teacher.decide(replace(view, plan=first, trigger="period")).plan is None


def test_nothing_is_shown_under_other_weights() -> None:
    made, teacher = task(), PastTeacher()
    teacher.reset(made.context((0.6, 0.2, 0.2), np.random.default_rng(0)))
    assert teacher.decide(start(made)).plan is None
