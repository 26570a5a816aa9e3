"""Pollux on small clusters: the genetic algorithm beside every allocation there is, and its rules."""

from itertools import product

import numpy as np
import pytest

from policy.sharing.pollux import PolluxSearch, evolve
from tests.support.goodput_jobs import played
from twin.sharing.changes import STEADY

FREE_GPUS = np.array([2, 2, 2])
ONE_MODEL = np.zeros(3, np.int64)


def problem(seed: int, jobs: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Speedups that bend, less over several nodes; what jobs hold; factors of a change."""
    random = np.random.default_rng(seed)
    gpus, nodes = np.arange(7), np.arange(4)[:, None]
    speedup = np.zeros((jobs, 4, 7))
    for job in range(jobs):
        curve = gpus ** random.uniform(0.3, 1.0) * np.where(nodes > 1, random.uniform(0.5, 1.0), 1.0)
        speedup[job] = np.where((nodes <= gpus) & (nodes > 0) & (gpus <= 2 * nodes), curve, 0.0)
    now = np.zeros((jobs, 3), np.int64)
    now[0, 0] = 2
    return speedup, now, random.uniform(0.2, 1.0, jobs)


def mean(one: np.ndarray, speedup: np.ndarray, now: np.ndarray, penalty: np.ndarray) -> float:
    worth = [
        speedup[job, (row > 0).sum(), row.sum()] * (1 if (row == now[job]).all() else penalty[job])
        for job, row in enumerate(one)
    ]
    return float(1 / np.mean(1 / (np.array(worth) + 1e-3)))


@pytest.mark.parametrize("seed", range(4))
def test_the_genetic_algorithm_finds_the_best_of_all_allocations(seed: int) -> None:
    speedup, now, penalty = problem(seed)
    rows = [np.array(row) for row in product(range(3), repeat=3)]
    best = 0.0
    for chosen in product(rows, repeat=3):
        one = np.array(chosen)
        spread = (one > 0) & ((one > 0).sum(axis=1) > 1)[:, None]
        if (one.sum(axis=0) <= FREE_GPUS).all() and (spread.sum(axis=0) <= 1).all():
            best = max(best, mean(one, speedup, now, penalty))
    found, score = evolve(
        now[None], now, speedup[:, None], speedup, penalty, np.full(3, 6), FREE_GPUS, np.zeros(3, np.bool_),
        ONE_MODEL, 100, 100, -1.0, np.random.default_rng(1),
    )  # fmt: skip
    assert score[0] == pytest.approx(mean(found[0], speedup, now, penalty))
    assert score[0] == pytest.approx(best)
    assert (np.diff(score) <= 0).all()


def test_no_node_is_crossed_twice_and_jobs_keep_to_one_model_and_their_bound() -> None:
    speedup, now, penalty = problem(7, jobs=5)
    of_node, most = np.array([0, 0, 1]), np.array([6, 6, 6, 1, 1])
    speed = np.repeat(speedup[:, None], 2, axis=1)
    shut = np.array([False, True, False])
    found, _ = evolve(
        now[None], now, speed, speedup, penalty, most, FREE_GPUS, shut, of_node, 40, 10, -1.0,
        np.random.default_rng(1),
    )  # fmt: skip
    assert (found.sum(axis=1) <= FREE_GPUS).all() and (found.sum(axis=2) <= most).all()
    spread = (found > 0) & ((found > 0).sum(axis=2) > 1)[..., None]
    assert (spread.sum(axis=1) <= 1).all() and not spread[:, :, 1].any()
    assert not ((found[..., 2] > 0) & (found[..., :2] > 0).any(axis=2)).any()


def test_jobs_grow_by_doubling_and_shrink_to_equal_shares() -> None:
    done = played(PolluxSearch(), 1)
    sizes = done.events[done.events[:, 3] > 0, 3].tolist()
    assert sizes[:3] == [1, 2, 4]
    four = played(PolluxSearch(), 4)
    assert four.events[:4, 3].tolist() == [1] * 4
    assert four.events[4:8, 3].tolist() == [2] * 4


def test_a_restart_that_costs_more_is_paid_less_often() -> None:
    cheap = played(PolluxSearch(), 5, STEADY, pause_s=1)
    dear = played(PolluxSearch(), 5, STEADY, pause_s=30)
    assert dear.states.changed.sum() < cheap.states.changed.sum()


def test_two_runs_are_alike() -> None:
    first, second = (played(PolluxSearch(), 5).events for _ in range(2))
    assert (first == second).all()
