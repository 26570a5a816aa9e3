"""Figures of power of a schedule that is found by hand."""

import pytest

from policy.queue.registry import recipe
from twin.power.figures import power_figures
from twin.power.powered_queue import PowerChoices, simulate_with_power
from twin.power.signals import CARBON, PRICE, constant
from twin.power.site_power import PowerModel
from twin.queue.jobs import QueueJobs


def test_figures_are_those_of_the_meter() -> None:
    choices = PowerChoices(
        PowerModel.of_watts("test", 100, 600), carbon=constant(CARBON, 500), price=constant(PRICE, -20)
    )
    jobs = QueueJobs.of_seconds([0, 1800], [3600, 3600], [1, 1])
    found = power_figures(simulate_with_power(jobs, 2, recipe("fcfs"), choices), choices)
    # 200 W idle, and 500 W for two jobs of an hour each, over an hour and a half.
    assert found.energy_kwh == pytest.approx(0.2 * 1.5 + 1.0)
    assert found.mean_kw == pytest.approx(1.3 / 1.5) and found.peak_kw == 1.2
    assert found.carbon_kg == pytest.approx(0.65) and found.cost_usd == pytest.approx(-0.026)
    assert [one.rise_w for one in found.ramps] == [500] * 4
    assert found.exact["carbon_pj_ug_per_kwh"] == found.exact["energy_pj"] * 500_000_000
    assert (found.deferred, found.avg_delay_s) == (0, 0)
    assert found.to_json()["exact"]["energy_pj"] == str(found.exact["energy_pj"])
