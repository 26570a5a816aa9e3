"""A move is made when it would have paid already: by hand, in a world of two domains."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from policy.control.break_even import COST_FACTOR, HISTORY, BreakEvenRule
from policy.control.horizon import egress_usd, pause_s
from policy.core.objective import Objective, PlanOutcome
from tests.support.three_sites import dead, estimator, view
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator

SPEED = Objective((1.0, 0.0, 0.0), PlanOutcome(10.0, 0.5, 1.0))
FAST, SLOW = 1e11, 1e8
RESTART_S = 11.35


@pytest.fixture(scope="module")
def made() -> Estimator:
    return estimator()


def plans(made: Estimator) -> tuple[Plan, Plan]:
    """One over two domains, which wants fast links, and one that needs none."""
    return made.make((0, 1), (5, 5), 1, ((1, 1), (1, 1)), 1), made.make((0,), (10,), 1, ((1, 1),), 1)


def at(seen: View, seconds: float) -> View:
    return replace(seen, now_ns=round(seconds * NS_PER_S))


def breaks_even_s(made: Estimator, seen: View, old: Plan, new: Plan) -> float:
    """For how long the new plan must have been better: rate_new (t - pause) = rate_old t."""
    links = seen.forecast.links()
    pause = COST_FACTOR * pause_s(made, made.move(old, new, links), RESTART_S)
    slow, fast = made.iter_ns(old, links), made.iter_ns(new, links)
    assert slow > fast
    return pause / (1 - fast / slow)


def test_it_pays_once_the_loss_of_staying_exceeds_the_price(made: Estimator) -> None:
    wide, narrow = plans(made)
    slow = view(made, SLOW, plan=wide)
    enough = breaks_even_s(made, slow, wide, narrow)
    for seconds, expected in ((0.99 * enough, False), (1.01 * enough, True)):
        rule = BreakEvenRule(made, RESTART_S)
        rule.observe(slow)
        rule.observe(at(slow, seconds))
        assert rule.would_have_paid(at(slow, seconds), narrow, SPEED) == expected


def test_a_move_is_priced_on_the_links_that_its_layers_take(made: Estimator) -> None:
    """Messages may find a way that is fast for them and slow for layers, and the other way round."""
    wide, narrow = plans(made)
    slow = view(made, SLOW, plan=wide)
    enough = 1.01 * breaks_even_s(made, slow, wide, narrow)
    rule = BreakEvenRule(made, RESTART_S)
    rule.observe(slow)
    for share, expected in ((0.5, False), (1.0, True), (2.0, True)):
        links = slow.forecast.links()
        rule.observe(at(slow, enough), replace(links, bandwidth_bps=share * links.bandwidth_bps))
        assert rule.would_have_paid(at(slow, enough), narrow, SPEED) == expected


def test_good_times_before_do_not_count_against_it(made: Estimator) -> None:
    wide, narrow = plans(made)
    fast, slow = view(made, FAST, plan=wide), view(made, SLOW, plan=wide)
    enough = 1.01 * breaks_even_s(made, slow, wide, narrow)
    rule = BreakEvenRule(made, RESTART_S)
    rule.observe(fast)
    for seconds in (1e5, 1e5 + enough / 2, 1e5 + enough):
        assert not rule.would_have_paid(at(slow, seconds), narrow, SPEED)
        rule.observe(at(slow, seconds))
    assert rule.would_have_paid(at(slow, 1e5 + enough), narrow, SPEED)


def test_times_in_which_it_would_have_been_worse_do_count(made: Estimator) -> None:
    wide, narrow = plans(made)
    fast, slow = view(made, FAST, plan=wide), view(made, SLOW, plan=wide)
    part = 0.6 * breaks_even_s(made, slow, wide, narrow)
    rule = BreakEvenRule(made, RESTART_S)
    for seconds, seen in ((0.0, slow), (part, fast), (20 * part, slow), (21 * part, slow)):
        rule.observe(at(seen, seconds))
    assert not rule.would_have_paid(at(slow, 21 * part), narrow, SPEED)


def test_a_job_that_stands_goes_over_when_it_stood_as_long_as_the_move_takes(made: Estimator) -> None:
    wide, narrow = plans(made)
    cut = dead(view(made, FAST, plan=wide), (0, 1), (1, 0))
    other = made.make((1,), (10,), 1, ((1, 1),), 1)
    pause = COST_FACTOR * pause_s(made, made.move(wide, narrow, view(made, FAST).forecast.links()), RESTART_S)
    rule = BreakEvenRule(made, RESTART_S)
    rule.observe(cut)
    alive = view(made, FAST, plan=wide, now_s=1.01 * pause)
    rule.observe(alive)
    assert rule.would_have_paid(alive, narrow, SPEED)
    back = at(cut, 2 * pause)
    rule.observe(back)
    assert not rule.would_have_paid(back, other, SPEED)  # over a dead link nothing can go over


def test_the_bytes_of_a_move_count_where_money_does(made: Estimator) -> None:
    wide, narrow = plans(made)
    slow = view(made, SLOW, plan=wide)
    bytes_usd = COST_FACTOR * egress_usd(made, made.move(wide, narrow, slow.forecast.links()).bytes)
    cost = Objective((0.0, 0.0, 1.0), PlanOutcome(10.0, 0.5, 1.0))
    once = made.iteration(wide, slow.forecast.links())
    assert bytes_usd > 0 and once.usd > 0
    enough = bytes_usd / once.usd * once.iter_s  # what it sends until then costs as much
    rule = BreakEvenRule(made, RESTART_S)
    rule.observe(slow)
    rule.observe(at(slow, 0.5 * enough))
    assert not rule.would_have_paid(at(slow, 0.5 * enough), narrow, cost)
    rule.observe(at(slow, 2000 * enough))
    assert rule.would_have_paid(at(slow, 2000 * enough), narrow, cost)


def test_starting_and_free_knobs_need_no_proof(made: Estimator) -> None:
    wide, narrow = plans(made)
    rule = BreakEvenRule(made, RESTART_S)
    start = view(made, FAST)
    rule.observe(start)
    assert rule.would_have_paid(start, narrow, SPEED)
    running = view(made, FAST, plan=wide)
    assert rule.would_have_paid(running, wide, SPEED)
    assert not rule.would_have_paid(running, narrow, SPEED)


def test_it_looks_back_a_bounded_number_of_decisions(made: Estimator) -> None:
    wide, narrow = plans(made)
    slow, fast = view(made, SLOW, plan=wide), view(made, FAST, plan=wide)
    rule = BreakEvenRule(made, RESTART_S)
    rule.observe(slow)
    for number in range(1, HISTORY + 2):
        rule.observe(at(fast, 1e6 + number))
    assert not rule.would_have_paid(at(fast, 2e6), narrow, SPEED)
    assert np.isfinite(breaks_even_s(made, slow, wide, narrow))
