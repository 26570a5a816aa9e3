"""Accounts that sum to the integrals of their site to the last digit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.queue.registry import recipe
from tests.support.queues import POOL, queues
from twin.power.accounts import NOBODY, accounts, apportioned, charged, totals
from twin.power.conversion import TITANIUM, ConversionChain, EfficiencyCurve, Overhead
from twin.power.signals import CARBON, PRICE, Signal, constant
from twin.power.site_power import PowerModel, site_power
from twin.power.step_series import StepSeries
from twin.queue.jobs import QueueJobs
from twin.queue.simulation import simulate

S = 10**9
CHAIN = ConversionChain((EfficiencyCurve("supplies", 9_000_000, TITANIUM), Overhead("PUE", 1.234)))


def test_two_jobs_share_what_is_nobodys_by_their_power() -> None:
    done = simulate(QueueJobs.of_seconds([0, 0], [10, 10], [1, 3]), 4, recipe("fcfs"))
    power = site_power(done, PowerModel("test", 1000, 2000, ConversionChain((Overhead("PUE", 2.0),))))
    # The site draws 2 x (4 + 8) W for 10 s, jobs add 2 and 6 W of it.
    amounts = charged(done, power, constant(CARBON, 100.0))
    assert amounts.own_pj.tolist() == [20 * 10**12, 60 * 10**12]
    assert amounts.energy_pj.tolist() == [60 * 10**12, 180 * 10**12]
    assert amounts.carbon is not None and amounts.carbon.tolist() == [6 * 10**21, 18 * 10**21]
    assert amounts.idle == (0, 0, None)


def test_what_is_drawn_while_nobody_runs_is_nobodys() -> None:
    done = simulate(QueueJobs.of_seconds([0, 30], [10, 10], [1, 1]), 1, recipe("fcfs"))
    power = site_power(done, PowerModel("test", 1000, 0))
    amounts = charged(done, power)
    assert amounts.idle[0] + sum(amounts.energy_pj.tolist()) == power.meter.integral == 40 * 10**12


@st.composite
def rates(draw: st.DrawFn) -> StepSeries:
    lasts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    value = draw(st.lists(st.integers(-5 * 10**8, 5 * 10**8), min_size=len(lasts), max_size=len(lasts)))
    at = np.cumsum([0, *lasts[:-1]]) * S
    return StepSeries(at.astype(np.int64), np.array(value, np.int64), 10**8 * S)


@given(
    jobs=queues(), idle=st.integers(0, 10**6), busy=st.integers(0, 10**6), intensity=rates(), price=rates()
)
@settings(max_examples=60, deadline=None)
def test_accounts_sum_to_the_site_to_the_last_digit(
    jobs: QueueJobs, idle: int, busy: int, intensity: StepSeries, price: StepSeries
) -> None:
    done = simulate(jobs, POOL, recipe("easy"))
    power = site_power(done, PowerModel("test", idle, busy, CHAIN))
    carbon = Signal(CARBON, "test", intensity.mapped(np.abs(intensity.value)))
    usd = Signal(PRICE, "test", price)
    amounts = charged(done, power, carbon, usd)
    site = totals(accounts(amounts, [str(user) for user in done.jobs.user]))
    assert site.energy_pj == power.meter.integral
    assert site.carbon == carbon.caused(power.meter)
    assert site.cost == usd.caused(power.meter)
    assert site.gpu_ns == sum(
        int(n) * int(t) for n, t in zip(done.jobs.processors, done.jobs.run_ns, strict=True)
    )
    assert site.jobs == len(jobs)
    plain = power.meter.times(StepSeries(np.array([0]), np.array([7]), 1))
    assert charged(done, power, constant(CARBON, 7e-6)).energy_pj.sum() * 7 + 7 * amounts.idle[0] == plain


def test_constant_intensity_gives_energy_times_intensity_for_each_account() -> None:
    jobs = QueueJobs.of_seconds([0, 5, 5], [9, 30, 7], [2, 5, 8], user=[1, 2, 2])
    done = simulate(jobs, POOL, recipe("easy"))
    power = site_power(done, PowerModel("test", 50_000, 300_000, CHAIN))
    for one in accounts(charged(done, power, constant(CARBON, 400.0)), ["1", "2", "2"]):
        assert one.carbon is not None and abs(one.carbon - one.energy_pj * 400 * 10**6) <= 400 * 10**6 * 10**6
    assert totals(accounts(charged(done, power, constant(CARBON, 400.0)), ["1", "2", "2"])).carbon == (
        power.meter.integral * 400 * 10**6
    )


def test_shares_sum_to_the_total_whatever_floats_lose() -> None:
    shares = apportioned(10**30 + 7, np.array([2.0, 1.0, 0.0]) * 1e30 / 3)
    assert sum(shares.tolist()) == 10**30 + 7 and shares[2] == 0
    assert apportioned(-3, np.zeros(2)).tolist() == [-1, -2]


def test_the_idle_site_has_an_account_at_the_end() -> None:
    done = simulate(QueueJobs.of_seconds([0, 30], [10, 10], [1, 1]), 1, recipe("fcfs"))
    found = accounts(charged(done, site_power(done, PowerModel("test", 1000, 500))), ["a", "b"])
    assert [one.name for one in found] == ["a", "b", NOBODY]
    assert found[-1].to_json()["energy_kwh"] == 20 / 3.6e6
