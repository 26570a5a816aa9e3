"""Keys by hand; equal keys go by submission, which tests/twin/queue/test_kernel.py pins for all orders."""

from math import log2, log10

import numpy as np
import pytest

from ingest.core.errors import UsageError
from policy.queue import aging_orders, fixed_orders, published_slips, registry, served_orders
from twin.queue.jobs import QueueJobs
from twin.queue.recipe import BACKFILLS, KeysOf
from twin.queue.simulation import simulate

JOBS = QueueJobs.of_seconds(
    [0, 10, 100],
    [99, 99, 99],
    [1, 4, 2],
    [20, 50, 400],
    user=[1, 1, 2],
    priority=[2, -1, 1],
    deadline=[90, -1, 70],
)
PREDICTED = JOBS.predicted_ns("estimate")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (fixed_orders.fcfs, [0, 0, 0]),
        (fixed_orders.sjf, [20, 50, 400]),
        (fixed_orders.ljf, [-1, -4, -2]),
        (fixed_orders.saf, [20, 200, 800]),
        (fixed_orders.f1, [log10(20) - 870, log10(50) * 4 + 870, log10(400) * 2 + 1740]),
        (fixed_orders.priority, [2, np.inf, 1]),
        (fixed_orders.edf, [90, np.inf, 70]),
        (published_slips.wfp3_slip, [(1 / 20) ** 3, (11 / 50) ** 3 * 4, (101 / 400) ** 3 * 2]),
        (published_slips.unicep_slip, [(1 - 1e-15) / (log2(1 + 1e-15) * 20), 11 / (2 * 50), 101 / 400]),
    ],
)
def test_fixed_keys(keys: KeysOf, expected: list[float]) -> None:
    found = keys(JOBS, PREDICTED)
    assert found.static.tolist() == pytest.approx(expected) and found.power == 0 and found.usage == "none"


@pytest.mark.parametrize(
    ("keys", "scale", "power", "factor"),
    [
        (aging_orders.wfp3, [20, 50, 400], 3, [1, 4, 2]),
        (aging_orders.unicef, [20e-15, 100, 400], 1, [1, 1, 1]),
        (aging_orders.hrrn, [20, 50, 400], 1, [1, 1, 1]),
    ],
)
def test_aging_keys(keys: KeysOf, scale: list[float], power: int, factor: list[float]) -> None:
    found = keys(JOBS, PREDICTED)
    assert found.scale.tolist() == pytest.approx(scale)
    assert (found.power, found.factor.tolist()) == (power, factor)


def test_least_attained_service_follows_users() -> None:
    assert served_orders.las(JOBS, PREDICTED).usage == "total"
    # User 1 has 40 processor-seconds when the pool is free at 10; user 2 has none.
    jobs = QueueJobs.of_seconds([0, 1, 2], [10, 5, 5], [4, 4, 4], user=[1, 1, 2])
    assert (simulate(jobs, 4, registry.recipe("las")).start_ns // 10**9).tolist() == [0, 15, 10]


def hours(policy: str) -> list[int]:
    """Two users in turn on a pool that one job fills; starts in hours."""
    rows = [(0, 10, 1), (0, 5, 2), (1, 1, 2), (1, 1, 1)]
    submit, run, user = zip(*rows, strict=True)
    jobs = QueueJobs.of_seconds(3600 * np.array(submit), 3600 * np.array(run), [4] * 4, user=user)
    return (simulate(jobs, 4, registry.recipe(policy)).start_ns // (3600 * 10**9)).tolist()


def test_fair_tree_forgets_and_least_attained_service_does_not() -> None:
    # At 15 h user 1 has had 40 GPU-hours, which ended 5 h ago, and user 2 the last 20.
    assert hours("las") == [0, 10, 15, 16]
    # With a half-life of 1 h: 40 h are worth 4 / ln 2 x (2^-5 - 2^-15), 20 h 4 / ln 2 x (1 - 2^-5).
    assert hours("fair-tree-1h") == [0, 10, 16, 15]
    assert hours("fair-tree-9999d") == hours("fair-tree") == hours("las")


def test_the_half_life_is_part_of_the_name() -> None:
    made = registry.recipe("fair-tree-2d+easy")
    assert (made.name, made.backfill) == ("fair-tree-2d+easy", "easy")
    assert made.keys(JOBS, PREDICTED).half_life_s == 2 * 86_400
    assert registry.recipe("fair-tree").keys(JOBS, PREDICTED).half_life_s == 7 * 86_400
    assert registry.known("fair-tree-2d+easy") and not registry.known("fair-tree-2d+esy")
    with pytest.raises(UsageError, match="fair-tree-0d"):
        registry.recipe("fair-tree-0d")


def test_drf_counts_what_users_hold_now() -> None:
    # At 10 user 2 has had 70 processor-seconds and holds nothing; user 1 has had 30 and holds 3 of 10.
    rows = [(0, 100, 3, 1), (0, 10, 7, 2), (1, 5, 7, 1), (2, 5, 7, 2)]
    submit, run, size, user = zip(*rows, strict=True)
    jobs = QueueJobs.of_seconds(submit, run, size, user=user)
    found = [simulate(jobs, 10, registry.recipe(name)).start_ns // 10**9 for name in ("drf", "las")]
    assert [starts.tolist() for starts in found] == [[0, 0, 15, 10], [0, 0, 10, 15]]


@pytest.mark.parametrize("name", ["priority", "edf"])
def test_an_order_of_what_no_job_has_is_refused(name: str) -> None:
    jobs = QueueJobs.of_seconds([0], [1], [1])
    with pytest.raises(UsageError, match=f"policy {name}: no job has a"):
        simulate(jobs, 1, registry.recipe(name))


def test_aging_orders_change_their_minds() -> None:
    # At 10 the second job has waited 9 of 9 s, the third 2 of 4; at 30 it would be the other way round.
    jobs = QueueJobs.of_seconds([0, 1, 8], [10, 9, 4], [4, 4, 4])
    assert (simulate(jobs, 4, registry.recipe("hrrn")).start_ns // 10**9).tolist() == [0, 10, 19]
    jobs = QueueJobs.of_seconds([0, 1, 8], [30, 9, 4], [4, 4, 4])
    assert (simulate(jobs, 4, registry.recipe("hrrn")).start_ns // 10**9).tolist() == [0, 34, 30]


def test_every_name_makes_a_recipe_with_its_source() -> None:
    names = list(registry.names())
    assert len(names) == len(set(names)) == len(registry.ORDERS) * len(BACKFILLS) + len(registry.ALIASES)
    for name in names:
        made = registry.recipe(name)
        assert made.name == name and made.summary and made.source


@pytest.mark.parametrize("alias", registry.ALIASES)
def test_names_of_the_field_are_compositions(alias: str) -> None:
    order, backfill, *_ = registry.ALIASES[alias]
    one, other = registry.recipe(alias), registry.recipe(f"{order}+{backfill}")
    assert (one.keys, one.backfill) == (other.keys, other.backfill)


@pytest.mark.parametrize("name", ["esy", "saf+esy", "easy+saf", "", "+easy", "saf+easy+easy"])
def test_an_unknown_name_is_told_with_those_that_are_known(name: str) -> None:
    with pytest.raises(UsageError, match="known are easy, easy-sjbf, conservative, fcfs"):
        registry.recipe(name)
    with pytest.raises(UsageError, match="did you mean 'easy'"):
        registry.recipe("esy")
