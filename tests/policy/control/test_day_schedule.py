"""The schedule of a day against every schedule there is."""

from itertools import product

import numpy as np
import pytest

from policy.control import day_schedule as module
from policy.control.day_schedule import HOUR_S, day_schedule

DAY = [1.0] * 12 + [3.0] * 12


def two_plans(pause_s: float) -> tuple[int, ...]:
    """The schedule where the first plan does 2 an hour always, and the second one 1 by night and 3 by day."""
    pauses = np.full((24, 2, 2), pause_s)
    pauses[:, [0, 1], [0, 1]] = 0.0
    return day_schedule(np.stack([np.full(24, 2.0), DAY], axis=1) / HOUR_S, pauses)


def test_the_best_plan_of_each_hour_runs_where_moves_are_free_or_pay() -> None:
    assert two_plans(0.0) == two_plans(0.25 * HOUR_S) == (0,) * 12 + (1,) * 12


def test_a_long_pause_lies_where_it_costs_least_and_nothing_moves_where_no_move_pays() -> None:
    # By day 12 are gained; an hour of pause costs 2 by night, before the day and after it.
    assert two_plans(2.9 * HOUR_S) == (0,) * 9 + (1,) * 15
    assert two_plans(3.1 * HOUR_S) == two_plans(30 * HOUR_S) == two_plans(np.inf) == (0,) * 24


def test_of_equal_plans_the_first_one_is_kept() -> None:
    pauses = np.full((24, 3, 3), 60.0)
    pauses[:, [0, 1, 2], [0, 1, 2]] = 0.0
    assert day_schedule(np.full((24, 3), 1.0), pauses) == (0,) * 24


def iterations(rates: np.ndarray, pauses_s: np.ndarray, schedule: tuple[int, ...]) -> float:
    """What a schedule does in a day, summed hour by hour."""
    done = 0.0
    for hour, plan in enumerate(schedule):
        left_s, at = float(pauses_s[hour, schedule[hour - 1], plan]), hour
        if left_s >= len(schedule) * HOUR_S:
            return -np.inf
        done += rates[hour, plan] * HOUR_S
        while left_s > 0:
            done -= rates[at % len(schedule), plan] * min(left_s, HOUR_S)
            left_s, at = left_s - HOUR_S, at + 1
    return done


@pytest.mark.parametrize("seed", range(20))
def test_no_schedule_does_more(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """In a day of five hours, with pauses from minutes to over a day, and plans that are dead for hours."""
    monkeypatch.setattr(module, "HOURS", 5)
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0, 1, (5, 3)) * (rng.uniform(size=(5, 3)) < 0.8)
    pauses = HOUR_S * 10 ** rng.uniform(-2, 0.9, (5, 3, 3))
    pauses[rng.uniform(size=pauses.shape) < 0.1] = np.inf
    pauses[:, [0, 1, 2], [0, 1, 2]] = 0.0
    most = max(iterations(rates, pauses, schedule) for schedule in product(range(3), repeat=5))
    assert iterations(rates, pauses, day_schedule(rates, pauses)) == pytest.approx(most)
