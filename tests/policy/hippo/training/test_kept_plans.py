"""Rollouts that judge a decision by its plan over the whole past."""

import numpy as np
import pytest
import torch

from policy.core.reference_plan import equal_cuts
from policy.hippo.env.training_task import TrainingTask, prepare_task
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import GnnConfig, HiPpoConfig, PpoConfig, RolloutConfig
from policy.hippo.tables.planning_tables import concatenate
from policy.hippo.training.kept_plans import KeptRewards, collect_kept, kept_rewards
from policy.hippo.training.learner import PpoLearner, Rollout
from tests.support.worlds import toy_setup

CONFIG = HiPpoConfig(
    gnn=GnnConfig(hidden_dim=16),
    ppo=PpoConfig(kept_periods=8),
    rollout=RolloutConfig(environments=4, episode_steps=4),
)


@pytest.fixture(scope="module")
def task() -> TrainingTask:
    return prepare_task(toy_setup(2, seconds=6000.0, steps={(0, 1): [(600.0, 4e8)]}), CONFIG)


def test_a_plan_is_worth_its_mean_over_the_periods(task: TrainingTask) -> None:
    twins, judge = task.twins(CONFIG), task.twins(CONFIG)
    problem = task.problem
    other = problem.encode(equal_cuts(problem.estimator, (1, 0), problem.free))
    assert other is not None
    twins.begin(np.zeros(3, np.int64), (1.0, 0.0, 0.0))
    twins.plan = concatenate([task.base, other, other])
    twins.pause_s[2] = 150.0
    periods = np.array([0, 3, 9])
    found = kept_rewards(twins, judge, periods, kept_s=600.0)
    slow = []
    for plan in (task.base, other):
        judge.begin(periods, (1.0, 0.0, 0.0))
        slow.append(
            judge.step(plan.take(np.zeros(3, np.int64)), np.ones(3, np.bool_)).components.mean(axis=0)
        )
    assert np.allclose(found.components[:2], slow) and found.components[0, 0] == pytest.approx(0.0)
    # A quarter of the time is lost, so each iteration takes 4/3 as long.
    assert found.components[2, 0] == pytest.approx(1 - (1 - slow[1][0]) / 0.75)
    assert found.components[2, 1] == pytest.approx(slow[1][1] * 0.75)
    assert found.limited[:, 2].tolist() == [0.0, 0.0, 0.25]


def test_reward_weighs_the_components() -> None:
    found = KeptRewards(np.array([[0.5, 0.25, 1.0]]), np.zeros((1, 3)))
    assert found.reward(np.array([[0.6, 0.2, 0.2]])).tolist() == [pytest.approx(0.3 + 0.05 - 0.2)]


def test_equal_seeds_give_equal_rollouts(task: TrainingTask) -> None:
    def collected(seed: int) -> Rollout:
        learner = PpoLearner(*checkpoint.build(CONFIG), CONFIG)
        return collect_kept(learner, task, 3, np.random.default_rng(seed))

    one, same, other = collected(1), collected(1), collected(2)
    assert torch.equal(one.advantage, same.advantage) and torch.equal(one.target, same.target)
    assert len(one.value) == one.planned == 12 and not torch.equal(one.log_prob, other.log_prob)
    assert torch.isfinite(one.advantage).all() and (one.advantage != 0).any()
    assert {"reward", "efficiency", "limited_interruption", "moves", "lower_reward"} <= set(one.metrics)
