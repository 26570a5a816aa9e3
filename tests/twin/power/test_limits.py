"""Limits at the meter as limits of what jobs add."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from twin.power.conversion import TITANIUM, ConversionChain, EfficiencyCurve, Overhead
from twin.power.limits import PowerLimits, limits_at_meter
from twin.power.site_power import PowerModel
from twin.queue.jobs import QueueJobs

CHAIN = ConversionChain((EfficiencyCurve("supplies", 4_000_000, TITANIUM), Overhead("PUE", 1.3)))
MODEL = PowerModel.of_watts("test", 50, 350, CHAIN)


def test_a_cap_leaves_jobs_what_idle_nodes_and_losses_do_not_take() -> None:
    plain = PowerModel.of_watts("test", 50, 350)
    assert limits_at_meter(plain, 10, 1700, None, 0) == PowerLimits(cap_mw=1_200_000)
    pue = PowerModel.of_watts("test", 50, 350, ConversionChain((Overhead("PUE", 2.0),)))
    assert limits_at_meter(pue, 10, 1700, None, 0) == PowerLimits(cap_mw=350_000)


@given(start=st.integers(500_000, 3_500_000), rise_w=st.integers(1, 2000))
def test_a_ramp_limit_holds_at_the_meter_from_any_power(start: int, rise_w: int) -> None:
    limits = limits_at_meter(MODEL, 10, None, rise_w, 300)
    assert limits.rise_mw is not None and limits.window_ns == 300 * 10**9
    low, high = CHAIN.metered_mw(np.array([start, start + limits.rise_mw])).tolist()
    assert high - low <= rise_w * 1000 + 10


def test_a_cap_below_idle_power_is_refused() -> None:
    with pytest.raises(UsageError, match=r"power cap 0\.5 kW: the idle site draws 0\.7 kW; give more"):
        limits_at_meter(MODEL, 10, 500, None, 0)
    with pytest.raises(UsageError, match="both must be above 0"):
        limits_at_meter(MODEL, 10, None, -5, 60)


def test_a_job_that_can_never_start_is_named() -> None:
    jobs = QueueJobs.of_seconds([0, 0], [1, 1], [1, 9])
    with pytest.raises(UsageError, match=r"job 2 with 9 processors adds 2\.7 kW, the power cap leaves 2\.0"):
        PowerLimits(cap_mw=2_000_000).check(jobs, MODEL.of_jobs(jobs))
    with pytest.raises(UsageError, match=r"the ramp limit lets in 0\.1 kW"):
        PowerLimits(rise_mw=100_000).check(jobs, MODEL.of_jobs(jobs))
