"""Power of small schedules, by hand."""

import numpy as np
import pytest

from ingest.core.errors import UsageError
from policy.queue.registry import recipe
from twin.power.conversion import SUPPLIES, ConversionChain, Overhead
from twin.power.site_power import PowerModel, site_power
from twin.queue.jobs import QueueJobs
from twin.queue.simulation import simulate

S = 10**9
DONE = simulate(QueueJobs.of_seconds([10, 12], [5, 4], [2, 3]), 4, recipe("fcfs"))
"""The second job waits for the first: 10 to 15, and 15 to 19."""


def test_power_is_that_of_idle_processors_and_jobs() -> None:
    power = site_power(DONE, PowerModel.of_watts("test", 50, 300, ConversionChain((Overhead("PUE", 1.5),))))
    assert (power.jobs.at_ns.tolist(), power.jobs.value.tolist()) == ([10 * S, 15 * S], [500_000, 750_000])
    assert power.computers.value.tolist() == [700_000, 950_000]
    assert power.meter.value.tolist() == [1_050_000, 1_425_000]
    assert power.meter.integral == S * (5 * 1_050_000 + 4 * 1_425_000)


def test_power_supplies_are_rated_for_twice_the_busy_power() -> None:
    model = PowerModel.of_watts("test", 50, 300).with_supplies(4, SUPPLIES["titanium"])
    # rated for 2,400 W: 700 W are a load of 0.2917, between 94 % at 0.2 and 96 % at 0.5
    assert site_power(DONE, model).meter.value[0] == round(700_000 / (0.94 + (700 / 2400 - 0.2) / 0.3 * 0.02))


def test_the_energy_of_jobs_sums_to_the_site() -> None:
    power = site_power(DONE, PowerModel.of_watts("test", 0, 123.457))
    own = sum(int(p) * int(t) for p, t in zip(power.job_mw, DONE.jobs.run_ns, strict=True))
    assert own == power.jobs.integral == power.meter.integral


def test_a_busy_processor_draws_no_less_than_an_idle_one() -> None:
    with pytest.raises(UsageError, match="at least as much busy as idle"):
        PowerModel.of_watts("mine", 300, 200)
    with pytest.raises(UsageError, match="nan W for a processor"):
        PowerModel.of_watts("mine", float("nan"), 200)


def test_jobs_that_take_no_time_add_nothing() -> None:
    done = simulate(QueueJobs.of_seconds([0, 0], [0, 3], [1, 1], [1, 3]), 4, recipe("fcfs"))
    assert site_power(done, PowerModel("test", 0, 9)).jobs.integral == 9 * 3 * S
    assert np.array_equal(site_power(done, PowerModel("test", 0, 9)).jobs.at_ns, [0])
