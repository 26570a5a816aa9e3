from dataclasses import replace

import numpy as np

from policy.control.plan_rates import PlanRates
from policy.control.relayed_times import times_ns
from tests.support.plays import plan_over
from tests.support.views import flat
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns, per_second


def test_relays_are_turned_in_every_state_or_only_around_dead_links() -> None:
    setup = toy_setup(3)
    estimator, plan = Estimator(setup.cluster, setup.job), plan_over(setup, (0, 1, 2), (12, 11, 11))
    states = States.of([flat(3, 5e9), _with(5e8), _with(0.0)])
    routed = replace(plan, routes=((0, 2, 1),))
    direct = per_second(iteration_ns(estimator, plan, states))
    relayed = per_second(times_ns(estimator, routed, states))
    assert direct[0] > relayed[0] and 0 < direct[1] < relayed[1] and direct[2] == 0 < relayed[2]
    always, seldom = (PlanRates(estimator, either)(routed, states) for either in (True, False))
    assert always.tolist() == [direct[0], relayed[1], relayed[2]]
    assert seldom.tolist() == [direct[0], direct[1], relayed[2]]


def test_slower_domains_make_slower_plans() -> None:
    setup = toy_setup(3)
    estimator, plan = Estimator(setup.cluster, setup.job), plan_over(setup, (0, 1, 2), (12, 11, 11))
    states, twice = States.of([_with(5e8)]), np.full(3, 2.0)
    expected = per_second(times_ns(estimator, replace(plan, routes=((0, 2, 1),)), states, twice))
    assert PlanRates(estimator, True)(plan, states, twice).tolist() == expected.tolist()


def _with(bps: float) -> LinkState:
    """Links of 5 Gb/s, from the first domain to the second of `bps`."""
    state = flat(3, 5e9)
    state.bandwidth_bps[0, 1] = bps
    return state
