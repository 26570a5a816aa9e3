from dataclasses import replace

import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from tests.support.worlds import toy_scenario, toy_setup, toy_wan
from twin.core.seeds import generator
from twin.scenario.prepare import assemble
from twin.settings.disturbances import LinkChange, Noise, Outage, Perturbation, Regime
from twin.traces.perturbation import altered, cut, describe_change, ou_factor, perturb

S = NS_PER_S
NOISY = Perturbation(noise=Noise(clip=0.3, sd=0.15, tau_s=600, step_s=30))


def factors(wan, base, pair=(0, 1)) -> np.ndarray:
    link = wan.series[pair]
    return link.bandwidth_bps / np.array([base.at(int(t)).bandwidth_bps[pair] for t in link.times_ns])


def test_no_perturbation_is_the_same_object() -> None:
    wan = toy_wan()
    assert perturb(wan, Perturbation(), seed=1) is wan
    assert cut(wan, ()) is wan


def test_noise_is_clipped_seeded_and_different_per_link() -> None:
    base = toy_wan(seconds=36_000, steps={(0, 1): [(1000, 1e9), (5000, 3e9)]})
    wan = perturb(base, NOISY, seed=1)
    got = factors(wan, base)
    assert got.min() >= 0.7 - 1e-12
    assert got.max() <= 1.3 + 1e-12
    assert got.std() > 0.1
    assert perturb(base, NOISY, seed=1).digest == wan.digest
    assert perturb(base, NOISY, seed=2).digest != wan.digest
    assert not np.allclose(factors(wan, base, (0, 2))[:100], factors(wan, base, (2, 0))[:100])
    assert np.array_equal(wan.at(7 * S).latency_s, base.at(7 * S).latency_s)
    assert "clipped to +-0.3 (seed 1)" in wan.note


def test_a_link_is_perturbed_alike_whatever_other_links_there_are() -> None:
    few, many = perturb(toy_wan(2), NOISY, seed=3), perturb(toy_wan(4), NOISY, seed=3)
    assert np.array_equal(few.series[0, 1].bandwidth_bps, many.series[0, 1].bandwidth_bps)


def test_the_process_has_the_stated_deviation_and_correlation_time() -> None:
    noise = Noise(clip=0.99, sd=0.1, tau_s=600, step_s=30)
    _, factor = ou_factor(noise, 3_000_000 * S, generator(0, "x"))
    eps = factor - 1
    assert eps.std() == pytest.approx(0.1, rel=0.05)
    assert np.corrcoef(eps[:-20], eps[20:])[0, 1] == pytest.approx(np.exp(-1), abs=0.05)


def test_regimes_last_and_come_as_often_as_stated() -> None:
    base = toy_wan(2, seconds=100 * 86_400)
    congested = perturb(base, Perturbation(regimes=(Regime(per_day=12, mean_s=600, factor=0.25),)), seed=0)
    link = congested.series[0, 1]
    assert set(np.round(link.bandwidth_bps / 2e9, 12)) == {0.25, 1.0}
    begins = np.flatnonzero(link.bandwidth_bps < 1e9)
    lengths = np.diff(np.append(link.times_ns, base.end_ns))[begins] / S
    assert lengths.mean() == pytest.approx(600, rel=0.1)
    # The time inside a regime does not count towards the next arrival: one per 7200 + 600 s.
    assert len(begins) == pytest.approx(100 * 86_400 / 7800, rel=0.1)


def test_outage_is_dead_exactly_as_long_as_declared_and_then_as_before() -> None:
    base = toy_wan(steps={(0, 1): [(55, 1e9), (100, 3e9)]})
    wan = cut(base, [Outage(src="d0", dst="d1", at_s=50, for_s=20, both_ways=False)])
    got = [wan.at(t * S).bandwidth_bps[0, 1] for t in (49, 50, 55, 69, 70, 99, 100)]
    assert got == [2e9, 0, 0, 0, 1e9, 1e9, 3e9]
    assert wan.at(60 * S).bandwidth_bps[1, 0] == 2e9
    assert wan.at(60 * S).latency_s[0, 1] == 0.05


def test_an_outage_works_both_ways_from_the_start_and_past_the_end() -> None:
    wan = cut(
        toy_wan(),
        [Outage(src="d0", dst="d1", at_s=0, for_s=10), Outage(src="d0", dst="d2", at_s=9e5, for_s=1)],
    )
    assert wan.at(0).bandwidth_bps[0, 1] == wan.at(0).bandwidth_bps[1, 0] == 0
    assert wan.at(10 * S).bandwidth_bps[1, 0] == 2e9
    assert all(time < wan.end_ns for time in wan.changes()[0])
    assert wan.at(wan.end_ns - 1).bandwidth_bps[0, 2] == 2e9
    assert wan.note.endswith("1 declared outages, 1 more after the end: nothing changes")


