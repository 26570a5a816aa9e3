from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from policy.control.best_relay_times import best_relay_ns
from policy.control.relayed_times import times_ns
from tests.support.cases import links
from tests.support.plays import plan_over
from tests.support.views import flat
from tests.support.worlds import toy_setup
from twin.costs.wan_traffic import crossings
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns


@pytest.mark.parametrize("seed", range(6))
def test_lies_between_the_links_alone_and_the_best_of_all_relays(seed: int) -> None:
    """Every choice of relays for a plan over three of four domains, counted one by one."""
    setup = toy_setup(4)
    estimator, rng = Estimator(setup.cluster, setup.job), np.random.default_rng(seed)
    plan = plan_over(setup, (2, 0, 1), (12, 11, 11))
    states = States.of([links(4, rng, low_bps=5e7) for _ in range(6)])
    pairs = crossings(estimator.job, plan)
    best = iteration_ns(estimator, plan, states)
    direct = best.copy()
    for vias in product(*([-1, *sorted(set(range(4)) - {i, j})] for i, j in pairs)):
        routes = tuple((i, k, j) for (i, j), k in zip(pairs, vias, strict=True) if k >= 0)
        best = np.minimum(best, times_ns(estimator, replace(plan, routes=routes), states))
    found = best_relay_ns(estimator, plan, states)
    assert found is not None
    assert (found >= best).all() and (np.minimum(found, direct) <= direct).all()
    assert (np.minimum(found, direct) <= 1.05 * best).mean() > 0.6


def test_a_dead_link_stops_nothing_where_there_is_a_way_around() -> None:
    setup = toy_setup(3)
    estimator, plan = Estimator(setup.cluster, setup.job), plan_over(setup, (0, 1, 2), (12, 11, 11))
    state = flat(3, 5e9)
    state.bandwidth_bps[0, 1] = 0.0
    states = States(state.bandwidth_bps[None], state.latency_s[None])
    found = best_relay_ns(estimator, plan, states)
    routed = replace(plan, routes=((0, 2, 1),))
    assert found is not None and found.tolist() == times_ns(estimator, routed, states).tolist()


def test_nothing_where_links_are_best() -> None:
    setup = toy_setup(3)
    estimator, plan = Estimator(setup.cluster, setup.job), plan_over(setup, (0, 1, 2), (12, 11, 11))
    state = flat(3, 5e9)
    assert best_relay_ns(estimator, plan, States(state.bandwidth_bps[None], state.latency_s[None])) is None
