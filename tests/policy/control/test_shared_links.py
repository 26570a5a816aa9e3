"""The share of links that the plans of other jobs leave."""

import math
from dataclasses import replace

import numpy as np
import pytest

from policy.control.shared_links import shared_forecast, use_by_others
from tests.support.views import flat, view
from tests.support.worlds import toy_setup
from twin.core.view import OtherJob, View
from twin.estimation.estimator import Estimator
from twin.estimation.resource_use import plan_costs

ESTIMATOR = Estimator(toy_setup(3).cluster, toy_setup(3).job)
PLAN = ESTIMATOR.make((0, 1), (17, 17), 2, ((2, 1), (2, 1)), 1)
LINKS = flat(3, 2e9)


def seen(*others: OtherJob) -> View:
    return replace(view(ESTIMATOR, LINKS), others=others)


def of(_: str) -> Estimator:
    return ESTIMATOR


def test_a_link_is_used_for_the_time_of_its_bytes_over_that_of_an_iteration() -> None:
    use = use_by_others(seen(OtherJob("a", PLAN)), of)
    sent = plan_costs(ESTIMATOR, PLAN, np.ones(3)).wan_bytes
    seconds = ESTIMATOR.iter_ns(PLAN, LINKS) / 1e9
    assert use[0, 1] == pytest.approx(sent[0, 1] * 8 / 2e9 / seconds)
    assert use[1, 0] == pytest.approx(sent[1, 0] * 8 / 2e9 / seconds)
    assert not use[2].any() and not use[:, 2].any()


def test_two_jobs_count_twice_and_one_that_waits_not_at_all() -> None:
    one, two = OtherJob("a", PLAN), OtherJob("b", PLAN)
    assert np.array_equal(use_by_others(seen(one, two), of), 2 * use_by_others(seen(one), of))
    assert not use_by_others(seen(OtherJob("c", None)), of).any()


def test_what_is_left_is_the_link_over_one_and_its_use() -> None:
    alone, shared = seen(), seen(OtherJob("a", PLAN))
    assert shared_forecast(alone, of) is alone.forecast
    left, use = shared_forecast(shared, of), use_by_others(shared, of)
    assert left.bandwidth_bps[2, 0, 1] == pytest.approx(2e9 / (1 + use[0, 1]))
    assert left.bandwidth_bps[0, 0, 2] == 2e9
    assert math.isinf(left.bandwidth_bps[0, 1, 1])
