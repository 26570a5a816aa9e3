"""Scalar Kalman filters, many of them advanced as one array.

State space of the exact discretised OU process for irregular steps dt (`twin.filters.ou_process`):

    x' = mu + a (x - mu),  P' = a^2 P + sigma^2 (1 - a^2) / (2 theta),  a = exp(-theta dt)
    e = z - x',  S = P' + r,  K = P'/S,  x = x' + K e,  P = (1 - K) P'

One innovation beyond `gate` deviations may be an outlier (measured rates have many) and is filtered like any
other; a second one in a row on the same side is a level change: the filter is re-initialised on it. On
cloudpilot-iperf3 that takes 6 % off the error of re-initialising at once. `mu` stays what training found:
that a link does not return to it is another model (`twin.filters.multiple_model`).
`twin.filters.filterpy_bank` runs the same filters with filterpy; a test holds both equal.
"""

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from twin.filters.ou_process import Array, OuParameters

GATE = 4.0

Index = NDArray[np.int64]


class FilterBank:
    """L filters, stationary at time 0.

    `innovation` and `total` (L,) are e and S of the newest observation of each link (0 and 1 before any).
    """

    def __init__(self, parameters: OuParameters, gate: float = GATE):
        links = len(parameters.mu)
        self.parameters = parameters
        self.stationary_var = parameters.stationary_var
        self.mean, self.var = parameters.mu.copy(), self.stationary_var.copy()
        self.time_ns = np.zeros(links, np.int64)
        self.gate = gate
        self.innovation, self.total = np.zeros(links), np.ones(links)
        self._suspect = np.zeros(links)  # side on which the last innovation was beyond the gate, or 0

    def observe(self, now_ns: int | Index, index: Index, z_log: Array) -> Index:
        """Takes observations `z_log` (n,) of links `index` (n,), each at most once, made at `now_ns`, () or
        (n,).

        Returns: the links that were re-initialised. Links not named grow uncertain. Time cannot run back.
        """
        assert np.all(now_ns >= self.time_ns[index]), "an observation older than the filter's state"
        reset = self._step(np.broadcast_to(np.asarray(now_ns), index.shape), index, z_log)
        changed: Index = index[reset]
        return changed

    def _step(self, times_ns: Index, index: Index, z_log: Array) -> NDArray[np.bool_]:
        """One Kalman step of each filter in `index` (n,); returns (n,) whether it was re-initialised."""
        from twin.filters import kalman_steps  # brings numba, needed from the first observation on

        own = self.parameters
        reset: NDArray[np.bool_] = kalman_steps.observe(
            times_ns, index, z_log, own.mu, own.theta_per_s, self.stationary_var, own.r, self.gate,
            self.mean, self.var, self.time_ns, self._suspect, self.innovation, self.total,
        )  # fmt: skip
        return reset

    def forecast_models(self, dt_s: Array) -> tuple[Array, Array]:
        """Mean and variance (H, 2, n) of an observation `dt_s` (H, n) after the last one, by model.

        For a bank that runs two models of n links, L = 2 n.
        """
        from twin.filters import kalman_steps  # brings numba

        own = self.parameters
        means, variances = kalman_steps.forecast_models(
            dt_s, own.mu, own.theta_per_s, self.stationary_var, own.r, self.mean, self.var
        )
        return means, variances

    def forecast(self, now_ns: int | Index, horizons_s: Array) -> tuple[Array, Array]:
        """Mean and variance (H, L) of x at `now_ns`, () or (L,), + each horizon, (H,) or (H, L); closed
        form."""
        ahead_s = horizons_s if horizons_s.ndim == 2 else horizons_s[:, None]
        dt_s = (now_ns - self.time_ns) / NS_PER_S + ahead_s
        theta, mu = self.parameters.theta_per_s, self.parameters.mu
        a = np.exp(-theta * dt_s)
        forgotten = -np.expm1(-2 * theta * dt_s)  # 1 - a^2, exact for a process that hardly reverts
        mean: Array = mu + a * (self.mean - mu)
        var: Array = a * a * self.var + forgotten * self.stationary_var
        return mean, var

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        self.time_ns = self.time_ns - now_ns
