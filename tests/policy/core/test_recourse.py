"""Leaving a plan later: when it pays, what it costs, and that the best plan of each scenario is taken."""

from itertools import product

import numpy as np
import pytest

from policy.core.objective import Objective, PlanOutcome
from policy.core.recourse import TwoStageProgram

SPEED = Objective((1.0, 0.0, 0.0), PlanOutcome(10.0, 0.5, 1.0))


def program(rates: list[list[list[float]]], pause: list[float] | None = None) -> TwoStageProgram:
    """Plans with rates (P, S, N) in slices of 100 s; an iteration computes 1 s and costs 0.1 USD."""
    made = np.array(rates)
    plans = len(made)
    edges = 100.0 * np.arange(made.shape[1] + 1)
    zeros = np.zeros(plans)
    return TwoStageProgram(edges, made, np.array(pause or zeros), zeros, np.ones(plans), np.full(plans, 0.1))


def between(plans: int, seconds: float) -> np.ndarray:
    return seconds * (1 - np.eye(plans))


def test_a_kept_plan_has_its_mean_rate_after_its_pause() -> None:
    expected = program([[[0.1, 0.3], [0.1, 0.3]]], pause=[50.0]).without_recourse()
    assert expected[0] == pytest.approx([30.0, 30.0, 3.0])


def test_a_plan_that_may_be_left_is_worth_more_than_one_that_must_be_kept() -> None:
    # The first plan is better in half of all cases and stops in the others; the second is steady.
    made = program([[[0.4, 0.4], [0.4, 0.0], [0.4, 0.0]], [[0.3, 0.3], [0.3, 0.3], [0.3, 0.3]]])
    assert made.without_recourse()[:, 0].tolist() == pytest.approx([80.0, 90.0])
    best = made.best_somewhere(SPEED)
    assert best.tolist() == [0, 1]
    none = np.zeros((2, 2))
    expected = made.with_recourse(best, between(2, 20.0), none, SPEED)[:, 0]
    # Left when the last slice begins: 40, then 80 s of the other; 120 where it never stops. The steady one is
    # left for it.
    assert expected[0] == pytest.approx((120.0 + 40.0 + 24.0) / 2)
    assert expected[1] == pytest.approx((60.0 + 0.4 * 80.0 + 90.0) / 2)


def test_a_move_that_takes_too_long_is_not_made() -> None:
    made = program([[[0.4], [0.0]], [[0.3], [0.3]]])
    expected = made.with_recourse(np.array([0, 1]), between(2, 100.0), np.zeros((2, 2)), SPEED)
    assert expected[:, 0] == pytest.approx([40.0, 60.0])


def test_the_pause_now_delays_leaving() -> None:
    made = program([[[0.4], [0.0], [0.0]], [[0.3], [0.3], [0.3]]], pause=[250.0, 0.0])
    expected = made.with_recourse(np.array([1]), np.zeros((2, 1)), np.zeros((2, 1)), SPEED)
    assert expected[0, 0] == pytest.approx(0.3 * 50.0)


def test_costs_decide_where_they_have_weight() -> None:
    made = program([[[0.4], [0.1]], [[0.3], [0.3]]])
    dear = Objective((0.0, 0.0, 1.0), PlanOutcome(10.0, 0.5, 1.0))
    both = np.array([0, 1])
    kept = made.with_recourse(both, np.zeros((2, 2)), 9.0 * between(2, 1.0), dear)
    assert kept == pytest.approx(made.without_recourse())  # the egress of a move is never earned back
    assert made.with_recourse(both, np.zeros((2, 2)), 9.0 * between(2, 1.0), SPEED)[0, 2] == pytest.approx(
        16.0
    )


def test_each_scenario_takes_its_best_answer() -> None:
    rng = np.random.default_rng(5)
    objective = Objective((0.5, 0.2, 0.3), PlanOutcome(5.0, 0.5, 0.3))
    rates = rng.uniform(0.0, 0.5, (4, 3, 2)) * (rng.random((4, 3, 2)) > 0.2)
    pause, moved = rng.uniform(0, 150, 4), rng.uniform(0, 2, 4)
    busy, usd = rng.uniform(0.5, 1.5, 4), rng.uniform(0.1, 0.5, 4)
    edges = np.array([0.0, 50.0, 120.0, 300.0])
    later_s, later_usd = rng.uniform(0, 150, (4, 2)), rng.uniform(0, 2, (4, 2))
    others = np.array([1, 3])
    got = TwoStageProgram(edges, rates, pause, moved, busy, usd).with_recourse(
        others, later_s, later_usd, objective
    )

    def work(p: int, n: int, start: float, end: float) -> float:
        inside = np.diff(np.clip(edges, start, max(start, end)))
        return float(inside @ rates[p, :, n])

    for p in range(4):
        total = np.zeros(3)
        for n in range(2):
            alone = work(p, n, pause[p], 300.0)
            paths = [np.array([alone, busy[p] * alone, moved[p] + usd[p] * alone])]
            for x, edge in product(range(2), edges[-2:-1]):
                begin = max(edge, pause[p]) + later_s[p, x]
                first, then = work(p, n, pause[p], edge), work(others[x], n, begin, 300.0)
                if begin < 300.0:
                    cost = moved[p] + usd[p] * first + later_usd[p, x] + usd[others[x]] * then
                    paths.append(np.array([first + then, busy[p] * first + busy[others[x]] * then, cost]))
            total += max(
                paths,
                key=lambda w: objective.value(
                    PlanOutcome(300 / w[0] if w[0] else np.inf, w[1] / 300, w[2] / w[0])
                ),
            )
        assert got[p] == pytest.approx(total / 2)
