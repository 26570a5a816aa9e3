"""Runs the filters of `twin.filters.kalman_bank` with filterpy, one `KalmanFilter` each.

Slower, and independent of our own equations; a test holds both banks equal.
"""

from math import exp, expm1

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from twin.filters.kalman_bank import GATE, FilterBank, Index
from twin.filters.ou_process import Array, OuParameters

_Transition = tuple[Array, Array, Array, Array]


class FilterpyBank(FilterBank):
    """L filters of filterpy behind the interface of `FilterBank`."""

    def __init__(self, parameters: OuParameters, gate: float = GATE):
        from filterpy.kalman import KalmanFilter  # brings scipy

        super().__init__(parameters, gate)
        self._filters = []
        for mean, var, r in zip(self.mean, self.var, parameters.r, strict=True):
            own = KalmanFilter(dim_x=1, dim_z=1, dim_u=1)
            own.x, own.P, own.R, own.H = np.array([[mean]]), np.array([[var]]), np.array([[r]]), np.eye(1)
            self._filters.append(own)

    def forecast_models(self, dt_s: Array) -> tuple[Array, Array]:
        """As `FilterBank.forecast_models`."""
        horizons, links = dt_s.shape
        means, variances = np.empty((2, horizons, len(self._filters)))
        for h in range(horizons):
            for i, own in enumerate(self._filters):
                mean, var = own.get_prediction(*self._transition(i, dt_s[h, i % links]))
                means[h, i], variances[h, i] = mean[0, 0], var[0, 0] + own.R[0, 0]
        return means.reshape(horizons, 2, links), variances.reshape(horizons, 2, links)

    def _step(self, times_ns: Index, index: Index, z_log: Array) -> NDArray[np.bool_]:
        reset = np.zeros(len(index), np.bool_)
        for k, (now_ns, i, z) in enumerate(zip(times_ns, index, z_log, strict=True)):
            own = self._filters[i]
            own.predict(*self._transition(i, (now_ns - self.time_ns[i]) / NS_PER_S))
            own.update(z)
            e, s = own.y[0, 0], own.S[0, 0]
            side = np.sign(e) if e * e > self.gate**2 * s else 0.0
            reset[k] = side != 0 and side == self._suspect[i]
            if reset[k]:
                own.x, own.P = np.array([[z]]), own.R.copy()
            self.mean[i], self.var[i], self.time_ns[i] = own.x[0, 0], own.P[0, 0], now_ns
            self._suspect[i], self.innovation[i], self.total[i] = side, e, s
        return reset

    def _transition(self, i: int, dt_s: float) -> _Transition:
        """u, B, F and Q of filter i over `dt_s`: the exact discretisation, mu being the control input."""
        decay = self.parameters.theta_per_s[i] * dt_s
        noise = -expm1(-2 * decay) * self.stationary_var[i]
        terms = (self.parameters.mu[i], -expm1(-decay), exp(-decay), noise)
        u, b, f, q = (np.array([[term]]) for term in terms)
        return u, b, f, q
