"""Signals of samples: exact amounts, gaps and wrong samples named."""

import numpy as np
import pytest

from ingest.core.errors import InputError, UsageError
from twin.power.signals import CARBON, PRICE, constant, of_samples
from twin.power.step_series import StepSeries

H = 3600 * 10**9
HOURS = np.arange(5) * H
POWER = StepSeries(np.array([0, H]), np.array([2_000_000, 1_000_000]), 3 * H)
"""2 kW for an hour, 1 kW for two."""


def test_amounts_are_grams_and_dollars() -> None:
    carbon = of_samples(CARBON, "DE", HOURS, [100.0, 300.0, 50.5, 0.0, 0.0], None)
    assert CARBON.amount(carbon.caused(POWER)) == 2 * 100 + 300 + 50.5
    price = of_samples(PRICE, "DE-LU", HOURS, [1000.0, -500.0, 0.0, 1.0, 1.0], None)
    assert PRICE.amount(price.caused(POWER)) == pytest.approx(2 * 1.0 - 0.5)


def test_a_constant_rate_causes_energy_times_rate() -> None:
    assert constant(CARBON, 321.5).caused(POWER) == POWER.integral * 321_500_000


def test_a_later_begin_keeps_what_was_before() -> None:
    later = of_samples(CARBON, "DE", HOURS, [1.0, 2.0, 3.0, 4.0, 5.0], int(1.5 * H))
    assert later.series.at(np.array([-2 * H, 0, H // 2, H])).tolist() == [1e6, 2e6, 3e6, 3e6]
    assert later.series.end_ns == 3.5 * H


def test_a_gap_ends_the_signal_and_is_named() -> None:
    gap = np.array([0, 1, 2, 5, 6, 7, 8]) * H
    cut = of_samples(CARBON, "DE", gap, np.ones(7), None)
    with pytest.raises(UsageError, match="no value from 1970-01-01 03:00 UTC to 1970-01-01 05:00 UTC; begin"):
        cut.check_covers(4 * H)
    cut.check_covers(3 * H)
    with pytest.raises(
        UsageError, match=r"not known at 1970-01-01 04:00 UTC.*the first gap from 1970-01-01 03"
    ):
        of_samples(CARBON, "DE", gap, np.ones(7), 4 * H)
    assert of_samples(CARBON, "DE", gap, np.ones(7), 5 * H).series.end_ns == 4 * H


def test_wrong_samples_are_refused() -> None:
    with pytest.raises(InputError, match="two values at 1970-01-01 00:00 UTC"):
        of_samples(CARBON, "DE", np.array([0, 0, H]), [1.0, 2.0, 3.0], None)
    with pytest.raises(InputError, match="cannot be"):
        of_samples(CARBON, "DE", HOURS, [1.0, -1.0, 3.0, 1.0, 1.0], None)
    with pytest.raises(InputError, match="1 samples"):
        of_samples(CARBON, "DE", HOURS[:1], [1.0], None)
    with pytest.raises(UsageError, match="give a number that can be"):
        constant(CARBON, -1.0)
    assert constant(PRICE, -1.0).series.value.tolist() == [-1_000_000]
