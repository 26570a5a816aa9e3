import numpy as np
import pytest

from policy.hippo.agent.search_trust import CONFIDENCE, INTERVAL_NS, MOST_DOUBLINGS, REMEMBERED, SearchTrust

FEWEST = 4
"""Gains that bound the next one with a probability of 4 / 5."""


def trust_after(*gains: float) -> SearchTrust:
    trust = SearchTrust()
    for gain in gains:
        trust.record(gain)
    return trust


def test_nothing_is_trusted_before_enough_searches_gained_nothing() -> None:
    for count in range(FEWEST + 2):
        assert trust_after(*[0.9] * count).trusts == (count >= FEWEST)


def test_the_bound_is_the_quantile_of_conformal_prediction() -> None:
    assert trust_after(0.1, 0.4, 0.2).bound == float("inf")
    assert trust_after(0.1, 0.4, 0.2, 0.3).bound == 0.4
    assert trust_after(0.1, 0.5, 0.4, 0.2, 0.3, 0.0).bound == 0.5  # rank 6 of 6
    assert trust_after(*np.arange(20.0)).bound == 19.0  # of the last eight


def test_exchangeable_gains_stay_below_the_bound_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(0).exponential(size=(2000, REMEMBERED + 1))
    below = np.mean([gains[-1] <= trust_after(*gains[:-1]).bound for gains in drawn])
    assert below >= CONFIDENCE and below == pytest.approx(REMEMBERED / (REMEMBERED + 1), abs=0.02)


def test_a_gain_of_a_margin_is_remembered_for_a_while() -> None:
    trust = trust_after(1.0)
    for _ in range(REMEMBERED - 1):
        trust.record(0.0)
        assert not trust.trusts
    trust.record(0.0)
    assert trust.trusts


def test_audits_become_rare_until_one_gains() -> None:
    trust = trust_after(*[0.0] * FEWEST)
    for doublings in (*range(MOST_DOUBLINGS), MOST_DOUBLINGS, MOST_DOUBLINGS):
        assert trust.interval_ns == INTERVAL_NS << doublings
        trust.record(0.0)
    trust.record(2.0)
    assert not trust.trusts and trust.interval_ns == INTERVAL_NS


def test_other_gpus_make_all_searches_worth_it_again() -> None:
    trust = trust_after(*[0.0] * (FEWEST + 3))
    trust.forget()
    assert not trust.trusts and trust.interval_ns == INTERVAL_NS
