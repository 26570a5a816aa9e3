"""What the twin shows a controller at the moment of a decision: the past, through the filter."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twin.domain import LinkState
from twin.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """Filter state of every link now and at H horizons; log-normal, so `sd_log` is a relative error.

    Shapes: `horizons_s` (H,), `bandwidth_bps` and `sd_log` (H, K, K). Row h = 0 is the filtered present
    (`horizons_s[0] == 0`). `latency_s` (K, K) is one way, filtered.
    `sd_log` is a standard deviation, not the half width of an interval: measured errors are not Gaussian, and
    how many deviations hold 80 % or 95 % of them is `twin.intervals`'s to say.
    """

    horizons_s: NDArray[np.float64]
    bandwidth_bps: NDArray[np.float64]
    sd_log: NDArray[np.float64]
    latency_s: NDArray[np.float64]

    def links(self, horizon: int = 0) -> LinkState:
        """Expected link state at horizon index `horizon`."""
        return LinkState(self.bandwidth_bps[horizon], self.latency_s)


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Immutable snapshot of the past at the moment of a decision."""

    now_ns: int
    trigger: str  # start, period, change, alarm, failure, repair
    forecast: Forecast
    plan: Plan | None  # None at the start: no layer is placed yet, the first plan costs no move
    free_gpus: tuple[int, ...]  # per domain, GPUs alive that this job may use (its own included)
    slowdown: NDArray[np.float64]  # (K,) measured compute time over nominal, 1.0 = nominal
    since_move_s: float
    tokens: float  # trained so far
    job: str = ""  # whose decision it is; empty in a world without a job list
