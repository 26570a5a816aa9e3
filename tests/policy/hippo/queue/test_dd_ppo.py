"""DD-PPO on the queue: who is stopped early, the mean gradient of workers, rewards without a heuristic."""

import numpy as np
import pytest
import torch

from policy.hippo.queue import dd_ppo, network, ppo
from policy.hippo.queue.rollout import QueueRollout, accruals, rollout
from policy.hippo.queue.training import one_thread
from tests.support.queue_windows import busy_window
from twin.core.seeds import generator


@pytest.mark.parametrize(
    ("choices", "stopped"),
    [
        ([10, 20, 30, 40, 100], [10, 20, 30, 30, 30]),  # three of five are done after 30
        ([10, 10, 10, 400], [10, 10, 10, 100]),  # a quarter of its window in any case
        ([7], [7]),
    ],
)
def test_a_worker_stops_when_enough_others_are_done(choices: list[int], stopped: list[int]) -> None:
    assert dd_ppo.stopped_at(choices) == stopped


@one_thread()
def test_a_stopped_rollout_counts_on_the_critic_for_the_rest() -> None:
    # deltas 1 + 0.5 x 2 - 0 = 2 and 0 + 0.5 x 4 - 2 = 0
    found = ppo.advantages(np.array([1.0, 0.0]), np.array([0.0, 2.0]), gamma=0.5, lam=1.0, after=4.0)
    assert found.tolist() == [2.0, 0.0]
    learner = dd_ppo.QueueDdPpo(network.network(network.WIDTHS, 0), 0)
    rows = np.random.default_rng(0).random((6, 9))
    one = QueueRollout(rows, np.array([0, 2, 4]), np.arange(6), np.arange(3), np.array([1.0, 2.0, 3.0]))
    stopped, whole = learner.batch(one, 2), learner.batch(one)
    assert (len(stopped.rows), stopped.begin.tolist()) == (4, [0, 2])
    state = network.queue_state(torch.from_numpy(rows), torch.tensor([0, 2, 4]))
    with torch.no_grad():
        value = learner.critic(state)[:, 0]
    assert float(stopped.target[1]) == pytest.approx(2.0 + 0.99 * float(value[2]))
    assert float(whole.target[2]) == pytest.approx(3.0)


@one_thread()
def test_workers_share_the_mean_of_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = dd_ppo.QueueDdPpo(network.network(network.WIDTHS, 0), 0)
    monkeypatch.setattr(dd_ppo, "MINIBATCHES", 1)
    random = np.random.default_rng(1)
    batches = [
        learner.batch(
            QueueRollout(
                random.random((6, 9)), np.array([0, 3]), np.arange(6), np.arange(2), random.random(2)
            )
        )
        for _ in range(3)
    ]
    alone = []
    for one in ppo.normalised(batches):
        learner.module.zero_grad()
        learner.clipped_loss(one).backward()
        alone.append([p.grad.clone() for p in learner.module.parameters() if p.grad is not None])
    shared = []

    def kept(optimiser: object, module: torch.nn.Module, loss: torch.Tensor) -> None:
        module.zero_grad()
        loss.backward()
        shared.append([p.grad.clone() for p in module.parameters() if p.grad is not None])

    monkeypatch.setattr(learner, "descend", kept)
    learner.learn(batches)
    assert len(shared) == 2 * learner.settings.passes
    for mean, *each in zip(shared[0], *alone, strict=True):
        assert torch.allclose(mean, torch.stack(each).mean(dim=0))


def test_its_reward_is_minus_the_own_accrual_and_knows_no_heuristic() -> None:
    scorer, given = network.scorer_of(network.network(network.WIDTHS, 3)), busy_window(50)
    own, beside = dd_ppo.own_rollout(given, scorer, 5), rollout(given, scorer, 5)
    base = accruals(given, given.start_ns, own.time_ns)
    assert own.reward == pytest.approx(beside.reward - base)
    assert own.reward.sum() < 0


@one_thread()
def test_a_step_changes_the_scorer_and_is_the_same_again() -> None:
    found = []
    for _ in range(2):
        learner = dd_ppo.QueueDdPpo(network.network(network.WIDTHS, 0), 0)
        before = learner.scorer.weights.copy()
        learner.step([busy_window(50)], generator(0, "workers"))
        assert np.abs(learner.scorer.weights - before).max() > 0
        found.append(learner.scorer.weights.tolist())
    assert found[0] == found[1]
