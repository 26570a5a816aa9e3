from dataclasses import replace

import numpy as np
import pytest

from policy.search.plan_search import best_plans
from tests.support.cases import random_case
from twin.core.domain import LinkState
from twin.estimation.estimator import Estimator
from twin.estimation.many_moves import moves


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limited", [False, True])
def test_moves_are_those_of_each_two_plans(seed: int, limited: bool) -> None:
    made, state = random_case(seed, size=3)
    limits = ({"egress_bps": 2e8}, {"ingress_bps": 1e8}, {}) if limited else ({},) * 3
    domains = tuple(replace(d, **at) for d, at in zip(made.cluster.domains, limits, strict=True))
    estimator = Estimator(replace(made.cluster, domains=domains), made.job)
    free = [domain.gpus for domain in domains]
    plans = [plan for plan, _ in best_plans(estimator, state, free_gpus=free, top=40)][::3]
    plans.append(replace(plans[0], extra_warmup=1))  # stops nothing
    dead = state.bandwidth_bps.copy()
    dead[0, 1] = 0.0
    for links in (state, LinkState(dead, state.latency_s)):
        seconds, moved = moves(estimator, plans, plans[::2], links)
        for p, old in enumerate(plans):
            for q, new in enumerate(plans[::2]):
                expected = estimator.move(old, new, links)
                assert seconds[p, q] == expected.seconds
                assert np.array_equal(moved[p, q], expected.bytes)
