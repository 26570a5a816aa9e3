"""Weights that follow the network: the formula by hand, and what a run makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from policy.baselines.mpc import Mpc
from policy.control.adaptive_weights import AdaptiveWeights, adapted
from policy.control.long_run import PastPlans
from policy.control.plan_rates import PlanRates
from policy.core.protocol import Context
from tests.support.pasts import past
from tests.support.views import flat, view
from tests.support.worlds import toy_setup
from twin.core.link_history import LinkHistory
from twin.core.plan import Plan
from twin.core.view import View

FIXED = (0.5, 0.25, 0.25)
PAST = np.array([[1.0, 0.2, 7.0], [3.0, 0.6, 7.0]])  # means 2, 0.4, 7; deviations 1, 0.2, 0


def context(known: LinkHistory | None, gain: float) -> Context:
    estimator = toy_setup(2).estimator()
    return Context(estimator, 60.0, 10.0, FIXED, np.random.default_rng(0), known, gain)


def running(of: Context, bps: float) -> View:
    shares = next(plan for plan in PastPlans(of.estimator, past(5e10)).legal((4, 4), 30) if crosses(plan))
    return replace(view(of.estimator, flat(2, bps)), plan=shares)


def crosses(plan: Plan) -> bool:
    return len(plan.shares) == 2


def weights_at(known: LinkHistory | None, gain: float, now_bps: float) -> tuple[float, float, float]:
    own = context(known, gain)
    plans, rates = PastPlans.of(own), PlanRates(own.estimator, relayed=False)
    return AdaptiveWeights(own, plans, rates).at(running(own, now_bps))


def test_the_formula_by_hand() -> None:
    # Distances 2, 1 and 0 (egress never varies): factors 1.2, 1.1 and 1; weights 0.6, 0.275 and 0.25.
    found = adapted(FIXED, 0.1, np.array([4.0, 0.6, 7.0]), PAST)
    assert found == pytest.approx((0.6 / 1.125, 0.275 / 1.125, 0.25 / 1.125))


def test_deviations_are_cut_so_that_an_outage_counts_as_three() -> None:
    # Distances 3 (of infinity) and 3: factors 1.6, 1.6 and 1.
    found = adapted(FIXED, 0.2, np.array([np.inf, 1.0, 7.0]), PAST)
    assert found == pytest.approx((0.8 / 1.45, 0.4 / 1.45, 0.25 / 1.45))
    least = adapted(FIXED, 0.3, np.array([-99.0, -99.0, 7.0]), PAST)
    assert least == pytest.approx((0.05 / 0.325, 0.025 / 0.325, 0.25 / 0.325))


def test_states_of_the_past_in_which_nothing_ran_tell_nothing() -> None:
    outage = np.array([[np.inf, 1.0, 7.0]])
    now = np.array([4.0, 0.6, 7.0])
    assert adapted(FIXED, 0.1, now, np.concatenate([PAST, outage])) == adapted(FIXED, 0.1, now, PAST)
    assert adapted(FIXED, 0.1, now, np.concatenate([PAST[:1], outage])) == FIXED


def test_worse_links_than_mostly_give_speed_more_weight_and_better_ones_money() -> None:
    known = past(*[2e9, 3e9, 4e9] * 20)
    slow, usual, fast = (weights_at(known, 0.2, bps) for bps in (1e9, 3e9, 1e10))
    assert slow[0] > usual[0] > fast[0] and slow[2] < usual[2] < fast[2]
    assert all(sum(found) == pytest.approx(1.0) for found in (slow, usual, fast))


@pytest.mark.parametrize(("known", "gain"), [(None, 0.2), (past(2e9, 3e9, 4e9), 0.0)])
def test_without_a_past_or_a_gain_weights_are_the_scenarios(known: LinkHistory | None, gain: float) -> None:
    assert weights_at(known, gain, 1e9) == FIXED


def test_a_decision_bears_the_weights_in_force() -> None:
    own, policy = context(past(2e9, 3e9, 4e9), 0.2), Mpc()
    policy.reset(own)
    first = policy.decide(view(own.estimator, flat(2, 3e9)))
    assert first.extra["weights"] == list(FIXED)  # nothing runs
    later = policy.decide(running(own, 1e9)).extra["weights"]
    assert later == list(weights_at(past(2e9, 3e9, 4e9), 0.2, 1e9))
    policy.reset(replace(own, adaptive=0.0))
    assert "weights" not in policy.decide(running(own, 1e9)).extra
