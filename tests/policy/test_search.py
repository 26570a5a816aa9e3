from dataclasses import replace

import numpy as np
import pytest

from policy.search import best_plans, build, shape_of
from policy.shapes import Shape, neighbours, orders, starts
from tests.policy.cases import every_cut, every_shape, links, random_case
from twin.domain import LinkState
from twin.estimate import DEAD, Estimator


def free(estimator: Estimator) -> tuple[int, ...]:
    return tuple(domain.gpus for domain in estimator.cluster.domains)


def optimum(estimator: Estimator, state: LinkState) -> int:
    """The shortest iteration of any plan, by enumeration."""
    best = DEAD
    for shape in every_shape(estimator, free(estimator)):
        cuts = every_cut(estimator.n_layers, shape)
        if len(cuts):
            args = (shape.order, cuts, shape.dp, shape.inner, shape.micro_batch)
            best = min(best, int(estimator.iter_ns_cuts(*args, state).min()))
    return best


def test_finds_the_enumerated_optimum_in_95_of_100_cases() -> None:
    gaps = []
    for seed in range(100):
        estimator, state = random_case(seed)
        _, found = best_plans(estimator, state, free_gpus=free(estimator))[0]
        gaps.append(found / optimum(estimator, state) - 1)
    assert min(gaps) >= 0
    assert sum(gap == 0 for gap in gaps) >= 95, sorted(gaps)[-10:]
    assert max(gaps) < 0.02


def test_results_are_distinct_legal_ascending_and_priced_by_the_estimator() -> None:
    estimator, state = random_case(3, size=3)
    ranked = best_plans(estimator, state, free_gpus=free(estimator), top=20)
    assert len({plan for plan, _ in ranked}) == len(ranked) == 20
    assert [ns for _, ns in ranked] == sorted(ns for _, ns in ranked)
    for plan, ns in ranked:
        assert not estimator.problems(plan)
        assert ns == estimator.iter_ns(plan, state)


def test_stays_within_the_living_gpus_and_off_dead_links() -> None:
    estimator, state = random_case(5, size=3)
    bandwidth = state.bandwidth_bps.copy()
    bandwidth[0, 1] = bandwidth[1, 0] = 0.0
    left = (1, *free(estimator)[1:])
    ranked = best_plans(estimator, replace(state, bandwidth_bps=bandwidth), free_gpus=left)
    assert ranked
    for plan, _ in ranked:
        assert not estimator.problems(plan, left)
        assert (0, 1) not in list(zip(plan.order, plan.order[1:], strict=False))
        assert (1, 0) not in list(zip(plan.order, plan.order[1:], strict=False))


def test_without_a_living_gpu_there_is_no_plan() -> None:
    estimator, state = random_case(1, size=2)
    assert best_plans(estimator, state, free_gpus=(0, 0)) == []


def test_a_slow_domain_gets_fewer_layers() -> None:
    estimator, _ = random_case(7, size=2)
    fast = LinkState(np.full((2, 2), 1e12), np.zeros((2, 2)))
    shape = Shape((0, 1), 1, ((1, 1), (1, 1)), 1)
    even = starts(estimator, shape)[0]
    slowed = starts(estimator, shape, np.array([3.0, 1.0]))[0]
    assert slowed[1] < even[1]
    (plan, _), *_ = best_plans(
        estimator, fast, free_gpus=free(estimator), slowdown=np.array([3.0, 1.0]), top=1
    )
    assert (
        plan.order == (1,)
        or dict(zip(plan.order, np.diff(plan.cuts), strict=True))[0] < estimator.n_layers / 2
    )


def test_a_start_plan_is_one_more_place_to_climb_from() -> None:
    estimator, state = random_case(11, size=3)
    shape = Shape((2, 0), 1, ((1, 1), (1, 1)), 2)
    start = build(estimator, shape, (0, 2, estimator.n_layers))
    assert shape_of(start) == shape
    plain = best_plans(estimator, state, free_gpus=free(estimator), top=1)[0][1]
    helped = best_plans(estimator, state, free_gpus=free(estimator), top=1, start=start)[0][1]
    assert helped <= plain


@pytest.mark.parametrize("size", [6, 8])
def test_large_clusters_by_beam(size: int) -> None:
    rng = np.random.default_rng(size)
    estimator, _ = random_case(0, size=size)
    state = links(size, rng, 1e9, 2e10)
    ranked = best_plans(estimator, state, free_gpus=free(estimator), top=4)
    alone = min(
        ns
        for k in range(size)
        for _, ns in best_plans(
            estimator, state, free_gpus=[g if j == k else 0 for j, g in enumerate(free(estimator))], top=1
        )
    )
    assert ranked[0][1] <= alone


def test_neighbours_keep_all_layers_and_fill_every_stage() -> None:
    shape = Shape((0, 1, 2), 1, ((1, 1), (1, 2), (1, 1)), 1)
    rows = neighbours((0, 3, 5, 9), shape, steps=(1,))
    assert (np.diff(rows) >= [1, 2, 1]).all() and (rows[:, -1] == 9).all() and (rows[:, 0] == 0).all()
    assert len(rows) == 4  # the middle domain can give nothing away


def test_orders_are_all_permutations_of_all_subsets() -> None:
    assert [len(orders(tuple(range(k)))) for k in range(1, 6)] == [1, 4, 15, 64, 325]
