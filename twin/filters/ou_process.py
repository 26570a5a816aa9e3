"""Ornstein-Uhlenbeck process of the Kalman filters, its parameters fitted by maximum likelihood.

    dx = -theta (x - mu) dt + sigma dW,   z = x + v,   v ~ N(0, r)

`x` is the log of a bandwidth or latency. Observed at irregular times t_k, the likelihood is that of the
Kalman filter with a_k = exp(-theta (t_k - t_{k-1})) (exact discretisation). With the stationary variance
written as s2 (1 - rho) and r = s2 rho, both mu (generalised least squares) and s2 (mean normalised squared
innovation) have closed forms given (tau = 1/theta, rho), so only these two are searched, on a grid that is
refined around its best point. Without an iterative optimiser the same samples give the same parameters with
every library version.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MIN_SAMPLES = 12
"""Links with fewer samples take their dynamics from the other links."""
DEFAULT_TAU_S, DEFAULT_SD, DEFAULT_RHO = 600.0, 0.2, 0.1
"""Dynamics where no link has enough samples: 20 % variation over ten minutes."""
MIN_SD = 1e-3
"""Least deviation, 0.1 %: keeps the variances of a series that never changed positive."""
FOREVER_S = 1e13
"""Correlation time of a process that does not revert: longer than any trace."""

_GRID = 13
_REFINEMENTS = 4
_RATIOS = np.exp(np.linspace(np.log(1e-4), np.log(1e4), 41))
"""Searched ratios of the variance of a level's change in a median step to that of an observation."""
_BATCH = 64
"""Links fitted at once: as many as fit into the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class OuParameters:
    """Parameters of L independent processes; every array has shape (L,)."""

    mu: Array
    theta_per_s: Array
    sigma: Array  # per sqrt(s)
    r: Array  # variance of an observation around x

    @property
    def stationary_var(self) -> Array:
        """(L,) variance of x without any observation."""
        variance: Array = self.sigma**2 / (2 * self.theta_per_s)
        return variance

    @property
    def without_reversion(self) -> "OuParameters":
        """Same diffusion, but no return to `mu`."""
        return OuParameters(self.mu, np.full_like(self.mu, 1 / FOREVER_S), self.sigma, self.r)

    def observed_with(self, noise: float) -> "OuParameters":
        """Same process, with noise of deviation `noise` on top of its observations."""
        return OuParameters(self.mu, self.theta_per_s, self.sigma, self.r + noise * noise)

    @classmethod
    def of(cls, mu: Array, *, tau_s: float, sd: float, r: float) -> "OuParameters":
        """Parameters with the same correlation time, stationary deviation and observation variance for all
        links."""
        one = np.ones_like(mu)
        return cls(mu, one / tau_s, one * sd * np.sqrt(2 / tau_s), one * r)


def fit(times_s: Sequence[Array], values: Sequence[Array]) -> OuParameters:
    """Maximum-likelihood parameters of each link from its samples.

    `times_s[l]` ascends strictly, `values[l]` are logs; both (n_l,), n_l >= 1. A link with fewer than
    `MIN_SAMPLES` samples keeps its own mean and takes the median dynamics of the others; without any other
    link the defaults of this module hold.
    """
    rows = np.array([[z.mean(), DEFAULT_TAU_S, DEFAULT_SD**2, DEFAULT_RHO] for z in values])
    enough = [link for link, z in enumerate(values) if len(z) >= MIN_SAMPLES]
    for links in _same_times(times_s, enough):
        moving = [link for link in links if np.ptp(values[link]) > 0]
        for start in range(0, len(moving), _BATCH):
            group = moving[start : start + _BATCH]
            rows[group] = _fit_batch(times_s[group[0]], np.array([values[link] for link in group]))
        still = [link for link in links if np.ptp(values[link]) == 0]
        if still:  # equal but for their mean
            rows[still, 1:] = _fit_batch(times_s[still[0]], values[still[0]][None])[0, 1:]
    few = [link for link in range(len(values)) if link not in enough]
    if enough and few:
        rows[few, 1:] = np.median(rows[enough, 1:], axis=0)
    mu, tau, s2, rho = rows.T
    return OuParameters(mu, 1 / tau, np.sqrt(2 * s2 * (1 - rho) / tau), s2 * rho)


def fit_level(times_s: Sequence[Array], values: Sequence[Array]) -> OuParameters:
    """Maximum-likelihood parameters of links whose level does not revert: dx = sigma dW, tau = `FOREVER_S`.

    Given lambda = sigma^2 step / r, r has a closed form, so only lambda is searched, on a grid. `mu` is the
    first value and has no weight. Links with too few samples are treated as by `fit`.
    """
    rows = np.array([[DEFAULT_SD**2 / DEFAULT_TAU_S, DEFAULT_SD**2 * DEFAULT_RHO] for _ in values])
    enough = [link for link, z in enumerate(values) if len(z) >= MIN_SAMPLES]
    for links in _same_times(times_s, enough):
        rows[links] = _fit_level_batch(times_s[links[0]], np.array([values[link] for link in links]))
    few = [link for link in range(len(values)) if link not in enough]
    if enough and few:
        rows[few] = np.median(rows[enough], axis=0)
    q, r = rows.T
    mu = np.array([z[0] for z in values])
    return OuParameters(mu, np.full(len(mu), 1 / FOREVER_S), np.sqrt(q), r)


def joined(parts: Sequence[OuParameters]) -> OuParameters:
    """Parameters of the links of all parts, one part after the other."""
    fields = ((part.mu, part.theta_per_s, part.sigma, part.r) for part in parts)
    return OuParameters(*(np.concatenate(column) for column in zip(*fields, strict=True)))


def _same_times(times_s: Sequence[Array], links: Sequence[int]) -> list[list[int]]:
    """Links grouped by equal sample times: a group is fitted in one go."""
    groups: dict[bytes, list[int]] = {}
    for link in links:
        groups.setdefault(times_s[link].tobytes(), []).append(link)
    return list(groups.values())


def _fit_batch(times_s: Array, z: Array) -> Array:
    """Rows (mu, tau_s, s2, rho) of B series `z` (B, n) sampled at the same times."""
    steps = np.diff(times_s)
    low, high = np.log(steps.min() / 3), np.log(2 * (times_s[-1] - times_s[0]))
    tau_axis = np.tile(np.linspace(low, high, _GRID), (len(z), 1))
    rho_axis = np.tile(np.linspace(-6.0, 6.0, _GRID), (len(z), 1))  # logit
    every = np.arange(len(z))
    for _ in range(_REFINEMENTS):
        log_tau = np.repeat(tau_axis, _GRID, axis=1)
        logit = np.tile(rho_axis, (1, _GRID))
        mu, s2, likelihood = _profile(np.exp(log_tau), 1 / (1 + np.exp(-logit)), steps, z)
        best = every, np.argmax(likelihood, axis=1)
        tau_axis, rho_axis = _around(tau_axis, log_tau[best]), _around(rho_axis, logit[best])
    return np.stack([mu[best], np.exp(log_tau[best]), s2[best], 1 / (1 + np.exp(-logit[best]))], axis=1)


def _around(axis: Array, centre: Array) -> Array:
    """A finer axis (B, G) over the neighbours of `centre` (B,), inside the old one."""
    width = axis[:, 1] - axis[:, 0]
    low, high = np.maximum(axis[:, 0], centre - width), np.minimum(axis[:, -1], centre + width)
    finer: Array = np.linspace(low, high, _GRID, axis=1)
    return finer


def _profile(tau_s: Array, rho: Array, steps_s: Array, z: Array) -> tuple[Array, Array, Array]:
    """mu, s2 and log likelihood (up to a constant) for every grid point; arrays (B, G), `z` (B, n)."""
    centre = z.mean(axis=1, keepdims=True)
    residual = z - centre
    state_z, state_1, p = np.zeros_like(rho), np.zeros_like(rho), 1 - rho
    cross, square, data, log_f = np.zeros((4, *rho.shape))
    a, last = np.zeros_like(rho), 0.0
    for k in range(z.shape[1]):
        if k:
            if steps_s[k - 1] != last:
                last = steps_s[k - 1]
                a = np.exp(-last / tau_s)
            state_z, state_1, p = a * state_z, a * state_1, a * a * p + (1 - a * a) * (1 - rho)
        f = p + rho
        e_z, e_1 = residual[:, k : k + 1] - state_z, 1 - state_1
        cross += e_z * e_1 / f
        square += e_1 * e_1 / f
        data += e_z * e_z / f
        log_f += np.log(f)
        gain = p / f
        state_z, state_1, p = state_z + gain * e_z, state_1 + gain * e_1, (1 - gain) * p
    n = z.shape[1]
    mu = cross / square
    s2 = np.maximum((data - mu * cross) / n, MIN_SD**2)
    return mu + centre, s2, -0.5 * (n * np.log(s2) + log_f)


def _fit_level_batch(times_s: Array, z: Array) -> Array:
    """Rows (sigma^2 per s, r) of B levels `z` (B, n) sampled at the same times."""
    steps = np.diff(times_s)
    step = float(np.median(steps))
    level, p = np.repeat(z[:, :1], len(_RATIOS), axis=1), np.ones(len(_RATIOS))
    data, log_f = np.zeros_like(level), np.zeros(len(_RATIOS))
    for k in range(1, z.shape[1]):
        p = p + _RATIOS * (steps[k - 1] / step)
        f = p + 1
        error = z[:, k : k + 1] - level
        data += error * error / f
        log_f += np.log(f)
        level = level + p / f * error
        p = p / f
    n = z.shape[1] - 1
    r = np.maximum(data / n, MIN_SD**2)
    best = np.argmax(-0.5 * (n * np.log(r) + log_f), axis=1)
    r = r[np.arange(len(z)), best]
    return np.stack([_RATIOS[best] * r / step, r], axis=1)
