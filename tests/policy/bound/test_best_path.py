"""The path search against enumeration of every sequence of plans and every instant that could be best."""

from itertools import pairwise, product

import numpy as np
import pytest

from policy.bound.best_path import best_path, remaining_bound
from policy.bound.time_grid import TransferTimes
from tests.support.enumerated_paths import Array, done, enumerated


def transfers(pause: Array, slots: int) -> TransferTimes:
    """Transfers of one block and one pair of domains that take `pause` (P, P) seconds beside the restart."""
    sizes, index = np.unique(pause, return_inverse=True)
    block, start = np.zeros(slots, np.int64), np.arange(pause.size + 1)
    return TransferTimes(block, start, index.reshape(-1), sizes.reshape(1, -1))


def case(seed: int, plans: int = 3, slots: int = 7) -> tuple[Array, Array, Array, float]:
    rng = np.random.default_rng(seed)
    restart = 4.0
    edges = np.concatenate([[0.0], np.cumsum(rng.uniform(1.0, restart, slots))])
    rate = rng.uniform(0.0, 1.0, (slots, plans)) * (rng.random((slots, plans)) > 0.2)
    place = rng.uniform(0.0, 4.0, plans)  # a metric: no move is shorter over a third plan
    pause = np.abs(place[:, None] - place[None, :])
    return edges, rate, pause, restart


@pytest.mark.parametrize("seed", range(40))
def test_equals_enumeration(seed: int) -> None:
    edges, rate, pause, restart = case(seed)
    moving = transfers(pause, len(rate))
    found, legs = best_path(edges, rate, moving, restart_s=restart, floor=0.0)
    assert found == pytest.approx(enumerated(edges, rate, pause, restart, moves=4), abs=1e-9)
    work = sum(done(edges, rate, leg.plan, leg.start_s, leg.end_s) for leg in legs)
    assert work == pytest.approx(found, abs=1e-9)
    for a, b in pairwise(legs):
        assert b.start_s - a.end_s >= restart + pause[a.plan, b.plan] - 1e-9
        assert a.end_s >= a.start_s


@pytest.mark.parametrize("seed", range(10))
def test_a_floor_that_is_reached_changes_nothing(seed: int) -> None:
    edges, rate, pause, restart = case(seed, plans=6, slots=20)
    moving = transfers(pause, len(rate))
    free, _ = best_path(edges, rate, moving, restart_s=restart, floor=0.0)
    bounded, legs = best_path(edges, rate, moving, restart_s=restart, floor=free)
    assert bounded == free
    assert legs[0].start_s == 0.0


def test_what_is_to_go_is_never_less_than_the_best_rest() -> None:
    for seed, slots in product(range(10), (5, 12)):
        edges, rate, _, restart = case(seed, slots=slots)
        bound = remaining_bound(edges, rate, restart)
        free = np.zeros((rate.shape[1],) * 2)
        assert bound[0].max() >= enumerated(edges, rate, free, restart, moves=3) - 1e-9


def test_moves_shorter_than_a_slot_are_rounded_up() -> None:
    edges = np.array([0.0, 10.0, 20.0])
    rate = np.array([[1.0, 0.2], [0.1, 1.0]])
    moving = transfers(np.zeros((2, 2)), 2)
    found, _ = best_path(edges, rate, moving, restart_s=1.0, floor=0.0)
    assert found >= 10.0 + 9.0  # the best real path: move when the rates change
    assert found <= 20.0


def test_never_moving_is_best_when_moves_outlast_the_window() -> None:
    edges = np.array([0.0, 5.0, 10.0])
    rate = np.array([[1.0, 0.0], [0.0, 1.0]])
    moving = transfers(np.full((2, 2), 100.0), 2)
    found, legs = best_path(edges, rate, moving, restart_s=5.0, floor=0.0)
    assert found == 5.0
    assert len(legs) == 1
