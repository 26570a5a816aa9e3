"""What queueing theory proves, of formulas and of schedules."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.queue.registry import recipe
from tests.support.queues import POOL, RECIPES, queues
from twin.queue import metrics, referee, theory
from twin.queue.jobs import Float, QueueJobs
from twin.queue.rules import INSTANT, PREDICTSIM
from twin.queue.simulation import simulate


def test_erlang_c_by_hand() -> None:
    assert theory.erlang_c(1, 0.6) == pytest.approx(0.6)
    assert theory.erlang_c(2, 1.0) == pytest.approx(1 / 3)  # 1 / (1 + 1 + 1)
    assert theory.erlang_c(3, 2.0) == pytest.approx(4 / (1 + 2 + 2 + 4))
    assert theory.mmc_wait(1, 0.5, 1.0) == pytest.approx(1.0)  # rho / (mu - lambda)


def test_m_g_1_by_hand() -> None:
    assert theory.mg1_wait(0.5, 1.0, 2.0) == pytest.approx(theory.mmc_wait(1, 0.5, 1.0))
    assert theory.mg1_wait(0.5, 1.0, 1.0) == pytest.approx(0.5)  # constant service: half of it


@pytest.mark.parametrize("load", [-0.1, 1.0, 1.5])
def test_a_queue_that_grows_for_ever_has_no_mean_wait(load: float) -> None:
    with pytest.raises(ValueError, match="load of"):
        theory.erlang_c(1, load)
    with pytest.raises(ValueError, match="load of"):
        theory.mg1_wait(load, 1.0, 2.0)


def test_shortest_first_by_hand() -> None:
    # One length: no order. Lengths 1 and 3 at rate 1/4: residual 5/8, loads 1/8 and 1/2.
    assert theory.spt_wait(0.5, np.array([1.0])) == pytest.approx(theory.mg1_wait(0.5, 1.0, 1.0))
    by_hand = (0.625 / 0.875 + 0.625 / (0.875 * 0.5)) / 2
    assert theory.spt_wait(0.25, np.array([1.0, 3.0])) == pytest.approx(by_hand)
    with pytest.raises(ValueError, match="load of"):
        theory.spt_wait(1.0, np.array([1.0]))


REPLICATIONS, JOBS = 20, 20_000
Draw = Callable[[np.random.Generator], Float]


def deviation(
    expected_s: float, interval_s: float, runs_s: Draw, servers: int, policy: str = "fcfs"
) -> float:  # fmt: skip
    """Mean wait of Poisson arrivals less what is expected, in standard errors of independent runs."""
    waits = []
    for seed in range(REPLICATIONS):
        random = np.random.default_rng(seed)
        arrivals = random.exponential(interval_s, JOBS).cumsum()
        jobs = QueueJobs.of_seconds(arrivals, runs_s(random), np.ones(JOBS, np.int64))
        waits.append(metrics.waits_s(simulate(jobs, servers, recipe(policy))).mean())
    error = float(np.std(waits, ddof=1)) / REPLICATIONS**0.5
    assert error < 0.05 * expected_s
    return (float(np.mean(waits)) - expected_s) / error


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.7), (16, 0.8)])
def test_m_m_c_waits_as_erlang_says(servers: int, load: float) -> None:
    expected = theory.mmc_wait(servers, servers * load / 100.0, 1 / 100.0)
    found = deviation(
        expected, 100.0 / (servers * load), lambda random: random.exponential(100.0, JOBS), servers
    )
    assert abs(found) < 3


def test_m_g_1_waits_as_pollaczek_and_khinchine_say() -> None:
    expected = theory.mg1_wait(0.6 / 100.0, 100.0, 200.0**2 / 3)
    assert abs(deviation(expected, 100.0 / 0.6, lambda random: random.uniform(0.0, 200.0, JOBS), 1)) < 3


def test_shortest_first_waits_as_phipps_says() -> None:
    lengths = np.array([550.0] + [50.0] * 9)
    expected = theory.spt_wait(0.6 / 100.0, lengths)
    found = deviation(expected, 100.0 / 0.6, lambda random: random.choice(lengths, JOBS), 1, "sjf")
    assert abs(found) < 3


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
@settings(max_examples=50, deadline=None)
def test_shortest_first_is_optimal_on_one_machine(runs: list[int]) -> None:
    jobs = QueueJobs.of_seconds([0] * len(runs), runs, [1] * len(runs))
    found = metrics.jcts_s(simulate(jobs, 1, recipe("sjf"), rules=INSTANT)).sum()
    best = min(sum(np.cumsum(order)) for order in permutations(runs))
    assert found == best


@given(queues(most=40))
@settings(max_examples=60, deadline=None)
def test_easy_never_delays_the_head(jobs: QueueJobs) -> None:
    # The head of a queue in order of arrival stays the head until it starts.
    played, promises = jobs.cut_at_estimate(), list[tuple[int, int]]()
    predicted, easy = played.predicted_ns("estimate"), recipe("easy")
    start, _ = referee.play(
        played, predicted, POOL, easy.keys(played, predicted), "easy", PREDICTSIM,
        promise=lambda time, job, reserved: promises.append((job, reserved)),
    )  # fmt: skip
    assert all(start[job] <= reserved for job, reserved in promises)


@given(queues(most=30))
@settings(max_examples=60, deadline=None)
def test_conservative_keeps_every_promise(jobs: QueueJobs) -> None:
    played, promises = jobs.cut_at_estimate(), list[tuple[int, int]]()
    predicted, policy = played.predicted_ns("estimate"), recipe("conservative")
    start, _ = referee.play(
        played, predicted, POOL, policy.keys(played, predicted), "conservative", PREDICTSIM,
        promise=lambda time, job, reserved: promises.append((job, reserved)),
    )  # fmt: skip
    assert {job for job, _ in promises} == set(range(len(jobs)))
    assert all(start[job] <= reserved for job, reserved in promises)


@given(queues(most=40), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_later_jobs_change_nothing_under_conservative_with_exact_predictions(
    jobs: QueueJobs, count: int
) -> None:
    policy = recipe("conservative")
    whole = simulate(jobs, POOL, policy, prediction="actual").start_ns[:count]
    assert (
        simulate(jobs.select(slice(count)), POOL, policy, prediction="actual").start_ns.tolist()
        == whole.tolist()
    )


@given(queues(most=40), st.sampled_from(sorted(RECIPES)))
@settings(max_examples=100, deadline=None)
def test_littles_law_holds_on_every_run(jobs: QueueJobs, name: str) -> None:
    jobs.priority[0] = 1
    done = simulate(jobs, POOL, RECIPES[name])
    rate = len(jobs) / metrics.makespan_s(done)
    assert metrics.mean_jobs_in_system(done) == pytest.approx(rate * metrics.jcts_s(done).mean())


@given(queues(most=40), st.sampled_from(["fcfs", "sjf", "easy", "easy-sjbf", "conservative", "las+easy"]))
@settings(max_examples=60, deadline=None)
def test_no_processor_idles_while_a_job_of_one_waits(jobs: QueueJobs, name: str) -> None:
    jobs.processors[:] = 1
    done = simulate(jobs, 3, recipe(name))
    for job in np.flatnonzero(done.start_ns > jobs.submit_ns):
        for time in {int(jobs.submit_ns[job]), int(done.start_ns[job]) - 1}:
            assert ((done.start_ns <= time) & (time < done.end_ns)).sum() == 3
