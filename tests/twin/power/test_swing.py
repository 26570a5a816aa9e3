"""Ramps by hand and by trying every pair, and the swing of samples with a known period."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.core.errors import InputError
from twin.power.step_series import StepSeries
from twin.power.swing import iteration_swing, largest_rise, ramps, steps_of_samples


def series(levels: list[int], lasts: list[int]) -> StepSeries:
    at = np.cumsum([0, *lasts])
    return StepSeries(at[:-1], np.array(levels, np.int64), int(at[-1]))


def test_a_ramp_is_within_its_window() -> None:
    power = series([100, 0, 50, 120], [10, 10, 10, 10])
    assert largest_rise(power, 1) == 70
    assert largest_rise(power, 10) == 70  # the level of 0 ended ten earlier: just outside
    assert largest_rise(power, 11) == 120
    within = ramps(power.mapped(power.value * 1000), (1e-9,))[0]
    assert (within.rise_w, within.fall_w) == (70, 100)


@given(
    levels=st.lists(st.integers(0, 20), min_size=1, max_size=12),
    lasts=st.lists(st.integers(1, 6), min_size=12, max_size=12),
    window=st.integers(1, 30),
)
def test_no_pair_of_instants_rises_more(levels: list[int], lasts: list[int], window: int) -> None:
    power = series(levels, lasts[: len(levels)])
    at = power.at(np.arange(power.end_ns))
    # an instant stands for the time up to the next one, so the earliest that counts is w - 1 before
    pairs = [int(at[t] - at[s]) for t in range(len(at)) for s in range(max(0, t - window), t + 1)]
    assert largest_rise(power, window + 1) >= max(pairs) >= largest_rise(power, window)


def test_the_swing_of_iterations_has_their_period() -> None:
    time = np.arange(600) / 10
    power = 300 + 200 * (time % 2.0 < 1.4) + 5 * np.sin(40 * time)
    found = iteration_swing(time, power)
    assert found.period_s == pytest.approx(2.0, abs=0.11)
    assert found.swing_w == pytest.approx(200, abs=12)
    assert iteration_swing(time, np.full(600, 70.0)).period_s is None


def test_a_swing_needs_samples() -> None:
    with pytest.raises(InputError, match="3 samples of power; a swing needs at least 32"):
        iteration_swing([0, 1, 2], [5, 5, 5])


def test_the_telemetry_that_ships_swings(repository: Path) -> None:
    path = repository / "traces/telemetry-nvidia-h200/gpu_samples.csv"
    with path.open(encoding="utf-8") as file:
        power = np.array([float(row["power_w"]) for row in csv.DictReader(file)])
    found = iteration_swing(np.arange(len(power)) / 5, power)
    assert 0 < found.swing_w < power.max() - power.min() + 1


def test_samples_hold_to_the_next() -> None:
    made = steps_of_samples(np.array([0, 4, 6]), np.array([3, 5, 9]))
    assert made.integral == 3 * 4 + 5 * 2
