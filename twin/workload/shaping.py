"""A log made longer, shorter, thinner or busier: a window, a share of the jobs, other arrivals, more load.

Jobs keep their run times, sizes, estimates and users, and their order; what changes is which are there and
when they are submitted. Deadlines keep their distance to the submission. All draws follow from the seed.
Submissions that are drawn are synthetic, and whoever shows them says so (`Workload.notes`).
"""

from dataclasses import dataclass, replace
from math import gamma

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.core.seeds import generator
from twin.queue.jobs import LATEST_NS, UNKNOWN, Float, Int, QueueJobs

DAY_S, HOUR_S = 86_400, 3_600
SHAPES = np.geomspace(0.1, 20, 4_001)
"""Shapes of Weibull gaps that are tried."""


@dataclass(frozen=True, eq=False)
class Workload:
    """The jobs that are played, their places in the log, what was done, and if submissions were drawn."""

    jobs: QueueJobs
    places: Int
    notes: tuple[str, ...]
    synthetic: bool


def shaped(
    jobs: QueueJobs, *, begin_ns: int | None = None, end_ns: int | None = None, thin: float = 1.0,
    arrivals: str = "trace", shape: float | None = None, load: float = 1.0, seed: int = 0,
) -> Workload:  # fmt: skip
    """Returns the jobs submitted in [begin_ns, end_ns), thinned, with other arrivals and load, in this order.

    Time 0 stays that of the log; synthetic submissions and load begin at the first submission.

    Raises:
        UsageError: no job is left, an unknown process, or times beyond all reason.
    """
    low, high = begin_ns or 0, LATEST_NS if end_ns is None else end_ns
    places, notes = np.flatnonzero((jobs.submit_ns >= low) & (jobs.submit_ns < high)), list[str]()
    if thin < 1:
        places = places[generator(seed, "queue thinning").random(len(places)) < thin]
        notes.append(f"{len(places):,} jobs are a share of {thin:g}, drawn with seed {seed}")
    if not len(places):
        raise UsageError("no job is left in that part of the log: take a longer window, or thin less")
    kept = jobs.select(places)
    submit = kept.submit_ns
    if arrivals != "trace":
        submit = drawn(submit, arrivals, shape, seed)
        notes.append(f"SYNTHETIC arrivals: {arrivals}, seed {seed}; run times and sizes are the log's")
    if load != 1:
        submit = submit[0] + _whole((submit - submit[0]) / load)
        notes.append(f"load {load:g}: gaps between submissions are divided by it")
    return Workload(_submitted(kept, submit), places, tuple(notes), arrivals != "trace")


def drawn(submit_ns: Int, arrivals: str, shape: float | None, seed: int) -> Int:
    """Returns submissions (n,), nanoseconds, of a process with the first submission and the mean gap given.

    poisson: independent exponential gaps. weibull: independent Weibull gaps; without a shape the one whose
    coefficient of variation is that of the gaps. hours-of-day: a Poisson process whose rate in each hour of
    the day is in proportion to the jobs of the log in that hour (hours count from the log's time 0), by
    inversion of its cumulated rate (Cinlar, Introduction to Stochastic Processes, 1975, section 4.7).

    Raises:
        UsageError: an unknown process, or fewer than three jobs.
    """
    if len(submit_ns) < 3:
        raise UsageError(f"{len(submit_ns)} jobs have no rate of arrival; take three or more")
    random, gaps = generator(seed, "queue arrivals"), np.diff(submit_ns) / NS_PER_S
    count, mean = len(gaps), float(gaps.mean())
    if arrivals == "poisson":
        steps = random.exponential(mean, count)
    elif arrivals == "weibull":
        form = weibull_shape(gaps) if shape is None else shape
        steps = random.weibull(form, count) * mean / gamma(1 + 1 / form)
    elif arrivals == "hours-of-day":
        clock = _OfDay.of(submit_ns)
        at_s = clock.inverse(
            clock.upto(submit_ns[:1] / NS_PER_S) + np.cumsum(random.exponential(mean, count))
        )
        return np.concatenate((submit_ns[:1], _whole(at_s * NS_PER_S)))
    else:
        raise UsageError(f"arrivals {arrivals!r}: known are trace, poisson, weibull, hours-of-day")
    later = _whole(np.cumsum(steps) * NS_PER_S)
    return np.concatenate((submit_ns[:1], submit_ns[0] + later))


def weibull_shape(gaps: Float) -> float:
    """Returns the shape of Weibull gaps with the coefficient of variation of these, between 0.1 and 20:
    cv^2 = G(1 + 2 / k) / G(1 + 1 / k)^2 - 1."""
    mean = float(gaps.mean())
    if not mean:
        return 1.0
    square = float(gaps.var()) / mean**2
    found = np.array([gamma(1 + 2 / k) / gamma(1 + 1 / k) ** 2 - 1 for k in SHAPES.tolist()])
    return float(SHAPES[np.argmin(np.abs(found - square))])


@dataclass(frozen=True, eq=False)
class _OfDay:
    """A rate that repeats every day: its sum up to each hour (25,), of which a day's is a day."""

    cumulated_s: Float

    @classmethod
    def of(cls, submit_ns: Int) -> "_OfDay":
        hours = np.bincount(submit_ns // (HOUR_S * NS_PER_S) % 24, minlength=24)
        return cls(np.concatenate(([0.0], np.cumsum(hours / hours.sum() * DAY_S))))

    def upto(self, at_s: Float) -> Float:
        """Returns the rate summed from time 0 (n,)."""
        day, rest = np.divmod(at_s, DAY_S)
        return np.asarray(day * DAY_S + np.interp(rest, np.arange(25) * float(HOUR_S), self.cumulated_s))

    def inverse(self, sums: Float) -> Float:
        """Returns the times at which the rate has these sums (n,); hours without jobs are jumped over."""
        day, rest = np.divmod(sums, DAY_S)
        hour = np.clip(np.searchsorted(self.cumulated_s, rest, side="right") - 1, 0, 23)
        low, high = self.cumulated_s[hour], self.cumulated_s[hour + 1]
        return np.asarray(day * DAY_S + (hour + (rest - low) / np.maximum(high - low, 1e-9)) * HOUR_S)


def _whole(time_ns: Float) -> Int:
    """Times in whole nanoseconds; those beyond all reason are `LATEST_NS`."""
    return np.rint(np.minimum(time_ns, LATEST_NS)).astype(np.int64)


def _submitted(jobs: QueueJobs, submit_ns: Int) -> QueueJobs:
    """The jobs with other submissions, which ascend as theirs do."""
    if int(submit_ns[-1]) >= LATEST_NS:
        raise UsageError("submissions lie beyond 73 years: take a larger load or fewer jobs")
    known = jobs.deadline_ns != UNKNOWN
    deadline = np.where(known, jobs.deadline_ns + submit_ns - jobs.submit_ns, UNKNOWN)
    return replace(jobs, submit_ns=np.ascontiguousarray(submit_ns), deadline_ns=deadline)
