"""Who goes over uplinks, and how much slower that makes it."""

import numpy as np
import pytest

from ingest.core.errors import UsageError
from twin.sharing.iterations import Pattern
from twin.sharing.uplinks import Uplinks, patterns_of
from twin.sharing.view import NOWHERE

RACK = np.array([0, 0, 1, 1])


def test_stages_become_iterations_with_a_gap_or_an_overlap() -> None:
    stages = np.array([[87.0, 67, 131], [0.5, 166, 133], [1, 2, 0]])
    found = patterns_of(np.array([336.0, 260, 3]), stages)
    assert found == [Pattern(205, 131, 205), Pattern(127, 133, 166.5), None]
    assert [one.alone for one in found if one] == [336, 260]


def test_jobs_in_one_rack_and_jobs_without_stages_are_on_no_link() -> None:
    links = Uplinks.oversubscribed(RACK, 2.0, [Pattern(1, 1, 1)] * 3 + [None])
    job, leader = np.arange(4), np.array([NOWHERE, NOWHERE, 1, NOWHERE])
    gpus = np.ones(4, np.int64)
    assert links.crossing(job, gpus, leader, np.array([0, 0, 1, 1])) == {}
    assert links.crossing(job, gpus, leader, np.array([3, 1, 1, 3])) == {1: (0, 1), 2: (0, 1)}


def test_two_alike_over_one_uplink_have_the_mean_of_four_ways_to_lie() -> None:
    pattern = Pattern(1, 1, 1)
    rate, job, gpus = np.full(2, 1_000_000), np.arange(2), np.full(2, 2)
    alone, whole = np.full(2, NOWHERE), np.array([0, 1, 0, 1])
    links = Uplinks.oversubscribed(RACK, 2.0, [pattern] * 2)
    assert links.slowed(rate, job, gpus, alone, whole, None).tolist() == [816_666] * 2  # 2/3, 4/5, 1, 4/5
    wide = Uplinks.oversubscribed(RACK, 1.0, [pattern] * 2)
    assert wide.slowed(rate, job, gpus, alone, whole, None).tolist() == [1_000_000] * 2


def test_a_job_alone_is_slow_on_an_uplink_below_its_rate() -> None:
    links = Uplinks.oversubscribed(RACK, 4.0, [Pattern(1, 1, 1)])
    one = np.zeros(1, np.int64)
    found = links.slowed(np.array([1_000_000]), one, one + 2, one - 1, np.array([0, -1, 0, -1]), None)
    assert found.tolist() == [666_666]  # an iteration is 1 + 2 in place of 2


def test_one_rack_has_no_uplinks_to_share() -> None:
    with pytest.raises(UsageError, match="two racks"):
        Uplinks.oversubscribed(np.zeros(2, np.int64), 2.0, [])