def test_a_scenario_carries_both() -> None:
    setup = toy_setup(
        outages=[{"src": "d0", "dst": "d1", "at_s": 100, "for_s": 50}],
        perturbation={"noise": {"sd": 0.1}, "regimes": [{"per_day": 100, "mean_s": 60, "factor": 0.5}]},
    )
    assert setup.wan.at(120 * S).bandwidth_bps[0, 1] == 0
    assert 0 < setup.wan.at(160 * S).bandwidth_bps[0, 1] != 2e9
    assert "1 declared outage" in setup.wan.note


def test_a_link_that_halves_does_so_when_and_where_it_is_said() -> None:
    base = toy_wan(3, seconds=1000, steps={(0, 1): [(500, 1e9)]})
    changes = [LinkChange(src="d0", dst="d1", bandwidth_factor=0.5, latency_factor=3, at_s=400, for_s=200)]
    wan = altered(base, changes)
    for at_s in (0, 399, 600, 999):
        assert wan.at(at_s * S).bandwidth_bps[0, 1] == base.at(at_s * S).bandwidth_bps[0, 1]
        assert wan.at(at_s * S).latency_s[0, 1] == base.at(at_s * S).latency_s[0, 1]
    for at_s in (400, 499, 500, 599):
        assert wan.at(at_s * S).bandwidth_bps[0, 1] == base.at(at_s * S).bandwidth_bps[0, 1] / 2
        assert wan.at(at_s * S).latency_s[0, 1] == 3 * base.at(at_s * S).latency_s[0, 1]
    assert all(
        wan.series[p].bandwidth_bps is base.series[p].bandwidth_bps for p in base.series if p != (0, 1)
    )
    assert "what if d0 > d1: bandwidth x 0.5, latency x 3 from 400 s for 200 s" in wan.note
    assert altered(base, ()) is base


def test_a_star_is_every_domain_and_changes_multiply() -> None:
    base = toy_wan(3)
    out = LinkChange(src="d0", dst="*", bandwidth_factor=0.5)
    both = LinkChange(src="d1", dst="d0", bandwidth_factor=0.1, both_ways=True)
    after, before = altered(base, [out, both]).at(0).bandwidth_bps, base.at(0).bandwidth_bps
    wanted = {(0, 1): 0.05, (0, 2): 0.5, (1, 0): 0.1, (1, 2): 1, (2, 0): 1, (2, 1): 1}
    assert {pair: after[pair] / before[pair] for pair in wanted} == pytest.approx(wanted)


def test_a_change_that_was_always_there_is_known_to_the_filters_and_a_later_one_is_not() -> None:
    whole = toy_wan(2, seconds=3600)
    halved = {"src": "d0", "dst": "d1", "bandwidth_factor": 0.5}
    setups = [
        assemble(toy_scenario().model_copy(update={"link_changes": changes}), whole, window="test")
        for changes in ((), (LinkChange(**halved),), (LinkChange(**halved, at_s=0),))
    ]
    plain, always, surprise = setups
    truth = [setup.wan.at(0).bandwidth_bps[0, 1] for setup in setups]
    assert truth[1] == truth[2] == truth[0] / 2
    known = [setup.filters.bandwidth.mu[0] for setup in setups]
    assert known[1] == pytest.approx(known[0] + np.log(0.5)) and known[2] == known[0]
    assert plain.trace_digest == always.trace_digest == surprise.trace_digest


def test_no_noise_lifts_a_link_above_its_capacity_but_a_faster_link_has_more() -> None:
    base = replace(toy_wan(2, seconds=20_000), capacity_bps=np.full((2, 2), 2e9))
    noisy = perturb(base, NOISY, seed=1)
    rates = noisy.series[0, 1].bandwidth_bps
    assert rates.max() == 2e9 and rates.min() < 1.9e9 and noisy.capacity_bps is base.capacity_bps
    double = LinkChange(src="d0", dst="d1", bandwidth_factor=2)
    half = LinkChange(src="d1", dst="d0", bandwidth_factor=0.5)
    faster = altered(base, [double, half])
    assert faster.capacity_bps is not None
    assert (faster.capacity_bps[0, 1], faster.capacity_bps[1, 0]) == (4e9, 2e9)
    assert perturb(faster, NOISY, seed=1).series[0, 1].bandwidth_bps.max() > 3e9


def test_a_change_after_the_end_says_that_it_does_nothing() -> None:
    change = LinkChange(src="a", dst="b", bandwidth_factor=0.5, at_s=100.0)
    assert describe_change(change, 200 * NS_PER_S) == "what if a > b: bandwidth x 0.5 from 100 s"
    assert describe_change(change, 100 * NS_PER_S).endswith(
        "from 100 s, after the end at 100 s: nothing changes"
    )
