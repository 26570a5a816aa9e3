from dataclasses import replace

import numpy as np
import pytest

from policy.search import domain_orders
from policy.search.batch_scoring import row_of
from policy.search.closed_form import tables
from policy.search.plan_search import best_plans, build, neighbours
from policy.search.plan_shapes import Shape, orders
from tests.support.cases import cluster, every_cut, every_shape, links, model, random_case, shape_of
from twin.core.domain import LinkState
from twin.core.gpu_models import preset
from twin.core.job import JobSpec
from twin.estimation.estimator import DEAD, Estimator


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


def test_finds_the_enumerated_optimum_in_19_of_20_cases() -> None:
    gaps = []
    for seed in range(20):
        estimator, state = random_case(seed)
        _, found = best_plans(estimator, state, free_gpus=free(estimator))[0]
        gaps.append(found / optimum(estimator, state) - 1)
    assert min(gaps) >= 0
    assert sum(gap == 0 for gap in gaps) >= 19, sorted(gaps)[-10:]
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
    slowdown = np.array([3.0, 1.0])
    (plan, ns), *_ = best_plans(estimator, fast, free_gpus=free(estimator), slowdown=slowdown, top=1)
    held = dict(zip(plan.order, np.diff(plan.cuts).tolist(), strict=True))
    assert held.get(0, 0) < estimator.n_layers / 2
    assert ns == estimator.iter_ns(plan, fast, slowdown)


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


def test_paths_find_what_all_orders_find(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        estimator, state = Estimator(cluster(5, [4] * 5), JobSpec(model(22), 16, (1,), zero=1)), links(5, rng)
        (_, best), *_ = best_plans(estimator, state, free_gpus=free(estimator), top=1)
        monkeypatch.setattr(domain_orders, "ENUMERATE_UP_TO", 1)
        (plan, found), *_ = best_plans(estimator, state, free_gpus=free(estimator), top=1)
        monkeypatch.undo()
        assert not estimator.problems(plan) and found == estimator.iter_ns(plan, state)
        gaps.append(found / best - 1)
    assert max(gaps) < 0.01, gaps


def test_a_model_that_needs_many_domains_is_placed_over_them() -> None:
    """A path is grown although nothing fits into the first domains on it."""
    size, rng = 12, np.random.default_rng(1)
    estimator = Estimator(cluster(size, [4] * size), JobSpec(model(200), 8, (1,), zero=1))
    ranked = best_plans(estimator, links(size, rng, 5e9, 1e10), free_gpus=free(estimator), top=3)
    assert ranked and all(len(plan.order) >= 3 and not estimator.problems(plan) for plan, _ in ranked)


def test_a_lost_gpu_leaves_plans_of_another_depth() -> None:
    """Three of four GPUs live: three stages of one GPU are a plan, though depths are powers of two else."""
    estimator = Estimator(cluster(1, [4]), JobSpec(model(22), 16, (1,), zero=1))
    state = links(1, np.random.default_rng(0))
    (plan, _), *_ = best_plans(estimator, state, free_gpus=(3,), top=1)
    assert len(plan.shares[0].gpus) == 3


def test_neighbours_keep_all_layers_and_fill_every_stage() -> None:
    estimator = Estimator(cluster(3, [2, 2, 2]), JobSpec(model(7), 8, (1,), zero=1))
    known = tables(estimator, (2, 2, 2))
    shape = Shape((0, 1, 2), 1, ((1, 1), (1, 2), (1, 1)), 1)
    row = row_of(known.options, build(estimator, shape, (0, 3, 5, 9)))
    assert row is not None
    near, origin = neighbours(known, row)
    depth = known.options.arrays.pp[near.size[:, None], 0, near.option]
    assert (near.layers.sum(axis=1) == 9).all() and (near.layers >= depth).all() and (origin == 0).all()
    assert len({tuple(key) for key in near.keys.tolist()}) == len(near)
    same = (near.option == row.option).all(axis=1)
    assert same.sum() == 2 * 2 + 2 * 2  # one or two layers of the first, one, two (or four) of the last


def test_orders_are_all_permutations_of_all_subsets() -> None:
    assert [len(orders(tuple(range(k)))) for k in range(1, 6)] == [1, 4, 15, 64, 325]


def mixed(fast: str, slow: str) -> Estimator:
    """Two domains of two GPUs each, of two models."""
    plain = cluster(2, [2, 2])
    domains = tuple(
        replace(domain, gpu=preset(name)) for domain, name in zip(plain.domains, (fast, slow), strict=True)
    )
    return Estimator(replace(plain, domains=domains), JobSpec(model(12), 16, (1,), zero=1))


@pytest.mark.parametrize(("fast", "slow"), [("H100", "L40S"), ("B200", "MI300X"), ("H200", "A100-80")])
def test_faster_gpus_take_more_layers_and_nothing_is_faster(fast: str, slow: str) -> None:
    estimator = mixed(fast, slow)
    state = links(2, np.random.default_rng(0), 1e12, 2e12)  # links that do not decide
    state = LinkState(state.bandwidth_bps, state.latency_s * 0.0)
    (plan, ns), *_ = best_plans(estimator, state, free_gpus=free(estimator))
    assert ns == optimum(estimator, state)
    held = {share.domain: share.layers for share in plan.shares}
    assert len(held) == 2 and held[0] > held[1]


def test_the_memory_of_each_gpu_model_limits_its_own_stages() -> None:
    estimator = mixed("H100", "A10")  # 24 GiB hold two blocks of 202 M parameters and 18 bytes each, no more
    state = links(2, np.random.default_rng(0))
    plans = [plan for plan, _ in best_plans(estimator, state, free_gpus=free(estimator), top=64)]
    assert all(not estimator.problems(plan) for plan in plans)
    tight = estimator.make((0, 1), (2, 12), 1, ((1, 1), (1, 1)), 1)
    roomy = estimator.make((0, 1), (12, 2), 1, ((1, 1), (1, 1)), 1)
    assert any("d1" in problem for problem in estimator.problems(tight)) and not estimator.problems(roomy)
