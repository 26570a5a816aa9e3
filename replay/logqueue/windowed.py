"""Figures of a schedule with 95 % intervals over windows of the trace, by a moving-block bootstrap.

The jobs are cut into windows of equal number in the order of submission, time into windows of equal length.
Blocks of neighbouring windows are drawn with replacement (Kuensch, Annals of Statistics 1989), the same ones
for every scheduler of a trace, so that ratios of two schedulers are paired.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from twin.nodes.metrics import fragmentation_over_time, mean_fragmentation
from twin.nodes.on_nodes import NodeSchedule
from twin.queue.jobs import UNKNOWN, Float
from twin.queue.metrics import bounded_slowdowns, figures, jain, waits_s
from twin.queue.simulation import QueueSchedule

WINDOWS, BLOCK, DRAWS, GRID = 20, 3, 200, 2_001
SEED = 0


@dataclass(frozen=True, slots=True)
class Ranged:
    """A figure of the whole trace, and its interval."""

    value: float
    low: float
    high: float

    def to_json(self) -> list[float]:
        """Returns [value, low, high]."""
        return [self.value, self.low, self.high]

    def said(self, digits: int = 3) -> str:
        """Returns value and interval as text."""
        return f"{_said(self.value, digits)} [{_said(self.low, digits)}, {_said(self.high, digits)}]"


def _said(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    places = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{places}f}"


def draws() -> NDArray[np.int64]:
    """Returns windows of every draw (draws, windows)."""
    random = np.random.default_rng(SEED)
    blocks = -(-WINDOWS // BLOCK)
    begins = random.integers(0, WINDOWS, (DRAWS, blocks, 1))
    chosen = (begins + np.arange(BLOCK)) % WINDOWS
    return np.asarray(chosen.reshape(DRAWS, -1)[:, :WINDOWS])


class Windowed:
    """One schedule in windows."""

    def __init__(self, done: QueueSchedule) -> None:
        self.done, self.chosen = done, draws()
        self.whole = figures(done)

    @cached_property
    def _parts(self) -> list[NDArray[np.int64]]:
        return np.array_split(np.arange(len(self.done.jobs)), WINDOWS)

    def wait(self) -> Ranged:
        """Mean wait, seconds."""
        return self._mean(self.whole.avg_wait_s, waits_s(self.done))

    def slowdown(self) -> Ranged:
        """Mean bounded slowdown."""
        return self._mean(self.whole.avg_bounded_slowdown, bounded_slowdowns(self.done))

    def wait_means(self) -> Float:
        """Mean wait of every draw, seconds (draws,)."""
        return self._means(waits_s(self.done))

    def slowdown_means(self) -> Float:
        """Mean bounded slowdown of every draw (draws,)."""
        return self._means(bounded_slowdowns(self.done))

    def p95(self) -> Ranged:
        """95th percentile of the wait, seconds; that of a draw is taken from a grid of `GRID` quantiles."""
        wait = waits_s(self.done)
        grid = np.quantile(wait, np.linspace(0, 1, GRID))
        place = np.searchsorted(grid, wait)
        counts = np.array([np.bincount(place[part], minlength=GRID) for part in self._parts])
        below = np.cumsum(counts[self.chosen].sum(axis=1), axis=1)
        found = grid[(below < 0.95 * below[:, -1:]).sum(axis=1)]
        return _ranged(self.whole.p95_wait_s, found)

    def utilisation(self) -> Ranged:
        """Share of the processor-time used, per cent."""
        begin, end = self.done.jobs.submit_ns.min(), self.done.end_ns.max()
        marks = np.linspace(begin, end, WINDOWS + 1)
        spent = np.array([self._used(low, high) for low, high in pairwise(marks)])
        share = spent / ((marks[1:] - marks[:-1]) * self.done.processors)
        return _ranged(100 * self.whole.utilisation, 100 * share[self.chosen].mean(axis=1))

    def fairness(self) -> Ranged | None:
        """Jain's index of the users' mean bounded slowdowns; None where no user is known."""
        if self.whole.jain_users is None:
            return None
        slow, users = bounded_slowdowns(self.done), self.done.jobs.user
        _, at = np.unique(users, return_inverse=True)
        known = users != UNKNOWN
        sums, counts = (np.zeros((WINDOWS, at.max() + 1)) for _ in range(2))
        for k, part in enumerate(self._parts):
            mine = part[known[part]]
            sums[k] = np.bincount(at[mine], slow[mine], at.max() + 1)
            counts[k] = np.bincount(at[mine], minlength=at.max() + 1)
        drawn, drawn_counts = sums[self.chosen].sum(axis=1), counts[self.chosen].sum(axis=1)
        found = [jain(row[n > 0] / n[n > 0]) for row, n in zip(drawn, drawn_counts, strict=True)]
        return _ranged(self.whole.jain_users, np.array(found))

    def _used(self, low: float, high: float) -> float:
        held = np.minimum(self.done.end_ns, high) - np.maximum(self.done.start_ns, low)
        return float((np.maximum(held, 0) * self.done.jobs.processors).sum())

    def _means(self, values: Float) -> Float:
        sums = np.array([values[part].sum() for part in self._parts])
        sizes = np.array([len(part) for part in self._parts])
        return np.asarray(sums[self.chosen].sum(axis=1) / sizes[self.chosen].sum(axis=1))

    def _mean(self, whole: float, values: Float) -> Ranged:
        return _ranged(whole, self._means(values))


def ratio(one: Windowed, other: Windowed) -> Ranged:
    """Returns mean bounded slowdown over that of another schedule of the same jobs, paired by window."""
    whole = one.whole.avg_bounded_slowdown / other.whole.avg_bounded_slowdown
    return _ranged(whole, one.slowdown_means() / other.slowdown_means())


def saved_wait(one: Windowed, other: Windowed) -> Ranged | None:
    """Returns how much shorter the mean wait is than in another schedule of the same jobs, paired by window,
    as a share of the other's mean wait over all jobs; None where no job waits there."""
    whole = other.whole.avg_wait_s
    if not whole:
        return None
    return _ranged(1 - one.whole.avg_wait_s / whole, (other.wait_means() - one.wait_means()) / whole)


def fragmentation(done: NodeSchedule) -> Ranged:
    """Returns the share of all GPUs that is free and that the mix of jobs cannot use, per cent."""
    means = fragmentation_means(done)[draws()].mean(axis=1)
    return _ranged(100 * mean_fragmentation(done), 100 * means)


def fragmentation_means(done: NodeSchedule) -> Float:
    """Returns the mean fragmentation in windows of equal length from the first submission to the last end
    (windows,), a share of all GPUs. A cluster without outages starts its first job at once."""
    times, share = fragmentation_over_time(done)
    time_ns = (times - times[0]).astype(np.float64)
    area = np.concatenate(([0.0], np.cumsum(share[:-1] * np.diff(time_ns))))
    marks = np.linspace(0, time_ns[-1], WINDOWS + 1)
    return np.asarray(np.diff(np.interp(marks, time_ns, area)) / np.diff(marks))


def _ranged(whole: float, found: Float) -> Ranged:
    low, high = np.quantile(found, (0.025, 0.975))
    return Ranged(whole, float(low), float(high))
