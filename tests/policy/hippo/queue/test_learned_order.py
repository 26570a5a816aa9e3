"""Training of an order: what choices cost, imitation, and improvement on queues where better exists."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from ingest.core.errors import UsageError
from ingest.readers import job_logs
from policy.hippo.queue import imitation, network, ppo, training, windows
from policy.hippo.queue.rollout import ROOM, accrued, rollout, starts
from policy.hippo.queue.windows import PoolPart, Window, log_slowdown, windows_of
from policy.queue.registry import recipe
from replay.queueing import learning
from twin.core.seeds import generator
from twin.queue.jobs import Int, QueueJobs
from twin.queue.metrics import bounded_slowdowns
from twin.queue.rules import PREDICTSIM
from twin.queue.scoring import trail_of
from twin.queue.simulation import QueueSchedule, simulate
from twin.workload.selection import select

POOL = 10


def queue(jobs: int = 500, seed: int = 0) -> PoolPart:
    """Synthetic: users 0 and 1 ask for as long, but user 0 needs a hundredth of it."""
    random = generator(seed, "toy queue")
    user = random.integers(0, 2, jobs)
    estimate = random.integers(900, 1_100, jobs)
    run = np.where(user == 0, estimate // 100, estimate)
    submit = np.sort(random.integers(0, 380 * jobs, jobs))
    made = QueueJobs.of_seconds(submit, run, random.integers(2, POOL, jobs), estimate, user=user)
    return PoolPart(made, POOL)


@pytest.fixture(scope="module")
def window() -> Window:
    return windows_of([queue()], recipe("sjf+easy"))[0]


def test_accrued_cost_by_hand() -> None:
    # Run 100 s. Submitted at 0, starts at 300 s: log 2 at 100 s, log 4 from 300 s on. A second job starts at
    # its submission, at 150 s, and costs nothing.
    seconds = np.array([10**9, 1])[:1]
    submit, start, run = (np.array(column) * seconds for column in ([0, 150], [300, 150], [100, 100]))
    found = accrued(submit, run, start, np.array([0, 100, 300, 900]) * seconds)
    assert found == pytest.approx(np.log([1, 2, 4, 4]))


def bounded_log_sum(part: PoolPart, start_ns: Int) -> float:
    return float(np.log(bounded_slowdowns(QueueSchedule(part.jobs, POOL, start_ns, start_ns > 0))).sum())


def test_rewards_add_up_to_what_is_better_than_the_heuristic(window: Window) -> None:
    scorer = network.scorer_of(network.network(network.WIDTHS, 3))
    jobs, found = window.part.jobs, rollout(window, scorer, seed=5)
    again = starts(window.part, scorer, trail_of(ROOM, seed=5))
    gained = [
        bounded_log_sum(window.part, start_ns)
        - accrued(jobs.submit_ns, jobs.run_ns, start_ns, found.time_ns[:1])[0]
        for start_ns in (window.start_ns, again)
    ]
    assert found.reward.sum() == pytest.approx(gained[0] - gained[1])
    assert abs(found.reward.sum()) > 1
    assert np.diff(found.begin).min() >= 2
    for first, last in pairwise(found.begin.tolist()):
        assert len(set(found.job[first:last].tolist())) == last - first


def test_generalised_advantages_by_hand() -> None:
    found = ppo.advantages(np.array([1.0, 2.0]), np.array([0.5, 1.0]), gamma=0.5, lam=0.5)
    # deltas 1 + 0.5 x 1 - 0.5 = 1 and 2 - 1 = 1; the first has 0.25 of the second
    assert found.tolist() == [1.25, 1.0]


def test_log_probabilities_and_states_of_choices_by_hand() -> None:
    begin, logits = torch.tensor([0, 2]), torch.log(torch.tensor([1.0, 3.0, 2.0, 1.0, 1.0]))
    assert network.log_probabilities(logits, begin).exp().tolist() == pytest.approx([0.25, 0.5])
    rows = torch.tensor([[1.0], [3.0], [0.0], [6.0], [0.0]])
    assert network.queue_state(rows, begin)[:, :2].tolist() == [[2.0, 3.0], [2.0, 6.0]]


def test_the_kernel_plays_the_network_that_torch_has() -> None:
    module = network.network(network.WIDTHS, 0)
    scorer, other = network.scorer_of(module), network.network(network.WIDTHS, 1)
    network.restore(other, scorer.weights)
    rows = torch.rand(5, scorer.widths[0], dtype=torch.float64)
    assert torch.equal(module(rows), other(rows))
    part = queue(100)
    assert starts(part, scorer).tolist() == starts(part, network.scorer_of(other)).tolist()


@pytest.mark.parametrize("order", ["saf", "hrrn"])
def test_imitation_gives_the_order_of_the_heuristic(order: str) -> None:
    kept = windows_of([queue()], recipe(f"{order}+easy"))
    module = network.network(network.WIDTHS, 0)
    assert imitation.imitate(module, kept, order, generator(0, "imitation")) > 0.85
    one = kept[0]
    own = log_slowdown(one.part, starts(one.part, network.scorer_of(module)))
    assert own == pytest.approx(one.log_slowdown, abs=0.1)


@pytest.mark.parametrize(("method", "steps"), [("ppo", 15), ("evolution", 15)])
def test_learning_finds_whose_estimates_are_too_long(method: training.Method, steps: int) -> None:
    order = training.train([queue(600)], method, seed=1, steps=steps)
    unseen = queue(500, seed=9)
    sjf = simulate(unseen.jobs, POOL, recipe(f"{order.provenance['heuristic']}+easy"))
    own = log_slowdown(unseen, starts(unseen, order.scorer))
    assert own < log_slowdown(unseen, sjf.start_ns) - 0.05
    assert order.provenance["validation"]["geometric_mean"] < order.provenance["validation"]["imitated"]


def test_a_training_is_the_same_again_and_ctrl_c_keeps_the_best_so_far() -> None:
    class Impatient:
        def start(self, total: int | None, what: str, unit: str = "") -> None:
            self.left = 2

        def advance(self, steps: int = 1, note: str = "") -> None:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    given = [queue(450)]
    stopped = training.train(given, "evolution", steps=100, progress=Impatient())
    assert (stopped.provenance["finished"], stopped.provenance["steps"]) == (False, 2)
    once, again = (training.train(given, "evolution", steps=1) for _ in range(2))
    assert once.scorer.weights.tolist() == again.scorer.weights.tolist()
    further = training.train(given, "evolution", steps=1, start=once)
    assert further.provenance["heuristic"] == once.provenance["heuristic"]


def test_a_training_takes_one_thread_and_gives_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def noted(parts: list[PoolPart]) -> str:
        seen.append(torch.get_num_threads())
        return "sjf"

    monkeypatch.setattr(training, "best_order", noted)
    before = torch.get_num_threads()
    jobs = QueueJobs.of_seconds(np.arange(900) * 100, np.full(900, 50), np.full(900, 1))
    try:
        torch.set_num_threads(3)
        with pytest.raises(UsageError, match="nothing to learn"):
            training.train([PoolPart(jobs, 4)], "evolution", steps=1)
        assert (seen, torch.get_num_threads()) == ([1], 3)
    finally:
        torch.set_num_threads(before)


def test_a_queue_without_waits_teaches_nothing_and_a_smaller_machine_is_proposed() -> None:
    jobs = QueueJobs.of_seconds(np.arange(900) * 100, np.full(900, 50), np.full(900, 1))
    with pytest.raises(UsageError, match=r"of the busiest 675 jobs is 1\.000.*fewer --processors than 4,"):
        training.train([PoolPart(jobs, 4)], "evolution", steps=1)


def test_the_example_of_the_help_has_something_to_learn(repository: Path) -> None:
    log = select(job_logs.read(repository / "examples/queue.swf"), PREDICTSIM, 32)
    given, _ = windows.split(PoolPart(log.jobs.cut_at_estimate(), log.processors), learning.SHARE)
    practised, _ = windows.split(given, training.PRACTISED)
    for order in windows.ORDERS:
        assert windows.windows_of([practised], recipe(f"{order}+easy")), order


def test_best_order_is_that_of_the_lowest_geometric_mean() -> None:
    part = queue()
    means = {
        name: log_slowdown(part, simulate(part.jobs, POOL, recipe(f"{name}+easy")).start_ns)
        for name in windows.ORDERS
    }
    assert windows.best_order([part]) == min(means, key=means.__getitem__)
