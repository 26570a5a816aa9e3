"""Input of a decision: the filtered past of the links and the state of the job."""

from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from twin.core.domain import LinkState
from twin.core.plan import Plan

GAUSSIAN = np.array([[1.2815515655446004, 1.959963984540054]])
"""Deviations to the ends of the central 80 % and 95 % of a Gaussian."""


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Filtered state of every link now and at H horizons; log-normal, so that `sd_log` is a relative error.

    Shapes: `horizons_s` (H,), `bandwidth_bps` and `sd_log` (H, K, K). Row h = 0 is the filtered present
    (`horizons_s[0] == 0`). `latency_s` (K, K) is one way, filtered.
    `sd_log` is a standard deviation, not the half width of an interval: measured errors are not Gaussian.
    `widths` (H, 2): half widths of the central 80 % and 95 % intervals in deviations, calibrated on the past
    (`twin.filters.conformal_intervals`).
    """

    horizons_s: NDArray[np.float64]
    bandwidth_bps: NDArray[np.float64]
    sd_log: NDArray[np.float64]
    latency_s: NDArray[np.float64]
    widths: NDArray[np.float64] = field(default_factory=lambda: GAUSSIAN)

    def links(self, horizon: int = 0) -> LinkState:
        """Expected link state at horizon index `horizon`."""
        return LinkState(self.bandwidth_bps[horizon], self.latency_s)

    def quantile(self, share: float) -> NDArray[np.float64]:
        """(H, K, K) bandwidth that is exceeded with probability 1 - `share`, 0 < share < 1."""
        reach = self.reach(np.array([NormalDist().inv_cdf(share)]))
        rates: NDArray[np.float64] = self.bandwidth_bps * np.exp(reach[:, :, None] * self.sd_log)
        return rates

    def reach(self, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distance (H, n) in `sd_log` of the quantiles that lie `deviations` (n,) from the median of a
        Gaussian.

        The calibrated intervals give the quantiles 2.5, 10, 50, 90 and 97.5 %; between and beyond them
        linear in the Gaussian's deviations.
        """
        d80, d95 = GAUSSIAN[0]
        narrow, wide = np.broadcast_to(self.widths, (len(self.horizons_s), 2)).T[:, :, None]
        size = np.abs(deviations)
        outer = narrow + (wide - narrow) * (size - d80) / (d95 - d80)
        reach: NDArray[np.float64] = np.copysign(
            np.where(size <= d80, narrow * size / d80, outer), deviations
        )
        return reach


@dataclass(frozen=True, slots=True)
class OtherJob:
    """Another job in the world: its plan while it holds GPUs, None while it waits for some."""

    name: str
    plan: Plan | None


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Immutable input of one decision."""

    now_ns: int
    trigger: str  # start, period, change, alarm, failure, repair
    forecast: Forecast
    plan: Plan | None  # None at the start: no layer is placed yet, the first plan costs no move
    free_gpus: tuple[int, ...]  # (K,) GPUs alive that this job may use, its own included
    slowdown: NDArray[np.float64]  # (K,) compute time over nominal, as measured by the job; 1 = nominal
    since_move_s: float
    tokens: float  # trained so far
    job: str = ""  # the job that decides; empty in a world without a job list
    others: tuple[OtherJob, ...] = ()  # all other jobs submitted and not done, in the order of arrival
