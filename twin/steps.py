"""The inner loops of `twin.bank` and `twin.regimes`, compiled: a replay takes one a telemetry tick."""

from math import exp, expm1, log

import numpy as np
from numba import njit


@njit(cache=True)
def observe(now_ns, index, z, mu, theta, stationary, r, gate, mean, var, time_ns, suspect, innovation, total):  # type: ignore[no-untyped-def]
    """One Kalman step of each filter in `index` (n,), in place; `now_ns` and `z` (n,), the others (L,).

    Returns: (n,) whether the filter was re-initialised.
    """
    again = np.zeros(len(index), np.bool_)
    for k in range(len(index)):
        i = index[k]
        dt = (now_ns[k] - time_ns[i]) / 1e9
        a = exp(-theta[i] * dt)
        p = a * a * var[i] - expm1(-2 * theta[i] * dt) * stationary[i]
        x = mu[i] + a * (mean[i] - mu[i])
        e, s = z[k] - x, p + r[i]
        side = np.sign(e) if e * e > gate * gate * s else 0.0
        again[k] = side != 0 and side == suspect[i]
        mean[i] = z[k] if again[k] else x + p / s * e
        var[i] = r[i] if again[k] else r[i] * p / s
        time_ns[i], suspect[i], innovation[i], total[i] = now_ns[k], side, e, s
    return again


@njit(cache=True)
def believe(index, innovation, total, seen, memory, gate, score):  # type: ignore[no-untyped-def]
    """Judge both regimes of the links `index` (n,) by their newest innovations, in place; `innovation` and
    `total` (2 L,), `seen` (L,), `score` (2, L).

    Returns: (n,) the square of the mixture's innovation over its variance, at most `gate` squared.
    """
    links = len(seen)
    nis = np.empty(len(index))
    for k in range(len(index)):
        i = index[k]
        j = i + links
        share = _share(score, i)
        mean, var = _mixed(share, innovation[i], innovation[j], total[i], total[j])
        nis[k] = min(mean * mean / var, gate * gate)
        for regime, at in enumerate((i, j)):
            loss = min(innovation[at] * innovation[at] / total[at], gate * gate) + log(total[at])
            score[regime, i] = memory * score[regime, i] + loss if seen[i] else 0.0
        seen[i] = True
    return nis


@njit(cache=True)
def outlook(dt_s, mu, theta, stationary, r, mean, var, score):  # type: ignore[no-untyped-def]
    """Mean and variance of an observation `dt_s` (H, L) after the last one; `score` (2, L), others (2 L,)."""
    horizons, links = dt_s.shape
    middle, spread = np.empty((horizons, links)), np.empty((horizons, links))
    for i in range(links):
        j = i + links
        share = _share(score, i)
        for h in range(horizons):
            x, p = _later(dt_s[h, i], mu[i], theta[i], stationary[i], mean[i], var[i])
            y, q = _later(dt_s[h, i], mu[j], theta[j], stationary[j], mean[j], var[j])
            middle[h, i], spread[h, i] = _mixed(share, x, y, p + r[i], q + r[j])
    return middle, spread


@njit(inline="always")
def _later(dt_s, mu, theta, stationary, mean, var):  # type: ignore[no-untyped-def]
    a = exp(-theta * dt_s)
    return mu + a * (mean - mu), a * a * var - expm1(-2 * theta * dt_s) * stationary


@njit(inline="always")
def _share(score, i):  # type: ignore[no-untyped-def]
    """Belief that link i reverts."""
    return 1 / (1 + exp(0.5 * (score[0, i] - score[1, i])))


@njit(inline="always")
def _mixed(share, mean, other, var, others):  # type: ignore[no-untyped-def]
    """Mean and variance of a mixture: `share` of the first."""
    rest = 1 - share
    apart = mean - other
    return share * mean + rest * other, share * var + rest * others + share * rest * apart * apart
