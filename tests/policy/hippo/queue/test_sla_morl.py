"""SLA-MORL on the queue: weights that follow violations, and what exceeds an agreement."""

import numpy as np
import pytest

from policy.hippo.queue import network, sla_morl
from policy.hippo.queue.rollout import rewards, rollout
from policy.hippo.queue.training import one_thread
from policy.hippo.queue.windows import PoolPart, Window, log_slowdowns
from tests.support.queue_windows import busy_window
from twin.core.seeds import generator
from twin.queue.jobs import QueueJobs


@pytest.mark.parametrize(
    ("slack", "weights"),
    [
        ([0.2, 0.0], [0.5, 0.5]),  # what is kept weighs as before
        ([0.1, -1.0], [1 / 3, 2 / 3]),
        ([-0.5, -2.0], [1 / 3, 2 / 3]),  # 1.5 to 3
        ([0.0, -90.0], [0.2, 0.8]),  # a severity of three counts, no more
    ],
)
def test_weights_grow_with_the_severity_of_violations(slack: list[float], weights: list[float]) -> None:
    assert sla_morl.adapted(np.array(slack)) == pytest.approx(weights)


def test_excess_over_an_agreement_by_hand() -> None:
    # Run 100 s, agreed slowdown 2: waiting more than 100 s exceeds it. Start at 300 s: slowdown 4, log 2
    # above it, log 1.5 above it at 200 s. The other runs 1 s, so that 10 s count, and waits 5 s: within.
    jobs = QueueJobs.of_seconds([0, 0], [100, 1], [1, 1])
    start = np.array([300, 5]) * 10**9
    given = Window(PoolPart(jobs, 4), start)
    found = sla_morl.excess(given, start, np.array([0, 100, 200, 900]) * 10**9, float(np.log(2)))
    assert found == pytest.approx([0.0, np.log(1.5), np.log(2 / 1.5), 0.0])


def test_objectives_add_up_to_what_is_better_than_the_targets() -> None:
    given, scorer = busy_window(5), network.scorer_of(network.network(network.WIDTHS, 3))
    learner = sla_morl.QueueSlaMorl(network.network(network.WIDTHS, 0), 0, [given])
    slowdowns = log_slowdowns(given.part, given.start_ns)
    assert (slowdowns > learner.limit).mean() == pytest.approx(0.05, abs=0.01)
    seen: list[np.ndarray] = []

    def both(one: Window, own_ns: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
        found = learner._objectives(one, own_ns, time_ns)
        seen.append(own_ns)
        assert found[:, 0] == pytest.approx(rewards(one, own_ns, time_ns))
        return found

    gained = rollout(given, scorer, 5, both).reward[:, 1].sum()
    own = np.maximum(log_slowdowns(given.part, seen[0]) - learner.limit, 0.0).sum()
    # by the first choice nothing is late yet
    assert gained == pytest.approx(learner._targets(given)[1] - own)
    assert own > learner._targets(given)[1]


@one_thread()
def test_a_step_adapts_the_weights_and_is_the_same_again() -> None:
    found = []
    for _ in range(2):
        learner = sla_morl.QueueSlaMorl(network.network(network.WIDTHS, 0), 0, [busy_window(5)])
        before = learner.scorer.weights.copy()
        learner.step([busy_window(5)], generator(0, "workers"))
        assert np.abs(learner.scorer.weights - before).max() > 0
        # random weights keep fewer agreements than the heuristic
        assert learner.weights[1] > 0.5
        assert learner.weights.sum() == pytest.approx(1.0)
        found.append(learner.scorer.weights.tolist())
    assert found[0] == found[1]
