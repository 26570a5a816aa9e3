"""Sailor's program against enumeration, its formula by hand, and its heuristics."""

from itertools import permutations, product

import numpy as np
import pytest

from policy.kit.even_stages import ClosestFit
from policy.kit.sailor_program import SailorProgram
from policy.planners.sailor import Sailor, SailorNative, _solutions, region_orders
from tests.support.cases import cluster, links, model, random_case
from tests.support.views import context, flat, view
from twin.core.domain import LinkState
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator
from twin.pipeline.other_estimators import sailor_ns
from twin.pipeline.pipeline import Pipeline


def dealt(program: SailorProgram, order: tuple[int, ...], counts: tuple[int, ...]) -> float:
    """Sailor's time of one dealing of the stages, term by term; infinite where it does not fit."""
    compute: list[float] = []
    region: list[int] = []
    tails: list[float] = []
    for k, stages in zip(order, counts, strict=True):
        if stages:
            tp, costs = program.width(k, len(compute), stages), program.costs(k)
            if tp is None:
                return float("inf")
            (w,) = np.flatnonzero(costs.tp == tp)
            for _ in range(stages):
                tails.append(float(costs.tail_s[w, len(compute)]))
                compute.append(float(costs.compute_s[w, len(compute)]))
                region.append(k)
    talk = [0.0] * len(compute)
    for s in range(len(compute) - 1):
        if region[s] != region[s + 1]:
            talk[s] += program.crossing_s[region[s], region[s + 1]]
            talk[s + 1] += program.crossing_s[region[s + 1], region[s]]
    both = [c + t for c, t in zip(compute, talk, strict=True)]
    slowest = max(both)
    return (program.micro_batches - 1) * slowest + sum(both) + max(tails)


def open_pipeline(estimator: Estimator, plan: Plan, state: LinkState) -> Pipeline:
    timing = estimator.pipeline(plan, state)
    assert timing is not None
    return timing


@pytest.mark.parametrize("seed", range(6))
def test_the_program_equals_enumeration(seed: int) -> None:
    """One stage a region at most, so that every term can be summed by hand: 2 to 3 stages on 3 regions."""
    rng = np.random.default_rng(seed)
    estimator = Estimator(cluster(3, [2, 2, 2], 2), JobSpec(model(6), 8, (1,), zero=1))
    state = links(3, rng)
    seen: View = view(estimator, state)
    for depth in (2, 3):
        program = SailorProgram(estimator, seen, 2, 1, depth)
        found = best = float("inf")
        for order in permutations(range(3)):
            dealing = program.solve(order)
            assert dealing is not None
            assert dealing.seconds == pytest.approx(dealt(program, order, dealing.stages), rel=1e-9)
            found = min(found, dealing.seconds)
            for counts in product((0, 1), repeat=3):
                if sum(counts) == depth:
                    best = min(best, dealt(program, order, counts))
        assert found == pytest.approx(best, rel=1e-9)


def test_orders_are_those_with_the_most_bandwidth() -> None:
    bandwidth = np.full((3, 3), 1e9)
    bandwidth[0, 2] = bandwidth[2, 0] = 9e9
    bandwidth[1, 2] = bandwidth[2, 1] = 5e9
    orders = region_orders([0, 1, 2], LinkState(bandwidth, np.zeros((3, 3))))
    assert orders[:2] == [(0, 2, 1), (1, 2, 0)]
    assert len(orders) == 6
    many = region_orders(list(range(9)), flat(9))
    assert len(many) == 9
    assert all(sorted(order) == list(range(9)) for order in many)


def test_the_smallest_width_that_fits_is_taken() -> None:
    """H2: 8 blocks of 0.2 B parameters fit on one GPU, so no stage is wider."""
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 16, (1,), zero=1))
    for dp in (1, 2, 4):
        for plan in _solutions(estimator, view(estimator, flat(2)), dp, ClosestFit(estimator)):
            assert {share.tp for share in plan.shares} == {1}


def test_each_variant_is_best_by_its_own_measure() -> None:
    for seed in range(6):
        estimator, state = random_case(seed, size=3)
        seen = view(estimator, state)
        ours, native = Sailor(), SailorNative()
        chosen = []
        for policy in (ours, native):
            policy.reset(context(estimator))
            chosen.append(policy.plans(seen))
        assert estimator.iter_ns(chosen[0][0], state) == min(estimator.iter_ns(p, state) for p in chosen[0])
        own = [sailor_ns(open_pipeline(estimator, plan, state)) for plan in chosen[1]]
        assert own == sorted(own)


def test_replans_when_gpus_come_back_only() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 16, (1, 2), zero=1))
    policy, state = Sailor(), flat(2)
    policy.reset(context(estimator))
    plan = policy.decide(view(estimator, state, free_gpus=(4, 1))).plan
    assert plan is not None
    held = policy.decide(view(estimator, state, plan=plan, trigger="change", free_gpus=(4, 1)))
    assert held.plan is None
    assert "nothing has happened" in held.reason
    back = policy.decide(view(estimator, state, plan=plan, trigger="repair"))
    assert "GPUs have changed" in back.reason
