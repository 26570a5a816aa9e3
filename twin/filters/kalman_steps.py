"""Compiled inner loops of `twin.filters.kalman_bank` and `twin.filters.multiple_model`."""

from math import exp, expm1, log

import numpy as np

from ingest.core.compiled import njit


@njit(cache=True)
def observe(now_ns, index, z, mu, theta, stationary, r, gate, mean, var, time_ns, suspect, innovation, total):  # type: ignore[no-untyped-def]
    """One Kalman step of each filter in `index` (n,), in place; `now_ns` and `z` (n,), the others (L,).

    Returns: (n,) whether the filter was re-initialised.
    """
    reset = np.zeros(len(index), np.bool_)
    for k in range(len(index)):
        i = index[k]
        dt = (now_ns[k] - time_ns[i]) / 1e9
        a = exp(-theta[i] * dt)
        p = a * a * var[i] - expm1(-2 * theta[i] * dt) * stationary[i]
        x = mu[i] + a * (mean[i] - mu[i])
        e, s = z[k] - x, p + r[i]
        side = np.sign(e) if e * e > gate * gate * s else 0.0
        reset[k] = side != 0 and side == suspect[i]
        mean[i] = z[k] if reset[k] else x + p / s * e
        var[i] = r[i] if reset[k] else r[i] * p / s
        time_ns[i], suspect[i], innovation[i], total[i] = now_ns[k], side, e, s
    return reset


@njit(cache=True)
def update_model_weights(index, innovation, total, seen, memory, gate, score):  # type: ignore[no-untyped-def]
    """Adds the newest innovations of both models of the links `index` (n,) to their scores, in place.

    `innovation` and `total` (2 L,), `seen` (L,), `score` (2, L).

    Returns: (n,) the square of the mixture's innovation over its variance, at most `gate` squared.
    """
    links = len(seen)
    nis = np.empty(len(index))
    for k in range(len(index)):
        i = index[k]
        j = i + links
        weight = _weight(score[0, i] - score[1, i])
        mean, var = _mixed(weight, innovation[i], innovation[j], total[i], total[j])
        nis[k] = min(mean * mean / var, gate * gate)
        for model, row in enumerate((i, j)):
            loss = min(innovation[row] * innovation[row] / total[row], gate * gate) + log(total[row])
            score[model, i] = memory * score[model, i] + loss if seen[i] else 0.0
        seen[i] = True
    return nis


@njit(cache=True)
def forecast_models(dt_s, mu, theta, stationary, r, mean, var):  # type: ignore[no-untyped-def]
    """Means and variances (H, 2, L) of an observation `dt_s` (H, L) after the last one; others (2 L,)."""
    horizons, links = dt_s.shape
    middle, spread = np.empty((horizons, 2, links)), np.empty((horizons, 2, links))
    for h in range(horizons):
        for i in range(2 * links):
            model, link = i // links, i % links
            a = exp(-theta[i] * dt_s[h, link])
            fresh = expm1(-2 * theta[i] * dt_s[h, link]) * stationary[i]
            middle[h, model, link] = mu[i] + a * (mean[i] - mu[i])
            spread[h, model, link] = a * a * var[i] - fresh + r[i]
    return middle, spread


@njit(cache=True)
def mixture_moments(odds, means, variances):  # type: ignore[no-untyped-def]
    """Mean and variance (H, L) of the mixture; `odds` (H, L) against the first model, others (H, 2, L)."""
    horizons, links = odds.shape
    middle, spread = np.empty((horizons, links)), np.empty((horizons, links))
    for h in range(horizons):
        for i in range(links):
            middle[h, i], spread[h, i] = _mixed(
                _weight(odds[h, i]), means[h, 0, i], means[h, 1, i], variances[h, 0, i], variances[h, 1, i]
            )
    return middle, spread


@njit(inline="always")
def _weight(odds):  # type: ignore[no-untyped-def]
    """Weight of the reverting model, from the evidence against it."""
    return 1 / (1 + exp(0.5 * odds))


@njit(inline="always")
def _mixed(weight, mean, other, var, other_var):  # type: ignore[no-untyped-def]
    """Mean and variance of a mixture of two, `weight` being that of the first."""
    rest = 1 - weight
    apart = mean - other
    return weight * mean + rest * other, weight * var + rest * other_var + weight * rest * apart * apart
