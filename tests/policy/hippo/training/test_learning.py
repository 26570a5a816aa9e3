"""The agents learn what is known to be right, in seconds."""

import numpy as np
import torch

from policy.hippo.decoding.log_probability import evaluate_actions, teacher_forcing_batch
from policy.hippo.decoding.sampling import GREEDY, Actions, sample
from policy.hippo.networks.hippo_config import GnnConfig, HiPpoConfig, PpoConfig
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import UpperAgent
from policy.hippo.tables.observation import Observation
from policy.hippo.training.learner import PpoLearner, Rollout
from tests.support.hippo_fakes import FakeProblem

CONFIG = HiPpoConfig(
    gnn=GnnConfig(hidden_dim=16),
    ppo=PpoConfig(lr=3e-3, update_epochs=4, minibatch_size=64, target_kl=0.05, entropy_coef=0.003),
)


def new_learner(seed: int) -> PpoLearner:
    torch.manual_seed(seed)
    return PpoLearner(UpperAgent(CONFIG.gnn), LowerAgent(), CONFIG)


def bandit(
    learner: PpoLearner, problem: FakeProblem, observation: Observation, rng: np.random.Generator, reward_of
) -> float:  # type: ignore[no-untyped-def]
    """One rollout of one-step episodes and one update; returns the mean reward."""
    uniform = rng.random((len(observation), 2 + 3 * problem.k))
    actions = sample(learner.upper, learner.lower, problem, observation, uniform).actions
    given = teacher_forcing_batch(problem, observation, actions)
    with torch.no_grad():
        judged = evaluate_actions(learner.upper, None, given)
    reward = reward_of(observation, actions)
    rollout = Rollout(given, judged.log_prob, judged.value, reward - judged.value, reward, len(reward), {})
    learner.update([rollout], rng)
    return float(reward.mean())


def greedy(learner: PpoLearner, problem: FakeProblem, observation: Observation) -> Actions:
    uniform = np.full((len(observation), 2 + 3 * problem.k), GREEDY)
    return sample(learner.upper, learner.lower, problem, observation, uniform).actions


def test_identity_hold_or_move_as_the_observation_says() -> None:
    problem, rng, learner = FakeProblem(2, 4), np.random.default_rng(0), new_learner(0)

    def right(observation: Observation, actions: Actions) -> torch.Tensor:
        return (actions.go == (observation.globals[:, 3] > 0).long()).float()

    for i in range(25):
        bandit(learner, problem, problem.observation(256, seed=i), rng, right)
    fresh = problem.observation(512, seed=999)
    assert right(fresh, greedy(learner, problem, fresh)).mean() > 0.95


def test_identity_layers_in_proportion_to_what_a_domain_says() -> None:
    """The domain whose node feature is larger should take three quarters of the layers."""
    problem, rng, learner = FakeProblem(2, 8, share=8), np.random.default_rng(1), new_learner(1)

    def observe(batch: int, seed: int) -> Observation:
        observation = problem.observation(batch, seed)
        observation.may_hold[:] = False
        return observation

    def right(observation: Observation, actions: Actions) -> torch.Tensor:
        larger = (observation.nodes[:, 1, 0] > observation.nodes[:, 0, 0]).long()
        mine = ((actions.domain == larger.unsqueeze(1)) * actions.layers).sum(1)
        return 1 - (mine - 6).abs() / 6

    for i in range(40):
        bandit(learner, problem, observe(256, i), rng, right)
    fresh = observe(512, 999)
    assert right(fresh, greedy(learner, problem, fresh)).mean() > 0.9


def test_two_domains_moving_pays_only_if_the_change_lasts() -> None:
    """The job runs in domain 0, which has become slow. Moving to domain 1 costs 1, staying costs the time
    that the
    slow spell lasts: 0.2 if the forecast says it passes, 3 if it lasts. Moving to where one is costs for
    nothing."""
    problem, rng, learner = FakeProblem(2, 4, share=4), np.random.default_rng(2), new_learner(2)

    def observe(batch: int, seed: int) -> tuple[Observation, torch.Tensor]:
        observation = problem.observation(batch, seed)
        lasts = torch.from_numpy(np.random.default_rng(seed).random(batch) < 0.5)
        observation.globals[:, 3] = lasts.float() * 2 - 1
        observation.nodes[:, :, 1] = torch.tensor([1.0, 0.0])
        return observation, lasts

    def reward(observation: Observation, actions: Actions) -> torch.Tensor:
        lasts = observation.globals[:, 3] > 0
        away = ((actions.domain == 1) * actions.layers).sum(1) == 4
        stay = torch.where(lasts, -3.0, -0.2)
        return torch.where(actions.go == 0, stay, torch.where(away, torch.tensor(-1.0), stay - 1))

    for i in range(60):
        bandit(learner, problem, observe(256, i)[0], rng, reward)
    fresh, lasts = observe(512, 999)
    answers = greedy(learner, problem, fresh)
    assert ((answers.go == 1) == lasts).float().mean() > 0.95
    moved = answers.domain[answers.go == 1]
    assert (moved[:, 0] == 1).float().mean() > 0.95
