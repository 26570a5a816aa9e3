"""Schedules over a past given by hand: what an hour's plan is, and what a move in it takes."""

import numpy as np
import pytest

from policy.control import daily_plans as module
from policy.control.daily_plans import daily_plans
from policy.control.long_run import LongRunRates, PastPlans, samples_of
from tests.support.pasts import days
from tests.support.worlds import toy_setup
from twin.core.link_history import LinkHistory
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator

WIDE, NARROW = 5e10, 5e8


def scheduled(estimator: Estimator, known: LinkHistory, restart_s: float = 11.35) -> tuple[Plan, ...] | None:
    past = PastPlans(estimator, known)
    assert past.states is not None
    free = tuple(domain.gpus for domain in estimator.cluster.domains)
    return daily_plans(estimator, known, past.best(free, past.states), restart_s)


def test_each_half_of_the_day_has_a_plan_that_is_better_there() -> None:
    estimator = toy_setup(2).estimator()
    day = scheduled(estimator, days([WIDE] * 12 + [NARROW] * 12))
    assert day is not None and len(day) == 24
    (night,), (light,) = set(day[:12]), set(day[12:])
    assert (len(night.shares), len(light.shares)) == (2, 1)
    for bps, here, there in ((WIDE, night, light), (NARROW, light, night)):
        rates = LongRunRates(estimator, samples_of(days([bps] * 24)))
        assert rates.turned(here).rate > rates.turned(there).rate


def test_a_restart_that_takes_hours_is_not_made() -> None:
    estimator, known = toy_setup(2).estimator(), days([WIDE] * 12 + [NARROW] * 12)
    day = scheduled(estimator, known, restart_s=5 * 3600.0)
    assert day is not None and len(set(day)) == 1


def test_pauses_are_those_of_the_estimator_over_the_links_of_the_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    inner = module.day_schedule
    monkeypatch.setattr(module, "day_schedule", lambda *given: seen.append(given) or inner(*given))
    estimator = toy_setup(2).estimator()
    day = scheduled(estimator, known := days([WIDE] * 12 + [NARROW] * 12), restart_s=estimator.restart_s)
    assert day is not None
    ((rates, pauses),) = seen
    assert rates.shape[0] == 24 and pauses.shape == (24, rates.shape[1], rates.shape[1])
    for hour, old, new in ((0, 23, 0), (12, 0, 12)):
        seconds = estimator.move(day[old], day[new], known.links(2 * hour)).seconds
        assert np.isclose(pauses[hour], seconds).any() and seconds > estimator.restart_s


def test_there_is_no_schedule_without_a_week_or_a_plan() -> None:
    assert scheduled(toy_setup(2).estimator(), days([WIDE] * 24, count=6)) is None
    too_large = toy_setup(2, model="llama2-70b").estimator()
    assert scheduled(too_large, days([WIDE] * 24)) is None
