import pytest

from policy.control.first_plan import first_plan
from policy.control.long_run import PastPlans
from policy.control.plan_rates import PlanRates
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Decision
from tests.support.pasts import past
from tests.support.views import flat, view
from tests.support.worlds import toy_setup
from twin.core.link_history import LinkHistory

SPEED = (1.0, 0.0, 0.0)


def chosen(
    known: LinkHistory | None, now_bps: float, weights: tuple[float, float, float] = SPEED
) -> Decision | None:
    estimator = toy_setup(2).estimator()
    plans = PastPlans(estimator, known)
    among = PastPlans(estimator, past(5e10)).legal((4, 4), 30) + PastPlans(estimator, past(1e7)).legal(
        (4, 4), 30
    )
    seen, rates = view(estimator, flat(2, now_bps)), PlanRates(estimator, relayed=True)
    return first_plan(plans, among, seen, rates, Objective(weights, PlanOutcome(1.0, 1.0, 1.0)))


@pytest.mark.parametrize(("often_bps", "domains"), [(5e10, 2), (1e7, 1)])
def test_the_past_counts_and_not_the_moment(often_bps: float, domains: int) -> None:
    seldom_bps = 5e17 / often_bps
    decision = chosen(past(*[often_bps] * 9, seldom_bps), seldom_bps)
    assert decision is not None and decision.plan is not None
    assert len(decision.plan.shares) == domains
    assert decision.plan == decision.candidates[0].plan
    scores = [one.score for one in decision.candidates]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(("first_bps", "then_bps", "domains"), [(5e10, 1e7, 1), (1e7, 5e10, 2)])
def test_a_drift_of_the_links_counts(first_bps: float, then_bps: float, domains: int) -> None:
    decision = chosen(past(*[first_bps] * 70, *[then_bps] * 30), first_bps)
    assert decision is not None and decision.plan is not None
    assert len(decision.plan.shares) == domains


def test_what_cannot_run_now_is_not_begun() -> None:
    decision = chosen(past(*[5e10] * 9), 0.0)
    assert decision is not None and decision.plan is not None and len(decision.plan.shares) == 1


def test_money_counts_where_it_has_weight() -> None:
    decision = chosen(past(*[5e10] * 9), 5e10, (0.0, 0.0, 1.0))
    assert decision is not None and decision.plan is not None and len(decision.plan.shares) == 1


def test_without_a_past_there_is_no_such_plan() -> None:
    assert chosen(None, 5e10) is None
