"""Accounts of users and groups: GPU time, energy, carbon and money, which sum to the site's exactly.

What a job adds while it runs is its own: exact integers, power x time and power x signal. Idle power,
conversion and cooling belong to nobody; at every instant they are shared among the jobs that run, in
proportion to the power that each adds. Shares are rounded to whole units (picojoules, and picojoules x
micro-rate), and what rounding leaves is spread over the jobs, so that nothing is lost.
What the site draws while no job runs is the account of nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twin.power.signals import CARBON, PRICE, Signal
from twin.power.site_power import SitePower
from twin.power.step_series import PJ_PER_J, Int, StepSeries
from twin.queue.simulation import QueueSchedule

Exact = NDArray[Any]
"""Exact integers (n,) as objects."""
NOBODY = "idle site"
"""Account of the power that is drawn while no job runs."""


@dataclass(frozen=True, eq=False)
class JobAmounts:
    """Amounts that each job (n,) is charged, exact: GPU time, processors x nanoseconds; energy at the meter,
    picojoules, of which `own_pj` is what it adds; carbon and money, picojoules x micro-rate, None where no
    signal is given. `idle`: the same of the time in which no job runs."""

    gpu_ns: Exact
    own_pj: Exact
    energy_pj: Exact
    carbon: Exact | None
    cost: Exact | None
    idle: tuple[int, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Account:
    """Amounts that one user, group or the idle site has had; exact integers as in `JobAmounts`."""

    name: str
    jobs: int
    gpu_ns: int
    energy_pj: int
    carbon: int | None
    cost: int | None

    def to_json(self) -> dict[str, Any]:
        """Returns the account in hours, kilowatt-hours, grams and dollars, and its exact integers."""
        return {
            "name": self.name, "jobs": self.jobs, "gpu_h": self.gpu_ns / 3.6e12,
            "energy_kwh": self.energy_pj / PJ_PER_J / 3.6e6,
            "carbon_g": None if self.carbon is None else CARBON.amount(self.carbon),
            "cost_usd": None if self.cost is None else PRICE.amount(self.cost),
            "exact": {
                "gpu_ns": self.gpu_ns, "energy_pj": str(self.energy_pj),
                "carbon_pj_ug_per_kwh": _said(self.carbon), "cost_pj_uusd_per_mwh": _said(self.cost),
            },
        }  # fmt: skip


def _said(exact: int | None) -> str | None:
    return None if exact is None else str(exact)


def charged(
    done: QueueSchedule, power: SitePower, carbon: Signal | None = None, price: Signal | None = None
) -> JobAmounts:
    """Returns what each job is charged of the power of its site."""
    own = power.job_mw.astype(object)
    flat = StepSeries(np.array([power.meter.begin_ns]), np.ones(1, np.int64), power.meter.end_ns)
    own_pj = own * done.jobs.run_ns.astype(object)
    energy, idle_pj = _shared(done, power, flat, own_pj)
    amounts: list[tuple[Exact | None, int | None]] = []
    for signal in (carbon, price):
        if signal is None:
            amounts.append((None, None))
            continue
        signal.check_covers(power.meter.end_ns)
        mine = own * signal.series.between(done.start_ns, done.end_ns)
        amounts.append(_shared(done, power, signal.series, mine))
    gpu_ns = done.jobs.processors.astype(object) * done.jobs.run_ns.astype(object)
    (grams, idle_g), (usd, idle_usd) = amounts
    return JobAmounts(gpu_ns, own_pj, energy, grams, usd, (idle_pj, idle_g, idle_usd))


def _shared(done: QueueSchedule, power: SitePower, rate: StepSeries, own: Exact) -> tuple[Exact, int]:
    """Returns what each job owes, its own and its share of the rest, and what nobody owes; all of it sums to
    the integral of the meter x rate."""
    total = power.meter.times(rate)
    resting = power.meter.mapped(np.where(power.jobs.value == 0, power.meter.value, 0))
    idle = resting.times(rate)
    rest = total - idle - int(own.sum())
    if not len(own) or not power.jobs.value.any():
        return own, idle + rest
    weight = power.job_mw * (_density(power, rate, done.end_ns) - _density(power, rate, done.start_ns))
    return own + apportioned(rest, weight), idle


def _density(power: SitePower, rate: StepSeries, times_ns: Int) -> NDArray[np.float64]:
    """Returns the integral of rate x what is shared for each milliwatt of jobs, up to each time."""
    busy = power.jobs.value > 0
    shared = np.where(busy, power.meter.value - power.jobs.value, 0) / np.where(busy, power.jobs.value, 1)
    inside = rate.at_ns[(rate.at_ns > power.jobs.begin_ns) & (rate.at_ns < power.jobs.end_ns)]
    at = np.union1d(power.jobs.at_ns, inside)
    each = shared[np.searchsorted(power.jobs.at_ns, at, side="right") - 1] * rate.at(at)
    knots = np.append(0.0, np.cumsum(each * np.diff(np.append(at, power.jobs.end_ns)).astype(np.float64)))
    place = np.maximum(np.searchsorted(at, times_ns, side="right") - 1, 0)
    found: NDArray[np.float64] = knots[place] + each[place] * (times_ns - at[place])
    return found


def apportioned(total: int, weight: NDArray[np.float64]) -> Exact:
    """Returns whole shares (n,) near `weight` that sum to `total` exactly.

    `weight` sums to it but for the rounding of floats; what is left is spread evenly over the shares that are
    not 0, the first ones take what does not divide.
    """
    shares: Exact = np.array([round(one) for one in weight.tolist()], object)
    taking = np.flatnonzero(weight != 0)
    taking = taking if len(taking) else np.arange(len(weight))
    each, more = divmod(total - int(shares.sum()), len(taking))
    shares[taking] += each
    shares[taking[:more]] += 1
    return shares


def accounts(amounts: JobAmounts, owner: Sequence[str], of_runs: Int | None = None) -> tuple[Account, ...]:
    """Returns an account for each owner of jobs (n,), most energy first; the last one is that of the idle
    site, if it drew anything. Amounts are those of jobs, or of runs, whose jobs `of_runs` (r,) names."""
    places: dict[str, list[int]] = {}
    job_of = list(range(len(owner))) if of_runs is None else of_runs.tolist()
    for at, job in enumerate(job_of):
        places.setdefault(owner[job], []).append(at)
    made = [_account(name, len({job_of[at] for at in mine}), mine, amounts) for name, mine in places.items()]
    made.sort(key=lambda one: (-one.energy_pj, one.name))
    energy_pj, carbon, cost = amounts.idle
    if energy_pj:
        made.append(Account(NOBODY, 0, 0, energy_pj, carbon, cost))
    return tuple(made)


def _account(name: str, jobs: int, places: list[int], amounts: JobAmounts) -> Account:
    def summed(column: Exact | None) -> int | None:
        return None if column is None else int(column[places].sum())

    gpu_ns, energy_pj = summed(amounts.gpu_ns), summed(amounts.energy_pj)
    assert gpu_ns is not None and energy_pj is not None
    return Account(name, jobs, gpu_ns, energy_pj, summed(amounts.carbon), summed(amounts.cost))


def totals(held: Sequence[Account]) -> Account:
    """Returns the sum of accounts."""

    def summed(column: list[int | None]) -> int | None:
        known = [one for one in column if one is not None]
        return sum(known) if known else None

    return Account(
        "site", sum(one.jobs for one in held), sum(one.gpu_ns for one in held),
        sum(one.energy_pj for one in held), summed([one.carbon for one in held]),
        summed([one.cost for one in held]),
    )  # fmt: skip
