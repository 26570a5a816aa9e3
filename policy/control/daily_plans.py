"""Plans by hour of the day: the schedule that would have done most over the days before a run.

A placement is judged by its mean rate over samples of each hour, its knobs turned in each sample
(`policy.control.long_run`). A move at the begin of an hour is made over the typical links of that hour.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy.control.day_schedule import day_schedule
from policy.control.horizon import pause_s
from policy.control.knobs import default_knobs
from policy.control.long_run import LongRunRates, PastPlan, candidates, typical_links
from twin.core.link_history import HOURS, LinkHistory
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]

SAMPLES = 8
"""Samples of each hour."""
BEST = 30
"""Plans of the whole past that an hour may have; beside them each hour has the best of its own."""


def daily_plans(
    estimator: Estimator, history: LinkHistory, found: Sequence[PastPlan], restart_s: float
) -> tuple[Plan, ...] | None:
    """Returns the plan of each hour of the day, UTC, for all GPUs; None where the past has no hours
    (`LinkHistory.by_hour`), or nothing runs in it.

    `found` are the plans of the whole past, best first; a restart takes `restart_s`.
    """
    chosen = history.evenly_by_hour(SAMPLES)
    if chosen is None:
        return None
    states = States(history.bandwidth_bps[chosen.ravel()], history.latency_s[chosen.ravel()])
    job = estimator.job
    rates = LongRunRates(estimator, states)  # of the samples of hour 0, then of hour 1, ...
    plans = list(dict.fromkeys([*(default_knobs(job, one.plan) for one in found[:BEST]), *_of_hours(rates)]))
    if not plans:
        return None
    turned = [rates.turned_in_each(plan) for plan in plans]
    by_hour = np.stack([_hourly(in_each) for _, in_each in turned], axis=1)
    schedule = day_schedule(by_hour, _pauses(estimator, plans, states, restart_s))
    return tuple(turned[n][0] for n in schedule)


def _hourly(in_each: Float) -> Float:
    """Returns the mean of each hour (24,) of values in states of all hours (24 n,)."""
    mean: Float = in_each.reshape(HOURS, -1).mean(axis=1)
    return mean


def _of_hours(rates: LongRunRates) -> list[Plan]:
    """Returns the best plan of each hour among those that are found for its typical links or the day's."""
    free = tuple(domain.gpus for domain in rates.estimator.cluster.domains)
    plans = candidates(rates.estimator, rates.states, free, parts=HOURS)
    if not plans:
        return []
    by_hour = np.stack([_hourly(rates.in_each(plan)) for plan in plans])
    return [plans[n] for n in by_hour.argmax(axis=0)]


def _pauses(estimator: Estimator, plans: Sequence[Plan], states: States, restart_s: float) -> Float:
    """Returns the seconds (24, P, P) of a move from each plan to each other one at the begin of each hour."""
    pauses = np.zeros((HOURS, len(plans), len(plans)))
    each = len(states) // HOURS
    for hour in range(HOURS):
        part = slice(hour * each, (hour + 1) * each)
        links = typical_links(States(states.bandwidth_bps[part], states.latency_s[part]), np.ones(each))
        for (old, new), _ in np.ndenumerate(pauses[hour]):
            if old != new:
                move = estimator.move(plans[old], plans[new], links)
                pauses[hour, old, new] = pause_s(estimator, move, restart_s)
    return pauses
