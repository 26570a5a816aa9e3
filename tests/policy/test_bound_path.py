"""The path search against enumeration of every sequence of plans and every instant that could be best."""

from itertools import pairwise, product

import numpy as np
import pytest

from policy.bound.best_path import best_path, to_go

Array = np.ndarray


def table(pause: Array) -> tuple[Array, Array, Array]:
    """Moves of one stretch and one pair of domains that take `pause` (P, P) seconds beside the restart."""
    sizes, index = np.unique(pause, return_inverse=True)
    return np.arange(pause.size + 1), index.reshape(-1), sizes.reshape(1, -1)


def done(edges: Array, rate: Array, plan: int, start: float, end: float) -> float:
    """Work of a plan between two instants."""
    overlap = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], start), 0, None)
    return float(rate[:, plan] @ overlap)


def enumerated(edges: Array, rate: Array, pause: Array, restart: float, moves: int) -> float:
    """Best work with at most `moves` moves; each leaves or lands at an edge, or leaves upon landing."""

    def rest(plan: int, since: float, left: int) -> float:
        best = done(edges, rate, plan, since, edges[-1])
        for q in range(rate.shape[1]) if left else ():
            if q == plan:
                continue
            d = restart + pause[plan, q]
            instants = {since, *edges.tolist(), *(edges - d).tolist()}
            for leave in sorted(t for t in instants if t >= since and t + d < edges[-1]):
                best = max(best, done(edges, rate, plan, since, leave) + rest(q, leave + d, left - 1))
        return best

    return max(rest(p, 0.0, moves) for p in range(rate.shape[1]))


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
    moving = table(pause)
    block = np.zeros(len(rate), np.int64)
    found, legs = best_path(edges, rate, block, *moving, restart_s=restart, floor=0.0)
    assert found == pytest.approx(enumerated(edges, rate, pause, restart, moves=4), abs=1e-9)
    work = sum(done(edges, rate, leg.plan, leg.start_s, leg.end_s) for leg in legs)
    assert work == pytest.approx(found, abs=1e-9)
    for a, b in pairwise(legs):
        assert b.start_s - a.end_s >= restart + pause[a.plan, b.plan] - 1e-9
        assert a.end_s >= a.start_s


@pytest.mark.parametrize("seed", range(10))
def test_a_floor_that_is_reached_changes_nothing(seed: int) -> None:
    edges, rate, pause, restart = case(seed, plans=6, slots=20)
    moving = table(pause)
    block = np.zeros(len(rate), np.int64)
    free, _ = best_path(edges, rate, block, *moving, restart_s=restart, floor=0.0)
    again, legs = best_path(edges, rate, block, *moving, restart_s=restart, floor=free)
    assert again == free
    assert legs[0].start_s == 0.0


def test_what_is_to_go_is_never_less_than_the_best_rest() -> None:
    for seed, slots in product(range(10), (5, 12)):
        edges, rate, _, restart = case(seed, slots=slots)
        bound = to_go(edges, rate, restart)
        free = np.zeros((rate.shape[1],) * 2)
        assert bound[0].max() >= enumerated(edges, rate, free, restart, moves=3) - 1e-9


def test_moves_shorter_than_a_slot_are_rounded_up() -> None:
    edges = np.array([0.0, 10.0, 20.0])
    rate = np.array([[1.0, 0.2], [0.1, 1.0]])
    moving = table(np.zeros((2, 2)))
    found, _ = best_path(edges, rate, np.zeros(2, np.int64), *moving, restart_s=1.0, floor=0.0)
    assert found >= 10.0 + 9.0  # the best real path: move when the rates change
    assert found <= 20.0


def test_never_moving_is_best_when_moves_outlast_the_window() -> None:
    edges = np.array([0.0, 5.0, 10.0])
    rate = np.array([[1.0, 0.0], [0.0, 1.0]])
    moving = table(np.full((2, 2), 100.0))
    found, legs = best_path(edges, rate, np.zeros(2, np.int64), *moving, restart_s=5.0, floor=0.0)
    assert found == 5.0
    assert len(legs) == 1
