"""Queues with power: limits and delays compose with orders and backfills."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from tests.support.queues import POOL, RECIPES, queues
from twin.power.deferral import HOUR_NS, SignalForecast
from twin.power.powered_queue import PowerChoices, simulate_with_power
from twin.power.signals import CARBON, Signal, constant
from twin.power.site_power import PowerModel
from twin.power.step_series import StepSeries
from twin.power.swing import largest_rise
from twin.queue.jobs import QueueJobs
from twin.queue.simulation import simulate

MODEL = PowerModel.of_watts("test", 50, 300)
NAMES = ("fcfs", "easy", "saf+easy", "easy-sjbf", "conservative", "wfp3+easy")


@pytest.mark.parametrize("name", NAMES)
@given(jobs=queues(), forecast=st.sampled_from(get_args(SignalForecast)), longest=st.integers(0, 50))
@settings(max_examples=10, deadline=None)
def test_constant_intensity_gives_the_same_schedule_and_exactly_e_times_c(
    name: str, jobs: QueueJobs, forecast: str, longest: int
) -> None:
    carbon = constant(CARBON, 412.5)
    choices = PowerChoices(
        MODEL, carbon=carbon, defer="carbon", longest_ns=longest * HOUR_NS, forecast=forecast
    )  # type: ignore[arg-type]
    done = simulate_with_power(jobs, POOL, RECIPES[name], choices)
    assert done.schedule.start_ns.tolist() == simulate(jobs, POOL, RECIPES[name]).start_ns.tolist()
    assert carbon.caused(done.power.meter) == done.power.meter.integral * 412_500_000


@pytest.mark.parametrize("name", [name for name in NAMES if name != "conservative"])
@given(jobs=queues(), cap_w=st.integers(2400, 3000), rise_w=st.integers(2000, 3000))
@settings(max_examples=10, deadline=None)
def test_limits_are_kept(name: str, jobs: QueueJobs, cap_w: int, rise_w: int) -> None:
    choices = PowerChoices(MODEL, cap_w=cap_w, rise_w=rise_w, window_s=7)
    done = simulate_with_power(jobs, POOL, RECIPES[name], choices)
    assert done.power.meter.value.max() <= cap_w * 1000
    assert largest_rise(done.power.meter, 7 * 10**9) <= rise_w * 1000
    assert (done.schedule.start_ns >= done.schedule.jobs.submit_ns).all()


def test_a_clean_hour_is_waited_for_and_waits_count_from_the_submission() -> None:
    carbon = Signal(
        CARBON, "test", StepSeries(np.array([0, 1, 2]) * HOUR_NS, np.array([9, 1, 9]), 9 * HOUR_NS)
    )
    jobs = QueueJobs.of_seconds([0, 60], [3600, 600], [8, 8])
    choices = PowerChoices(MODEL, carbon=carbon, defer="carbon", longest_ns=6 * HOUR_NS, forecast="actual")
    done = simulate_with_power(jobs, POOL, RECIPES["fcfs"], choices)
    assert (done.released_ns // 10**9).tolist() == [3600, 3600]
    assert (done.schedule.start_ns // 10**9).tolist() == [3600, 7200]
    assert done.schedule.jobs.submit_ns.tolist() == jobs.submit_ns.tolist()


def test_what_cannot_be_kept_is_refused() -> None:
    jobs = QueueJobs.of_seconds([0], [5], [8])
    with pytest.raises(UsageError, match="the power cap leaves 1"):
        simulate_with_power(jobs, POOL, RECIPES["easy"], PowerChoices(MODEL, cap_w=2000))
    with pytest.raises(UsageError, match="promises starts, which a ramp limit can move"):
        simulate_with_power(
            jobs, POOL, RECIPES["conservative"], PowerChoices(MODEL, rise_w=9000, window_s=60)
        )
    with pytest.raises(UsageError, match="--defer price needs --price"):
        PowerChoices(MODEL, carbon=constant(CARBON, 5), defer="price")
