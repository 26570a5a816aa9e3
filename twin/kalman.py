"""State estimation of a network: log bandwidth and log latency of every directed link, with calibrated doubt.

Each quantity is filtered under two regimes (`twin.regimes`, `twin.bank`); how many deviations an interval
spans was calibrated on the training share and is tracked from then on (`twin.intervals`). This is what a
controller sees, what `twin status` judges and what `docs/forecast.md` measures.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.units import to_ns
from twin.bank import Index
from twin.domain import LinkState
from twin.intervals import OPEN, Intervals, Tracker
from twin.ou import MIN_SD, Array, OuParameters
from twin.regimes import Regimes
from twin.view import Forecast

_NIS_MEMORY = 0.02
"""Weight of the newest observation in the running mean of the normalised innovation squared."""
_EXPLAINED = 4.0
"""Deviations of the noise of telemetry that chance alone hardly ever exceeds."""


@dataclass(frozen=True, slots=True, eq=False)
class LinkParameters:
    """What training says of all K (K - 1) directed links, in the order of `pairs(K)`.

    The `_level` dynamics are those of the second regime, by default the first one's without reversion.
    Calibrations of the bandwidth, one a horizon: `intervals` hold the truth, `observed` a noisy sample of it;
    `nis` (L,) is the mean normalised innovation squared from one sample to the next. Gaussian and 1 where
    nothing was calibrated. No median exceeds `capacity_bps` (L,).
    """

    bandwidth: OuParameters  # of log bit/s
    latency: OuParameters  # of log seconds, one way
    bandwidth_level: OuParameters | None = None
    latency_level: OuParameters | None = None
    intervals: tuple[Intervals, ...] = ()
    observed: tuple[Intervals, ...] = ()
    nis: Array | float = 1.0
    capacity_bps: Array | None = None


class BandwidthFilter:
    """Log bandwidth of L links, seen through samples whose log has the deviation `noise` on top of the fitted
    scatter of the link."""

    def __init__(self, parameters: LinkParameters, noise: float):
        self._regimes = _regimes(parameters.bandwidth, parameters.bandwidth_level, noise)
        self._noise = noise
        capacity = np.inf if parameters.capacity_bps is None else parameters.capacity_bps
        self._log_capacity = np.log(np.broadcast_to(capacity, parameters.bandwidth.mu.shape))

    def observe(self, now_ns: int, index: Index, z_log: Array) -> tuple[Index, Array]:
        """As `Regimes.observe`: the links that were re-initialised, and the NIS of each sample.

        A sample above the capacity by more than noise explains shows that the link is wider than was said.
        """
        certain = z_log - _EXPLAINED * self._noise
        self._log_capacity[index] = np.maximum(self._log_capacity[index], certain)
        return self._regimes.observe(now_ns, index, z_log)

    def outlook(self, now_ns: int, horizons_s: Array) -> tuple[Array, Array]:
        """Mean, not above the capacity, and deviation as the filters state it; both (H, L).

        The link's own fast scatter is included, the noise of samples is not: this is of the truth.
        """
        mean, var = self._regimes.forecast(now_ns, horizons_s)
        return np.minimum(mean, self._log_capacity), np.sqrt(np.maximum(var - self._noise**2, MIN_SD**2))

    def noisy(self, sd: Array) -> Array:
        """The deviation of a sample where that of the truth is `sd`."""
        return np.hypot(sd, self._noise)

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        self._regimes.rebase(now_ns)


@dataclass(slots=True, eq=False)
class _Pending:
    """A forecast of one horizon, to be judged by the first sample at or after `due_ns`: mean and deviation of
    that sample, (L,)."""

    due_ns: int
    mean: Array
    sd: Array


def pairs(size: int) -> tuple[Index, Index]:
    """Source and destination of link l = 0 .. K (K - 1) - 1: every ordered pair, row by row."""
    rows, columns = np.nonzero(~np.eye(size, dtype=np.bool_))
    return rows.astype(np.int64), columns.astype(np.int64)


class LinkFilter:
    """The filtered state of a (K, K) network; `noise` as in `BandwidthFilter`.

    A link seen dead (0 bit/s) is forecast dead until it is seen alive.
    """

    def __init__(
        self, parameters: LinkParameters, size: int, horizons_s: Sequence[float], *, noise: float = 0.0
    ):
        self.size = size
        self.horizons_s = np.asarray(horizons_s, np.float64)
        self.rows, self.columns = pairs(size)
        self.dead = np.zeros(len(self.rows), np.bool_)
        self._bandwidth = BandwidthFilter(parameters, noise)
        self._latency = _regimes(parameters.latency, parameters.latency_level, noise)
        default = (Intervals(),) * len(self.horizons_s)
        intervals = parameters.intervals or default
        self._spread = np.array([one.spread for one in intervals])[:, None]
        self._widths = np.array([(one.d80, one.d95) for one in intervals]) / self._spread
        self._observed = parameters.observed or default
        self._tracker = Tracker(self._observed, len(self.rows))
        self._pending: tuple[deque[_Pending], ...] = tuple(deque() for _ in intervals)
        self._ahead_ns = [to_ns(horizon_s) for horizon_s in self.horizons_s.tolist()]
        self._apart_ns = np.array(self._ahead_ns) // OPEN
        self._next_ns = np.full(len(intervals), np.iinfo(np.int64).min // 2)
        self._nis = np.ones(len(self.rows))
        self._usual_nis = np.broadcast_to(np.asarray(parameters.nis), self._nis.shape)

    def observe(self, now_ns: int, links: LinkState) -> tuple[tuple[int, int], ...]:
        """Take one telemetry sample of every link, made at `now_ns`.

        Returns: the links whose filter re-initialised, an alarm each.
        """
        bandwidth = links.bandwidth_bps[self.rows, self.columns]
        latency = links.latency_s[self.rows, self.columns]
        self.dead = bandwidth <= 0
        alive = np.flatnonzero(~self.dead)
        seen = np.log(bandwidth[alive])
        self._judge(now_ns, alive, seen)
        beyond, nis = self._bandwidth.observe(now_ns, alive, seen)
        self._nis[alive] += _NIS_MEMORY * (nis / self._usual_nis[alive] - self._nis[alive])
        timed = np.flatnonzero(~self.dead & (latency > 0))
        self._latency.observe(now_ns, timed, np.log(latency[timed]))
        self._promise(now_ns)
        return tuple((int(self.rows[link]), int(self.columns[link])) for link in beyond)

    def forecast(self, now_ns: int) -> Forecast:
        """Median bandwidth (exp of the log mean) and its error at every horizon, seen from `now_ns`."""
        mean, sd = self._bandwidth.outlook(now_ns, self.horizons_s)
        latency, _ = self._latency.forecast(now_ns, np.zeros(1))
        return Forecast(
            horizons_s=self.horizons_s,
            bandwidth_bps=self._rates(mean),
            sd_log=self._matrix(sd * self._spread, 0.0),
            latency_s=self._matrix(np.exp(latency), 0.0)[0],
            widths=self._widths * self._tracker.factor,
        )

    def present_bps(self, now_ns: int) -> Array:
        """(K, K) median bandwidth now, as a forecast of horizon 0 has it."""
        present: Array = self._rates(self._bandwidth.outlook(now_ns, np.zeros(1))[0])[0]
        return present

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0, and track intervals afresh from those of training.

        Whatever was judged before may have been fitted to: such errors are too small.
        """
        self._bandwidth.rebase(now_ns)
        self._latency.rebase(now_ns)
        self._tracker = Tracker(self._observed, len(self.rows))
        for waiting in self._pending:
            for pending in waiting:
                pending.due_ns -= now_ns
        self._next_ns -= now_ns

    @property
    def nis(self) -> Array:
        """(K, K) running normalised innovation squared of the bandwidth, over that of training; about 1 while
        links behave as they did there."""
        matrix: Array = self._matrix(self._nis[None], 1.0)[0]
        return matrix

    def _judge(self, now_ns: int, alive: Index, seen: Array) -> None:
        """Compare what was forecast for now with what is seen."""
        for h, waiting in enumerate(self._pending):
            while waiting and waiting[0].due_ns <= now_ns:
                pending = waiting.popleft()
                self._tracker.judge(h, (seen - pending.mean[alive]) / pending.sd[alive])

    def _promise(self, now_ns: int) -> None:
        """Make the forecasts that are to be judged: `OPEN` of each horizon wait at a time."""
        due = np.flatnonzero(self._next_ns <= now_ns)
        if len(due):
            mean, sd = self._bandwidth.outlook(now_ns, self.horizons_s[due])
            noisy = self._bandwidth.noisy(sd)
            for row, h in enumerate(due.tolist()):
                due_ns = now_ns + self._ahead_ns[h]
                self._pending[h].append(_Pending(due_ns, mean[row], noisy[row]))
            self._next_ns[due] = now_ns + self._apart_ns[due]

    def _rates(self, mean_log: Array) -> Array:
        return self._matrix(np.where(self.dead, 0.0, np.exp(mean_log)), np.inf)

    def _matrix(self, values: Array, diagonal: float) -> Array:
        """(H, L) values as (H, K, K)."""
        matrix = np.full((len(values), self.size, self.size), diagonal)
        matrix[:, self.rows, self.columns] = values
        return matrix


def _regimes(reverting: OuParameters, level: OuParameters | None, noise: float) -> Regimes:
    return Regimes(_noisy(reverting, noise), _noisy(level or reverting.adrift, noise))


def _noisy(parameters: OuParameters, noise: float) -> OuParameters:
    return OuParameters(parameters.mu, parameters.theta_per_s, parameters.sigma, parameters.r + noise * noise)
