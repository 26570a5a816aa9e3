"""State estimation: a scalar Kalman filter per link and quantity, all of them advanced as one array.

State space of the exact discretised OU process for irregular steps dt (`twin.ou`):

    x' = mu + a (x - mu),  P' = a^2 P + sigma^2 (1 - a^2) / (2 theta),  a = exp(-theta dt)
    e = z - x',  S = P' + r,  K = P'/S,  x = x' + K e,  P = (1 - K) P'

One innovation beyond `gate` deviations may be an outlier (measured rates have many) and is filtered like any
other; a second one in a row on the same side is a level change: the filter is re-initialised on it, state and
`mu`. On cloudpilot-iperf3 that takes 6 % off the error of re-initialising at once (`benchmarks/kalman.py`).
Equal to filterpy's KalmanFilter by test.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.units import NS_PER_S
from twin.domain import LinkState
from twin.ou import Array, OuParameters
from twin.view import Forecast

GATE = 4.0
_NIS_MEMORY = 0.05
"""Weight of the newest observation in the running mean of the normalised innovation squared."""

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class FilterState:
    """Mean and variance of x (L,) at one instant."""

    mean: Array
    var: Array


class FilterBank:
    """L scalar filters over one quantity. `start` is the state at time 0 (default: the stationary one)."""

    def __init__(self, parameters: OuParameters, start: FilterState | None = None, gate: float = GATE):
        self.parameters = parameters
        self.mu = parameters.mu.copy()
        self.stationary_var = parameters.stationary_var
        self.mean = (start.mean if start else parameters.mu).copy()
        self.var = (start.var if start else self.stationary_var).copy()
        self.time_ns = np.zeros(len(self.mu), np.int64)
        self.gate = gate
        self.nis = np.ones(len(self.mu))  # running mean; 1 when the filter is right about its own error
        self.alarms = np.zeros(len(self.mu), np.int64)
        self._suspect = np.zeros(len(self.mu))  # side on which the last innovation was beyond the gate, or 0

    def observe(self, now_ns: int | Index, index: Index, z_log: Array) -> Index:
        """Take observations `z_log` (n,) of links `index` (n,), each link at most once, made at `now_ns`, one
        time for all or one (n,) each.

        Returns: the links that were re-initialised. Links not named grow uncertain. Time cannot run back.
        """
        r = self.parameters.r[index]
        mean, var = self._predict(now_ns, index)
        innovation, total = z_log - mean, var + r
        nis = innovation**2 / total
        gain = var / total
        side = np.where(nis > self.gate**2, np.sign(innovation), 0.0)
        again = (side != 0) & (side == self._suspect[index])
        self.mean[index] = np.where(again, z_log, mean + gain * innovation)
        self.var[index] = np.where(again, r, (1 - gain) * var)
        self.mu[index] = np.where(again, z_log, self.mu[index])
        self.time_ns[index] = now_ns
        self.nis[index] += _NIS_MEMORY * (nis - self.nis[index])
        self.alarms[index] += again
        self._suspect[index] = side
        changed: Index = index[again]
        return changed

    def forecast(self, now_ns: int | Index, horizons_s: Array) -> tuple[Array, Array]:
        """Mean and variance of x at `now_ns` (or (L,)) + each horizon (H,) or (H, L); both (H, L), closed
        form."""
        ahead_s = horizons_s if horizons_s.ndim == 2 else horizons_s[:, None]
        dt = (now_ns - self.time_ns) / NS_PER_S + ahead_s
        a = np.exp(-self.parameters.theta_per_s * dt)
        mean: Array = self.mu + a * (self.mean - self.mu)
        var: Array = a * a * self.var + (1 - a * a) * self.stationary_var
        return mean, var

    def state(self, now_ns: int) -> FilterState:
        """The state at `now_ns`, to start another bank from."""
        mean, var = self.forecast(now_ns, np.zeros(1))
        return FilterState(mean[0], var[0])

    def _predict(self, now_ns: int | Index, index: Index) -> tuple[Array, Array]:
        dt = (now_ns - self.time_ns[index]) / NS_PER_S
        assert dt.size == 0 or dt.min() >= 0, "an observation older than the filter's state"
        a = np.exp(-self.parameters.theta_per_s[index] * dt)
        mu = self.mu[index]
        mean: Array = mu + a * (self.mean[index] - mu)
        var: Array = a * a * self.var[index] + (1 - a * a) * self.stationary_var[index]
        return mean, var


@dataclass(frozen=True, slots=True, eq=False)
class LinkParameters:
    """Dynamics of all K (K - 1) directed links, in the order of `pairs(K)`."""

    bandwidth: OuParameters  # of log bit/s
    latency: OuParameters  # of log seconds, one way


@dataclass(frozen=True, slots=True, eq=False)
class LinkStart:
    """What the past before time 0 says about each link."""

    bandwidth: FilterState
    latency: FilterState


def pairs(size: int) -> tuple[Index, Index]:
    """Source and destination of link l = 0 .. K (K - 1) - 1: every ordered pair, row by row."""
    rows, columns = np.nonzero(~np.eye(size, dtype=np.bool_))
    return rows.astype(np.int64), columns.astype(np.int64)


class LinkFilter:
    """The filtered state of a (K, K) network: log bandwidth and log latency of every directed link.

    `noise` is the deviation of the log of a telemetry sample, on top of the fitted scatter of the link.
    A link seen dead (0 bit/s) is forecast dead until it is seen alive.
    """

    def __init__(
        self,
        parameters: LinkParameters,
        size: int,
        horizons_s: Sequence[float],
        *,
        noise: float = 0.0,
        start: LinkStart | None = None,
    ):
        self.size = size
        self.horizons_s = np.asarray(horizons_s, np.float64)
        self.rows, self.columns = pairs(size)
        self.scatter = parameters.bandwidth.r
        self.bandwidth = FilterBank(_noisy(parameters.bandwidth, noise), start.bandwidth if start else None)
        self.latency = FilterBank(_noisy(parameters.latency, noise), start.latency if start else None)
        self.dead = np.zeros(len(self.rows), np.bool_)

    def observe(self, now_ns: int, links: LinkState) -> tuple[tuple[int, int], ...]:
        """Take one telemetry sample of every link, made at `now_ns`.

        Returns: the links whose filter re-initialised, an alarm each.
        """
        bandwidth = links.bandwidth_bps[self.rows, self.columns]
        latency = links.latency_s[self.rows, self.columns]
        self.dead = bandwidth <= 0
        alive = np.flatnonzero(~self.dead)
        beyond = self.bandwidth.observe(now_ns, alive, np.log(bandwidth[alive]))
        timed = np.flatnonzero(~self.dead & (latency > 0))
        self.latency.observe(now_ns, timed, np.log(latency[timed]))
        return tuple((int(self.rows[link]), int(self.columns[link])) for link in beyond)

    def forecast(self, now_ns: int) -> Forecast:
        """Median bandwidth (exp of the log mean) and its relative error at every horizon, seen from `now_ns`.

        The error includes the link's own fast scatter: it is that of the bandwidth a transfer will meet.
        """
        mean, var = self.bandwidth.forecast(now_ns, self.horizons_s)
        latency, _ = self.latency.forecast(now_ns, np.zeros(1))
        return Forecast(
            horizons_s=self.horizons_s,
            bandwidth_bps=self._matrix(np.where(self.dead, 0.0, np.exp(mean)), np.inf),
            sd_log=self._matrix(np.sqrt(var + self.scatter), 0.0),
            latency_s=self._matrix(np.exp(latency), 0.0)[0],
        )

    @property
    def nis(self) -> Array:
        """(K, K) running normalised innovation squared of the bandwidth filters; about 1 when healthy."""
        matrix: Array = self._matrix(self.bandwidth.nis[None], 1.0)[0]
        return matrix

    def _matrix(self, values: Array, diagonal: float) -> Array:
        """(H, L) values as (H, K, K)."""
        matrix = np.full((len(values), self.size, self.size), diagonal)
        matrix[:, self.rows, self.columns] = values
        return matrix


def _noisy(parameters: OuParameters, noise: float) -> OuParameters:
    return OuParameters(parameters.mu, parameters.theta_per_s, parameters.sigma, parameters.r + noise * noise)
