"""The past of the links before a run, as telemetry sampled it, and what each link is like in the long run.

Forecasts (`twin.core.view.Forecast`) look minutes ahead and lean on the present; a plan is kept for hours.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from twin.core.domain import LinkState, Matrix

Float = NDArray[np.float64]

HOURS = 24
WEEK_S = 7 * 24 * 3600.0
"""A shorter past has no profile by hour of day: one odd day would be its profile."""


@dataclass(frozen=True, eq=False)
class LinkHistory:
    """S joint samples of all links (S, K, K) at regular steps before time 0 of a run, oldest first.

    `origin_epoch_ns` is the UTC time of time 0. The diagonal is infinite; 0 bit/s is a dead link.
    """

    step_s: float
    bandwidth_bps: Float
    latency_s: Float
    origin_epoch_ns: int

    def __len__(self) -> int:
        return len(self.bandwidth_bps)

    @property
    def length_s(self) -> float:
        """Seconds that the samples stand for."""
        return self.step_s * len(self)

    def links(self, index: int) -> LinkState:
        """Returns sample `index`."""
        return LinkState(self.bandwidth_bps[index], self.latency_s[index])

    def evenly(self, count: int) -> NDArray[np.int64]:
        """Returns the indices of at most `count` samples, spread evenly over the past; the last is among
        them."""
        return _evenly(len(self), count)

    def lately(self, count: int, half_life: float) -> NDArray[np.int64]:
        """Returns the indices of at most `count` samples, oldest first, of which each stands for the same
        weight: that of a moment halves with every share `half_life` of the past that it lies back. Late
        samples may come several times."""
        count = min(count, len(self))
        newer = (np.arange(count, 0, -1) - 0.5) / count * (1.0 - 0.5 ** (1.0 / half_life))
        age = -half_life * np.log2(1.0 - newer)  # in pasts: where so much of the weight is newer
        found: NDArray[np.int64] = len(self) - 1 - np.floor(age * len(self)).astype(np.int64)
        return found

    def evenly_by_hour(self, count: int) -> NDArray[np.int64] | None:
        """Returns the indices (24, n) of n samples of each hour of the day, UTC, at most `count`, spread
        evenly over the past; None where `by_hour` is."""
        if self.by_hour is None:
            return None
        count = min(count, *map(len, self.by_hour))
        return np.stack([indices[_evenly(len(indices), count)] for indices in self.by_hour])

    @cached_property
    def mean_bps(self) -> Matrix:
        """Mean bandwidth (K, K), outages counted as 0."""
        mean: Matrix = self.bandwidth_bps.mean(axis=0)
        return mean

    @cached_property
    def mean_latency_s(self) -> Matrix:
        """Mean latency (K, K)."""
        mean: Matrix = self.latency_s.mean(axis=0)
        return mean

    @cached_property
    def sd_log(self) -> Matrix:
        """Standard deviation of the log bandwidth while a link lives (K, K); 0 on the diagonal."""
        alive = (self.bandwidth_bps > 0) & np.isfinite(self.bandwidth_bps)
        log = np.log(np.where(alive, self.bandwidth_bps, 1.0))
        count = np.maximum(alive.sum(axis=0), 1)
        mean = (log * alive).sum(axis=0) / count
        spread: Matrix = np.sqrt((((log - mean) ** 2) * alive).sum(axis=0) / count)
        return spread

    def quantile(self, share: float) -> Matrix:
        """Returns the bandwidth (K, K) that a link has or exceeds in 1 - `share` of the past."""
        ranked = np.sort(self.bandwidth_bps, axis=0)  # not interpolated: the diagonal is infinite
        found: Matrix = ranked[min(int(share * len(self)), len(self) - 1)]
        return found

    @cached_property
    def outage_share(self) -> Matrix:
        """Share of the past in which a link was dead (K, K)."""
        share: Matrix = (self.bandwidth_bps <= 0).mean(axis=0)
        return share

    @cached_property
    def outages_per_hour(self) -> Matrix:
        """Outages that began, per hour (K, K); one that the past begins with counts."""
        dead = self.bandwidth_bps <= 0
        begun = dead[0].astype(np.float64) + (dead[1:] & ~dead[:-1]).sum(axis=0)
        rate: Matrix = begun * 3600.0 / self.length_s
        return rate

    @cached_property
    def outage_s(self) -> Matrix:
        """Mean seconds of an outage (K, K), to the step of the samples; 0 where there was none."""
        count = self.outages_per_hour * self.length_s / 3600.0
        mean: Matrix = np.where(count > 0, self.outage_share * self.length_s / np.maximum(count, 1.0), 0.0)
        return mean

    @cached_property
    def hourly_bps(self) -> Float | None:
        """Mean bandwidth by hour of the day, UTC (24, K, K); None where `by_hour` is."""
        if self.by_hour is None:
            return None
        return np.stack([self.bandwidth_bps[indices].mean(axis=0) for indices in self.by_hour])

    @cached_property
    def by_hour(self) -> tuple[NDArray[np.int64], ...] | None:
        """Indices of the samples of each hour of the day, UTC; None where less than a week is known, or the
        steps are so long that an hour has no sample."""
        hours = self.hours_of_day
        found = tuple(np.flatnonzero(hours == hour) for hour in range(HOURS))
        return found if self.length_s >= WEEK_S and all(map(len, found)) else None

    @cached_property
    def hours_of_day(self) -> NDArray[np.int64]:
        """Hour of the day, UTC, of each sample (S,)."""
        before_s = self.step_s * np.arange(len(self), 0, -1)
        seconds = self.origin_epoch_ns / NS_PER_S - before_s
        hours: NDArray[np.int64] = np.floor_divide(seconds, 3600.0).astype(np.int64) % HOURS
        return hours

    def hour(self, now_ns: int) -> int:
        """Returns the hour of the day, UTC, at a time of the run."""
        return (self.origin_epoch_ns + now_ns) // (3600 * NS_PER_S) % HOURS


def _evenly(length: int, count: int) -> NDArray[np.int64]:
    """Returns at most `count` of the numbers below `length`, spread evenly; the last is among them."""
    return np.linspace(length - 1, 0, min(count, length)).round().astype(np.int64)[::-1]
