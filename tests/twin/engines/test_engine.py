"""Iterations of the kernel engine, counted exactly while links change."""

import pytest

from ingest.core.units import to_ns
from tests.support.plays import durations, hold, of_type, plan_over, play, totals
from tests.support.worlds import toy_setup
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.scenario.prepare import PreparedScenario

USED, UNUSED = (0, 1), (1, 2)


def _plan(setup: PreparedScenario) -> Plan:
    return plan_over(setup, (0, 1), (17, 17))


def _iter_ns(setup: PreparedScenario, bps: float | None = None) -> int:
    """Iteration time of the plan; `bps` replaces the bandwidth of the used link 0 > 1."""
    links = setup.wan.at(0)
    bandwidth = links.bandwidth_bps.copy()
    if bps is not None:
        bandwidth[USED] = bps
    estimator = Estimator(setup.cluster, setup.job)
    return estimator.iter_ns(_plan(setup), LinkState(bandwidth, links.latency_s))


def test_constant_links_give_exactly_the_whole_iterations_that_fit() -> None:
    setup = toy_setup(seconds=1_000)
    facts = play(setup, hold(_plan(setup)))
    one = _iter_ns(setup)
    assert durations(facts) == [one] * (to_ns(1_000) // one)
    assert totals(facts)["tokens"] == to_ns(1_000) // one * setup.job.tokens_per_iteration


def test_the_iteration_that_the_horizon_cuts_does_not_count_but_its_time_does() -> None:
    setup = toy_setup(seconds=100)
    facts = play(setup, hold(_plan(setup)))
    (cut,) = of_type(facts, "time_lost")
    assert cut.payload["reason"] == "horizon"
    assert cut.payload["lost_ns"] == to_ns(100) % _iter_ns(setup)


def test_an_iteration_that_ends_at_the_horizon_counts() -> None:
    setup = toy_setup()
    one = _iter_ns(setup)
    setup = toy_setup(seconds=3 * one / 1e9)
    facts = play(setup, hold(_plan(setup)))
    assert durations(facts) == [one] * 3
    assert of_type(facts, "time_lost") == []


def test_a_used_link_that_changes_changes_the_rest_of_the_iteration() -> None:
    steps = {USED: [(25.0, 5e8)]}
    setup = toy_setup(seconds=200, steps=steps)
    before, after = _iter_ns(setup), _iter_ns(setup, 5e8)
    done = to_ns(25) // before
    left = before - (to_ns(25) - done * before)
    mixed = before - left + round(left * after / before)
    facts = play(setup, hold(_plan(setup)))
    assert durations(facts)[:done] == [before] * done
    assert durations(facts)[done] == mixed
    assert set(durations(facts)[done + 1 :]) == {after}


def test_an_unused_link_that_changes_or_dies_changes_nothing() -> None:
    quiet = toy_setup(seconds=200)
    noisy = toy_setup(seconds=200, steps={UNUSED: [(20.0, 1e8), (40.0, 0.0)], (2, 0): [(50.0, 1e9)]})
    runs = [durations(play(setup, hold(_plan(setup)))) for setup in (quiet, noisy)]
    assert runs[0] == runs[1]


def test_training_stalls_while_a_used_link_is_dead_and_goes_on_where_it_was() -> None:
    steps = {USED: [(25.0, 0.0), (85.0, 2e9)]}
    setup = toy_setup(seconds=300, steps=steps)
    facts = play(setup, hold(_plan(setup)))
    one = _iter_ns(setup)
    slow = to_ns(25) // one
    assert durations(facts)[slow] == one + to_ns(60)
    assert totals(facts)["stalled_ns"] == to_ns(60)
    assert len(durations(facts)) == (to_ns(300) - to_ns(60)) // one


def test_a_job_whose_link_is_dead_from_the_start_waits_for_it() -> None:
    setup = toy_setup(seconds=100, steps={USED: [(30.0, 2e9)]}, bps=2e9)
    dead = toy_setup(seconds=100, steps={USED: [(1e-9, 0.0), (30.0, 2e9)]})
    facts = play(dead, hold(_plan(setup)))
    assert totals(facts)["stalled_ns"] == to_ns(30) - 1
    assert len(durations(facts)) == (to_ns(70)) // _iter_ns(setup)


@pytest.mark.parametrize("period_s", [7.0, 33.3, 500.0])
def test_decisions_that_hold_do_not_disturb_the_count(period_s: float) -> None:
    setup = toy_setup(seconds=1_000, control={"period_s": period_s})
    facts = play(setup, hold(_plan(setup)))
    assert len(durations(facts)) == to_ns(1_000) // _iter_ns(setup)
