"""Solvers of small queues (`benchmarks/queue`): the optimum against all orders, and the others beside it."""

import sys
from itertools import permutations

import numpy as np
import pytest

from benchmarks.queue.genetic import genetic_wait_slots, serial_starts
from benchmarks.queue.lookahead import best_set, lookahead_starts
from benchmarks.queue.optimum import Slots, least_wait_slots
from ingest.core.errors import UsageError

POOL = 4


def instance(seed: int, jobs: int = 5) -> tuple[Slots, Slots, Slots]:
    random = np.random.default_rng(seed)
    submit = np.sort(random.integers(0, 5, jobs))
    return submit, random.integers(1, 7, jobs), random.integers(1, POOL + 1, jobs)


def least_of_all_orders(submit: Slots, run: Slots, processors: Slots) -> int:
    columns = submit.tolist(), run.tolist(), processors.tolist()
    orders = permutations(range(len(submit)))
    return min(sum(serial_starts(order, *columns, POOL)) for order in orders) - sum(columns[0])


@pytest.mark.parametrize("seed", range(5))
def test_the_programme_finds_the_least_of_all_orders(seed: int) -> None:
    assert least_wait_slots(*instance(seed), POOL) == pytest.approx(least_of_all_orders(*instance(seed)))


def test_the_genetic_search_finds_the_optimum_of_a_small_queue() -> None:
    pytest.importorskip("pymoo", reason="pymoo is in the extra `bench`")
    assert genetic_wait_slots(*instance(1), POOL) == least_of_all_orders(*instance(1))


def test_without_pymoo_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymoo.optimize", None)
    with pytest.raises(UsageError, match=r"the genetic search \(pymoo\) needs the extra 'bench'"):
        genetic_wait_slots(*instance(1), POOL)


def test_jobs_take_the_earliest_places_in_order() -> None:
    assert serial_starts([0, 1, 2], [0, 0, 1], [4, 2, 2], [3, 2, 1], POOL) == [0, 4, 1]
    assert serial_starts([1, 0, 2], [0, 0, 1], [4, 2, 2], [3, 2, 1], POOL) == [2, 0, 1]


@pytest.mark.parametrize(
    ("jobs", "free", "spare", "chosen"),
    [
        ([(0, 3, False), (1, 2, False), (2, 2, False)], 4, 0, [1, 2]),  # EASY would start job 0 alone
        ([(0, 2, False), (1, 2, False), (2, 2, False)], 4, 0, [0, 1]),  # of equal sets the earlier jobs
        ([(0, 3, True), (1, 1, True), (2, 2, False)], 4, 2, [1, 2]),
        ([(0, 5, False)], 4, 4, []),
    ],
)
def test_the_best_set_uses_the_most_processors(
    jobs: list[tuple[int, int, bool]], free: int, spare: int, chosen: list[int]
) -> None:
    assert best_set(jobs, free, spare) == chosen


def test_lookahead_never_delays_the_head() -> None:
    # Job 1 wants all four, from 5 on. Jobs 2 and 3 together use three processors until then, job 4 one.
    starts = lookahead_starts([0, 1, 1, 1, 1], [5, 3, 4, 4, 9], [1, 4, 2, 1, 3], POOL)
    assert starts == [0, 5, 1, 1, 8]
