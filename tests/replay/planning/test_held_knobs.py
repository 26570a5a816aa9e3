"""Knobs are those for the links of the last decision: slower than foresight only where links move."""

import numpy as np
import pytest

from policy.control.long_run import LongRunRates
from policy.core.reference_plan import equal_cuts
from replay.planning.held_knobs import held_rates
from replay.planning.record import Record, decisions
from tests.support.worlds import toy_setup
from twin.core.link_history import LinkHistory
from twin.estimation.link_state_times import States

STEP_S = 30.0


def record(direct_bps: list[float]) -> Record:
    """Three domains; the link 0-1 has these bandwidths, one a sample, and the others 4 Gb/s."""
    setup = toy_setup(3, weights={"efficiency": 1.0})
    bandwidth = np.full((len(direct_bps), 3, 3), 4e9)
    bandwidth[:, [0, 1], [1, 0]] = np.array(direct_bps)[:, None]
    bandwidth[:, range(3), range(3)] = np.inf
    latency = np.where(np.eye(3) > 0, 0.0, 0.02) * np.ones((len(direct_bps), 1, 1))
    history = LinkHistory(STEP_S, bandwidth, latency, 0)
    states = States(bandwidth, latency)
    return Record(setup.scenario, setup.estimator(), states, history, "toy", "all", 0.0, "")


def test_decisions_come_with_their_period_and_when_a_link_moves() -> None:
    made = record([4e9, 4e9, 4e9, 4e9, 2e9, 2e9, 2e9])  # a period is two samples
    assert decisions(made).tolist() == [0, 0, 2, 2, 4, 4, 6]


def test_where_nothing_moves_rates_are_those_with_foresight() -> None:
    made = record([1e9] * 8)
    plan = equal_cuts(made.estimator, [0, 1], [4, 4, 0])
    best, rates = held_rates(made, plan, 8)
    expected, foreseen = LongRunRates(made.estimator, made.states).turned_in_each(plan)
    assert best == expected and rates == pytest.approx(foreseen)


def test_after_a_fall_the_old_choice_holds_until_the_next_decision() -> None:
    made = record([8e9] * 5 + [0.2e9] * 5)
    plan = equal_cuts(made.estimator, [0, 1], [4, 4, 0])
    _, rates = held_rates(made, plan, 10)
    _, foreseen = LongRunRates(made.estimator, made.states).turned_in_each(plan)
    assert (rates <= foreseen * (1 + 1e-9)).all()
    assert rates[5] < 0.5 * foreseen[5]  # direct, where the relay is twenty times as wide
    assert rates[[0, -1]] == pytest.approx(foreseen[[0, -1]])
