"""Alpa's program against brute force, its blocks, and what the two variants choose by."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest

from policy.kit.stage_cost_tables import DomainStages
from policy.planners.alpa import Alpa, AlpaNative, _options, block_points, solutions
from tests.support.cases import cluster, links, model, random_case
from tests.support.views import context, flat, view
from twin.core.job import JobSpec
from twin.core.model_presets import preset
from twin.estimation.estimator import Estimator


def brute_force(tables: list[list[DomainStages]], count: int) -> float:
    """The least value over every option of every domain and every cut between blocks."""
    last, best = len(tables[0][0].total) - 1, float("inf")
    for chosen in product(*tables):
        for inside in combinations(range(1, last), len(tables) - 1):
            cuts = (0, *inside, last)
            spans = list(pairwise(cuts))
            behind = [sum(o.stages for o in chosen[n + 1 :]) for n in range(len(chosen))]
            if all(o.successors[s] >= b for o, s, b in zip(chosen, spans, behind, strict=True)):
                total = sum(float(o.total[s]) for o, s in zip(chosen, spans, strict=True))
                slowest = max(float(o.slowest[s]) for o, s in zip(chosen, spans, strict=True))
                best = min(best, total + (count - 1) * slowest)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_the_program_equals_brute_force(seed: int) -> None:
    estimator, state = random_case(seed)
    seen = view(estimator, state)
    points = block_points(estimator.job.model, 24)
    for dp in (1, 2):
        tables = [
            _options(estimator, seen, k, dp, 1, estimator.job.global_batch // dp, points)
            for k in range(estimator.cluster.size)
        ]
        found = solutions(tables, estimator.job.global_batch // dp)
        assert found[-1].value_s == pytest.approx(brute_force(tables, estimator.job.global_batch // dp))


def test_memory_limits_the_stages_behind() -> None:
    """Made-up tables: the cheap first option holds one micro-batch, so no stage may come behind it."""

    def option(stages: int, cost: float, successors: float) -> DomainStages:
        table = np.array([[np.inf, cost, 2 * cost], [np.inf, np.inf, cost], [np.inf] * 3])
        return DomainStages(1, stages, table, table * stages, np.full((3, 3), successors))

    tables = [[option(1, 1.0, 0.0), option(1, 3.0, 9.0)], [option(1, 1.0, 9.0)]]
    (*_, best) = solutions(tables, 4)
    assert best.options == (1, 0)
    assert best.starts == (0, 1)
    assert best.value_s == 3.0 + 1.0 + 3 * 3.0


def test_blocks_have_equal_flops() -> None:
    shape = preset("llama2-70b")
    points = block_points(shape, 16)
    flops = np.array([layer.forward_flops_per_sequence for layer in shape.layers()])
    sums = [flops[a:b].sum() for a, b in pairwise(points)]
    assert len(sums) == 16
    assert max(sums) - min(sums) <= 1.5 * flops.max()


def test_all_domains_are_used_in_index_order() -> None:
    estimator = Estimator(cluster(3, [4, 2, 4]), JobSpec(model(8), 16, (1, 2), zero=1))
    policy = Alpa()
    policy.reset(context(estimator))
    for plan in policy.plans(view(estimator, flat(3))):
        assert plan.order == (0, 1, 2)
        assert [len(share.gpus) for share in plan.shares] == [4, 2, 4]


def test_alpa_sees_links_and_its_own_value_does_not() -> None:
    estimator = Estimator(cluster(2, [4, 4]), JobSpec(model(8), 16, (1, 2), zero=1))
    states = [flat(2, 1e11, 0.0), flat(2, 3e8, 0.1), links(2, np.random.default_rng(1))]
    answers = {}
    for policy in (Alpa(), AlpaNative()):
        policy.reset(context(estimator))
        answers[policy.name] = [policy.plans(view(estimator, state))[0] for state in states]
        for state, plan in zip(states, answers["alpa"], strict=True):
            every = policy.plans(view(estimator, state))
            assert estimator.iter_ns(plan, state) <= min(estimator.iter_ns(p, state) for p in every)
    assert len(set(answers["alpa-native"])) == 1
