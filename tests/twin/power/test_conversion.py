"""Conversion between the meter and the computers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from twin.power.conversion import TITANIUM, ConversionChain, EfficiencyCurve, Overhead

CHAIN = ConversionChain((EfficiencyCurve("supplies", 1_000_000, TITANIUM), Overhead("PUE", 1.2)))


def test_each_stage_takes_what_the_one_behind_it_draws() -> None:
    assert CHAIN.metered_mw(np.array([0, 500_000, 1_000_000])).tolist() == [
        0, round(1.2 * round(500_000 / 0.96)), round(1.2 * round(1_000_000 / 0.91)),
    ]  # fmt: skip


def test_without_stages_nothing_is_lost() -> None:
    assert ConversionChain().metered_mw(np.array([7])).tolist() == [7]


@given(metered=st.integers(0, 3_000_000))
def test_the_most_that_computers_may_draw_is_exact(metered: int) -> None:
    most = CHAIN.computers_mw(metered)
    low, high = CHAIN.metered_mw(np.array([most, most + 1])).tolist()
    assert low <= metered < high


def test_a_stage_that_gains_energy_is_refused() -> None:
    with pytest.raises(UsageError, match=r"PUE 0\.9: a site draws at least what it delivers"):
        Overhead("PUE", 0.9)
    with pytest.raises(UsageError, match="efficiencies in"):
        EfficiencyCurve("supplies", 1000, ((0.0, 0.5), (1.0, 1.1)))
    with pytest.raises(UsageError, match="draws less for more"):
        EfficiencyCurve("supplies", 1000, ((0.0, 0.01), (0.5, 0.02), (0.51, 1.0)))
