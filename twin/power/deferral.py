"""Jobs that wait for cleaner or cheaper hours: each is held back until its run causes least.

Temporal shifting with a bound on the delay, after Wiesner et al., "Let's wait awhile" (Middleware 2021). A
job counts its estimate, for it knows no more; a job that is held back is submitted to the queue when it is
let go, so that every order and backfill composes with it. Waits still count from the user's submission.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.power.signals import Signal
from twin.queue.jobs import Float, Int, QueueJobs

SignalForecast = Literal["yesterday", "actual"]
"""What is known of the hours to come: yesterday: those of the last 24 hours again. actual: the hours
themselves, as a market of the day ahead fixes prices; for intensities a bound."""
HOUR_NS = 3600 * NS_PER_S
DAY_NS = 24 * HOUR_NS
WORTH = 1e-9
"""A later hour has to save more than this share."""
_JOBS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Deferral:
    """The signal that jobs wait for, the longest delay, and what is known of its future."""

    signal: Signal
    longest_ns: int
    forecast: SignalForecast

    def __post_init__(self) -> None:
        if self.longest_ns < 0:
            raise UsageError(f"a delay of {self.longest_ns / HOUR_NS:g} h; give 0 or more")


def releases(jobs: QueueJobs, deferral: Deferral) -> Int:
    """Returns when each job is let into the queue (n,), nanoseconds: not before its submission, not later
    than the longest delay behind it, and at the earliest of the best times.

    What a run causes changes its slope only where its begin or its end meets a step of the signal, so these
    times and the two ends are all that have to be tried.
    """
    steps = deferral.signal.series.at_ns[1:]
    found = np.empty(len(jobs), np.int64)
    for first in range(0, len(jobs), _JOBS_AT_ONCE):
        part = slice(first, first + _JOBS_AT_ONCE)
        found[part] = _best(jobs.submit_ns[part], jobs.estimate_ns[part], steps, deferral)
    return found


def _best(submit: Int, lasts: Int, steps: Int, deferral: Deferral) -> Int:
    now, lasts = submit[:, None], np.maximum(lasts, 1)[:, None]
    tried = [now, now + deferral.longest_ns]
    for shift in (np.zeros_like(lasts), lasts):
        if deferral.forecast == "actual":
            moved = _within(steps, now + shift, deferral.longest_ns) - shift
        else:
            moved = _again(_within(steps, now - DAY_NS, DAY_NS), now, shift, deferral.longest_ns)
        tried.append(np.where((moved > now) & (moved < now + deferral.longest_ns), moved, now))
    times = np.sort(np.concatenate(tried, axis=1), axis=1)
    caused = _between(times, times + lasts, now, deferral)
    least, rows = caused.argmin(axis=1), np.arange(len(submit))
    at_once, best = caused[:, 0], caused[rows, least]  # the first of the sorted times is the submission
    worth = at_once - best > WORTH * np.maximum(np.abs(at_once), np.abs(best))
    released: Int = np.where(worth, times[rows, least], submit)
    return released


def _within(steps: Int, begins: Int, span_ns: int) -> Int:
    """Returns the steps (n, s) behind each begin (n, 1) up to the span; rows are filled with the begin."""
    first = np.searchsorted(steps, begins, side="right")
    last = np.searchsorted(steps, begins + span_ns, side="right")
    place = first + np.arange(int((last - first).max(initial=0)))
    if not place.size:
        return begins
    found: Int = np.where(place < last, steps[np.minimum(place, len(steps) - 1)], begins)
    return found


def _again(steps: Int, now: Int, shift: Int, longest_ns: int) -> Int:
    """Returns when the steps of the last day and its ends come again from `now` on, less the shift (n, s)."""
    first = now + (np.concatenate((steps, now), axis=1) - shift - now) % DAY_NS
    return np.concatenate([first + day * DAY_NS for day in range(int(longest_ns // DAY_NS) + 1)], axis=1)


def _between(begins: Int, ends: Int, now: Int, deferral: Deferral) -> Float:
    """Returns what a run from begin to end is thought to cause (n, m), by what is known at `now` (n, 1)."""
    if deferral.forecast == "actual":
        found: Float = _up_to(ends, deferral) - _up_to(begins, deferral)
        return found
    return _believed(ends, now, deferral) - _believed(begins, now, deferral)


def _believed(times: Int, now: Int, deferral: Deferral) -> Float:
    """Returns the integral from `now` to each time, of the last day over and over."""
    days, rest = np.divmod(times - now, DAY_NS)
    start = _up_to(now - DAY_NS, deferral)
    whole = _up_to(now, deferral) - start
    found: Float = days * whole + _up_to(now - DAY_NS + rest, deferral) - start
    return found


def _up_to(times: Int, deferral: Deferral) -> Float:
    """Returns the integral from the beginning, micro-rate x hours; before it the first value holds, beyond
    the end the last one."""
    series = deferral.signal.series
    hours = series.durations_ns.astype(np.float64) / HOUR_NS
    knots = np.append(0.0, np.cumsum(series.value * hours))
    place = np.clip(np.searchsorted(series.at_ns, times, side="right") - 1, 0, len(series.value) - 1)
    since: NDArray[np.float64] = (times - series.at_ns[place]) / HOUR_NS
    found: Float = knots[place] + series.value[place] * since
    return found


def held_back(jobs: QueueJobs, released_ns: Int) -> tuple[QueueJobs, NDArray[np.intp]]:
    """Returns the jobs as the queue sees them, in order of release, and the place that each had before."""
    order = np.lexsort((np.arange(len(jobs)), released_ns))
    return replace(jobs, submit_ns=released_ns).select(order), order
