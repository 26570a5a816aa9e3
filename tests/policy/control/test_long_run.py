"""Plans by their rate over the past."""

import numpy as np
import pytest

from policy.control import long_run
from policy.control.knobs import free_variants
from policy.control.long_run import (
    LongRunRates,
    PastPlan,
    PastPlans,
    candidates,
    ranked,
    samples_of,
    typical_links,
)
from policy.core.protocol import Context
from tests.support.pasts import past
from tests.support.worlds import toy_setup
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States

FREE = (4, 4)
PAST = past(5e10, 1e9, 2e8, 5e10)


def test_the_typical_link_takes_the_mean_time_per_bit_while_it_lives() -> None:
    states = samples_of(past(2e9, 0.0, 6e9))
    assert typical_links(states, np.ones(3)).bandwidth_bps[0, 1] == pytest.approx(2 / (1 / 2e9 + 1 / 6e9))
    longer = typical_links(states, np.array([3.0, 5.0, 1.0]))
    assert longer.bandwidth_bps[0, 1] == pytest.approx(4 / (3 / 2e9 + 1 / 6e9))
    assert longer.latency_s[0, 1] == pytest.approx(0.001)
    assert typical_links(samples_of(past(0.0, 0.0)), np.ones(2)).bandwidth_bps[0, 1] == 0.0


def test_a_rate_is_the_mean_over_the_samples_and_turning_the_depth_never_lowers_it() -> None:
    estimator = toy_setup(2).estimator()
    known = past(5e10, 1e9, 2e8, 5e10)
    states = samples_of(known)
    rates = LongRunRates(estimator, states)
    for plan in candidates(estimator, states, FREE)[:6]:
        direct = [1e9 / estimator.iter_ns(plan, known.links(n)) for n in range(4)]
        assert rates.rate(plan) == pytest.approx(sum(direct) / 4)  # of two domains there is no relay
        turned = rates.turned(plan)
        each = [rates.rate(one) for one in (plan, *free_variants(estimator, plan))]
        assert turned.rate >= max(each) * (1 - 1e-12) and rates.rate(turned.plan) == max(each)


def test_the_best_plan_of_the_past_is_not_that_of_its_last_sample() -> None:
    estimator = toy_setup(2).estimator()
    wide, narrow = past(*[5e10] * 9, 1e7), past(*[1e7] * 9, 5e10)
    for known, domains in ((wide, 2), (narrow, 1)):
        best = PastPlans(estimator, known).best(FREE, States.of([known.links(9)]))
        assert len(best[0].plan.shares) == domains
        assert [one.rate for one in best[:12]] == sorted((one.rate for one in best[:12]), reverse=True)


def test_nothing_ranked_is_above_what_was_found_and_plans_that_never_run_are_left_out() -> None:
    estimator = toy_setup(2).estimator()
    dead, alive = samples_of(past(0.0, 0.0)), samples_of(past(1e10))
    plans = candidates(estimator, alive, FREE)
    assert any(len(plan.shares) == 2 for plan in plans)
    assert all(len(one.plan.shares) == 1 for one in ranked(LongRunRates(estimator, dead), plans))


class ByDepth(LongRunRates):
    """Rates of plans by rank: the later a plan, the slower at its own depth and the faster once turned."""

    def __init__(self, plans: list[Plan]) -> None:
        super().__init__(toy_setup(2).estimator(), samples_of(past(1e10)))
        self.place = {plan: number / len(plans) for number, plan in enumerate(plans)}

    def rate(self, plan: Plan) -> float:
        return 2.0 - self.place[plan]

    def turned(self, plan: Plan) -> PastPlan:
        return PastPlan(plan, 2.0 + self.place[plan])


def test_the_depth_decides_among_more_plans_than_are_turned_in_every_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans = candidates(toy_setup(2).estimator(), samples_of(past(1e10)), FREE)
    monkeypatch.setattr(long_run, "DEEPENED", 2)
    monkeypatch.setattr(long_run, "TRIED", len(plans))
    rates = ByDepth(plans)
    monkeypatch.setattr(ByDepth, "thinned", rates)
    found = [one.plan for one in ranked(rates, plans)]
    assert found == [*plans[-2:][::-1], *plans[:-2]] and len(plans) > 4


def test_beside_the_best_plans_are_those_with_the_order_of_domains_of_the_running_one() -> None:
    known = PastPlans(toy_setup(2).estimator(), past(5e10, 3e10))
    every = known.legal(FREE, 1000)
    running = next(plan for plan in every if plan.order != every[0].order and len(plan.shares) == 2)
    alike = [plan for plan in every if plan.order == running.order]
    assert known.legal(FREE, 1) == every[:1]
    assert known.legal(FREE, 1, running) == [every[0], *alike[: long_run.NEAR]] and len(alike) > 1


def context(estimator: Estimator, weights: tuple[float, float, float]) -> Context:
    return Context(estimator, 60.0, 10.0, weights, np.random.default_rng(0), PAST)


def test_what_is_known_of_a_past_serves_other_weights() -> None:
    estimator = toy_setup(2).estimator()
    first, cheap, again = (
        PastPlans.of(context(estimator, weights))
        for weights in ((1.0, 0.0, 0.0), (0.5, 0.0, 0.5), (0.4, 0.0, 0.6))
    )
    assert again.relayed == cheap.relayed != first.relayed  # over direct links
    plan = cheap.best(FREE, samples_of(PAST))[0].plan
    assert again.rates_in_each(plan) is cheap.rates_in_each(plan)


def test_jobs_that_are_alike_search_a_past_once(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = toy_setup(2)
    first = PastPlans.of(context(setup.estimator(), (1.0, 0.0, 0.0)))
    few = first.best((4, 2), samples_of(PAST))
    monkeypatch.setattr(long_run, "candidates", None)  # nothing is searched any more
    other = PastPlans.of(context(setup.estimator(), (1.0, 0.0, 0.0)))
    assert first.best((4, 4), samples_of(PAST)) is other.best((4, 4), samples_of(PAST))
    known = other.legal((4, 4), 30)
    assert few is other.best((4, 2), samples_of(PAST))
    assert not {one.plan for one in few} <= set(known)  # none for fewer GPUs until it asks


def test_without_a_past_the_given_links_take_its_place() -> None:
    estimator = toy_setup(2).estimator()
    known = PastPlans(estimator, None)
    assert known.states is None
    assert len(known.best(FREE, States.of([past(1e7).links(0)]))[0].plan.shares) == 1
