from dataclasses import replace

import numpy as np
import pytest

from ingest.core.units import NS_PER_S
from tests.support.plays import of_type, plan_over, play
from tests.support.worlds import toy_setup
from twin.core.facts import Trigger
from twin.core.plan import Plan
from twin.filters.slowdown_filter import LEAST_CHANGE, SlowdownFilter

S = NS_PER_S


def test_nothing_measured_is_nominal() -> None:
    assert SlowdownFilter(3).factor(0).tolist() == [1.0, 1.0, 1.0]


def test_a_straggler_is_seen_at_once_where_step_times_do_not_scatter_and_forgotten_when_unused() -> None:
    slowness = SlowdownFilter(2)
    slowness.observe(60 * S, np.array([1.5, np.nan]))
    assert slowness.factor(60 * S) == pytest.approx([1.5, 1.0], rel=0.02)
    slowness.observe(120 * S, np.array([1.5, np.nan]))
    assert slowness.factor(120 * S)[0] == slowness.factor(60 * S)[0]  # no new search for half a per cent
    assert slowness.factor(12 * 3600 * S).tolist() == [1.0, 1.0]


def test_scatter_of_step_times_is_no_slowdown() -> None:
    rng, slowness = np.random.default_rng(0), SlowdownFilter(1, scatter=0.15)
    seen, alarms = [], 0
    for k in range(300):
        slowness.observe(k * 60 * S, np.exp(0.05 * rng.standard_normal(1)))
        alarms += len(slowness.moved(k * 60 * S, 0.25))
        seen.append(float(slowness.factor(k * 60 * S)[0]))
    assert alarms == 0
    assert np.mean(np.array(seen) == 1.0) > 0.5 and max(seen) < 1.15
    for k in range(300, 304):
        slowness.observe(k * 60 * S, np.array([2.0]))
    assert slowness.moved(304 * 60 * S, 0.25) == [0]


def test_what_is_told_moves_in_steps_that_matter() -> None:
    slowness = SlowdownFilter(1)
    told = []
    for k in range(200):
        slowness.observe(k * 60 * S, np.array([1 + k / 400]))
        told.append(float(slowness.factor(k * 60 * S)[0]))
    different = np.unique(told)
    assert 4 < len(different) < 12
    assert (different[1:] / different[:-1] - 1).min() > LEAST_CHANGE


def test_policies_see_what_jitter_and_a_straggler_make_of_their_iterations() -> None:
    """Straggler of factor 2 on top of measured-like scatter: told within a fifth, never in advance."""
    slow = [{"domain": "d0", "factor": 2.0, "at_s": 600, "for_s": 600}]
    setup = toy_setup(seconds=1800, slowdowns=slow, control={"period_s": 60})
    setup = replace(setup, jitter=np.array([0.9, 1.0, 1.05, 1.2]))
    plan = plan_over(setup, (0, 1), (17, 17))
    seen: dict[float, float] = {}

    def answer(trigger: Trigger) -> Plan | None:
        assert trigger.view is not None
        seen[trigger.sim_ns / S] = float(trigger.view.slowdown[0])
        return plan if trigger.payload["trigger"] == "start" else None

    facts = play(setup, answer)
    assert len(of_type(facts, "domain_slowed")) == 2
    assert all(0.85 < value < 1.2 for at, value in seen.items() if at <= 600)
    assert all(1.6 < value < 2.4 for at, value in seen.items() if 720 < at <= 1200)
    assert all(0.85 < value < 1.2 for at, value in seen.items() if at > 1320)
