"""Calibration on measured power: exact on a line, and blind to what comes later."""

from dataclasses import replace

import numpy as np
import pytest

from ingest.core.errors import InputError, UsageError
from twin.power.self_calibration import (
    LINE_ALONE,
    CalibrationSettings,
    MeasuredPower,
    calibrated,
    hourly_errors,
    last_power,
    mean_error_percent,
    with_utilisation,
)

RANDOM = np.random.default_rng(1)
USED = RANDOM.random(1200)
MEASURED = MeasuredPower(30.0, 5000 + 9000 * USED, USED)


def test_a_line_is_found_exactly() -> None:
    line = calibrated(MEASURED, 500, LINE_ALONE)
    assert (line.intercept_w, line.slope_w, line.residual_w) == (pytest.approx(5000), pytest.approx(9000), 0)
    assert mean_error_percent(hourly_errors(MEASURED, with_utilisation(MEASURED, LINE_ALONE))) < 1e-9


def test_the_residual_follows_a_site_that_moved() -> None:
    moved = replace(MEASURED, power_w=MEASURED.power_w + 700 * (np.arange(1200) >= 700))
    alone = mean_error_percent(hourly_errors(moved, with_utilisation(moved, LINE_ALONE)))
    both = mean_error_percent(hourly_errors(moved, with_utilisation(moved, CalibrationSettings())))
    assert both < alone


def test_a_calibration_does_not_see_what_comes_later() -> None:
    later = replace(MEASURED, power_w=np.where(np.arange(1200) < 720, MEASURED.power_w, 1.0))
    settings = CalibrationSettings()
    assert calibrated(later, 720, settings) == calibrated(MEASURED, 720, settings)
    assert np.array_equal(
        with_utilisation(later, settings)(720, 840), with_utilisation(MEASURED, settings)(720, 840)
    )
    assert np.array_equal(last_power(later)(720, 840), last_power(MEASURED)(720, 840))


def test_level_utilisation_gives_a_level_line() -> None:
    level = MeasuredPower(30.0, MEASURED.power_w, np.ones(1200))
    assert calibrated(level, 100, LINE_ALONE).slope_w == 0


def test_samples_must_be_measured() -> None:
    with pytest.raises(InputError, match="3 samples of power, 2 of utilisation"):
        MeasuredPower(30.0, np.ones(3), np.ones(2))
    with pytest.raises(InputError, match="not positive"):
        MeasuredPower(30.0, np.zeros(2), np.ones(2))
    with pytest.raises(UsageError, match="nothing is measured yet"):
        calibrated(MEASURED, 0, LINE_ALONE)
