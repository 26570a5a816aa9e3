"""State estimation of a network: log bandwidth and log latency of every directed link, with calibrated doubt.

Each quantity is filtered under two regimes (`twin.regimes`, `twin.bank`), believed at each horizon by how
well they forecast it (`twin.foresight`); how many deviations an interval spans was calibrated on the training
share and is tracked from then on (`twin.intervals`). This is what a controller sees, `twin status` judges
and what `docs/forecast.md` measures.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twin.filters.kalman_bank import Index
from twin.core.domain import LinkState
from twin.filters.horizon_mixture import Foresight, Outlook
from twin.filters.conformal_intervals import Intervals, Tracker
from twin.filters.ou_process import MIN_SD, Array, OuParameters
from twin.filters.multiple_model import Regimes
from twin.core.view import Forecast

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


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What telemetry says of the filters: links that were re-initialised, the NIS (n,) of the samples, and
    horizon index and errors (n,), in stated deviations of a sample, of each forecast that came due."""

    changed: Index
    nis: Array
    errors: list[tuple[int, Array]]


class BandwidthFilter:
    """Log bandwidth of L links, seen through samples whose log has the deviation `noise` on top of the fitted
    scatter of the link, and forecast at `horizons_s` (H,)."""

    def __init__(self, parameters: LinkParameters, horizons_s: Array, noise: float):
        self._regimes = _regimes(parameters.bandwidth, parameters.bandwidth_level, noise)
        self._horizons_s = horizons_s
        self._foresight = Foresight(horizons_s, self._regimes.links)
        self._noise = noise
        capacity = np.inf if parameters.capacity_bps is None else parameters.capacity_bps
        self._log_capacity = np.log(np.broadcast_to(capacity, parameters.bandwidth.mu.shape))

    def observe(self, now_ns: int, index: Index, z_log: Array) -> Seen:
        """Judge what was forecast for now, take the samples `z_log` (n,) of links `index` (n,), and forecast.

        A sample above the capacity by more than noise explains shows that the link is wider than was said.
        """
        errors = self._foresight.judge(now_ns, index, z_log)
        certain = z_log - _EXPLAINED * self._noise
        self._log_capacity[index] = np.maximum(self._log_capacity[index], certain)
        changed, nis = self._regimes.observe(now_ns, index, z_log)
        due = self._foresight.due(now_ns)
        if len(due):
            mean, sd = (stated[due] for stated in self.outlook(now_ns))
            means, variances = self._regimes.apart(now_ns, self._horizons_s[due])
            self._foresight.promise(now_ns, due, Outlook(mean, self.noisy(sd), means, variances))
        return Seen(changed, nis, errors)

    def outlook(self, now_ns: int) -> tuple[Array, Array]:
        """Mean, not above the capacity, and deviation as the filters state it, at every horizon; both (H, L).

        The link's own fast scatter is included, the noise of samples is not: this is of the truth.
        """
        odds = self._foresight.odds(self._regimes.odds)
        return self._true(*self._regimes.forecast(now_ns, self._horizons_s, odds))

    def present(self, now_ns: int) -> Array:
        """(L,) mean now."""
        present: Array = self._true(*self._regimes.forecast(now_ns, np.zeros(1)))[0][0]
        return present

    def noisy(self, sd: Array) -> Array:
        """The deviation of a sample where that of the truth is `sd`."""
        return np.hypot(sd, self._noise)

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        self._regimes.rebase(now_ns)
        self._foresight.rebase(now_ns)

    def _true(self, mean: Array, var: Array) -> tuple[Array, Array]:
        return np.minimum(mean, self._log_capacity), np.sqrt(np.maximum(var - self._noise**2, MIN_SD**2))


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
        self._bandwidth = BandwidthFilter(parameters, self.horizons_s, noise)
        self._latency = _regimes(parameters.latency, parameters.latency_level, noise)
        default = (Intervals(),) * len(self.horizons_s)
        intervals = parameters.intervals or default
        self._spread = np.array([one.spread for one in intervals])[:, None]
        self._widths = np.array([(one.d80, one.d95) for one in intervals]) / self._spread
        self._observed = parameters.observed or default
        self._tracker = Tracker(self._observed, len(self.rows))
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
        told = self._bandwidth.observe(now_ns, alive, seen)
        for h, errors in told.errors:
            self._tracker.judge(h, errors)
        self._nis[alive] += _NIS_MEMORY * (told.nis / self._usual_nis[alive] - self._nis[alive])
        timed = np.flatnonzero(~self.dead & (latency > 0))
        self._latency.observe(now_ns, timed, np.log(latency[timed]))
        return tuple((int(self.rows[link]), int(self.columns[link])) for link in told.changed)

    def forecast(self, now_ns: int) -> Forecast:
        """Median bandwidth (exp of the log mean) and its error at every horizon, seen from `now_ns`."""
        mean, sd = self._bandwidth.outlook(now_ns)
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
        present: Array = self._rates(self._bandwidth.present(now_ns)[None])[0]
        return present

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0, and track intervals afresh from those of training.

        Whatever was judged before may have been fitted to: such errors are too small.
        """
        self._bandwidth.rebase(now_ns)
        self._latency.rebase(now_ns)
        self._tracker = Tracker(self._observed, len(self.rows))

    @property
    def nis(self) -> Array:
        """(K, K) running normalised innovation squared of the bandwidth, over that of training; about 1 while
        links behave as they did there."""
        matrix: Array = self._matrix(self._nis[None], 1.0)[0]
        return matrix

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
