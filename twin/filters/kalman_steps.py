"""Compiled inner loops of `twin.filters.kalman_bank`, `multiple_model` and `change_alarms` there."""

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

    Returns: (5, n) the mixture's innovation and its variance, the weight of the first model, and the
    variances of both models.
    """
    links = len(seen)
    found = np.empty((5, len(index)))
    for k in range(len(index)):
        i = index[k]
        j = i + links
        weight = _weight(score[0, i] - score[1, i])
        mean, var = _mixed(weight, innovation[i], innovation[j], total[i], total[j])
        found[0, k], found[1, k] = mean, var
        found[2, k], found[3, k], found[4, k] = weight, total[i], total[j]
        for model, row in enumerate((i, j)):
            loss = min(innovation[row] * innovation[row] / total[row], gate * gate) + log(total[row])
            score[model, i] = memory * score[model, i] + loss if seen[i] else 0.0
        seen[i] = True
    return found


@njit(cache=True)
def raise_alarms(index, z, found, limits, memory, raised, suspected, side, count, expected, recent):  # type: ignore[no-untyped-def]
    """One step of the alarms of the links `index` (n,), in place.

    `z` (n,) and `found` (5, n) as `update_model_weights` returns it; `limits` and `memory` as in
    `twin.filters.change_alarms`. The others are of all links: `raised`, `suspected` (L,) whether the forecast
    `expected` (3, L), mean, variance and weight of the first model, is kept, `side` (L,) of it on which the
    last `count` (L,) samples were, beyond the gate, or 0; `recent` (2, L) the fading mean of the NIS and
    the share of outliers.

    Returns: (n,) whether an alarm is raised now.
    """
    gate, settled, usual = limits
    new = np.zeros(len(index), np.bool_)
    for k in range(len(index)):
        i = index[k]
        e, variance, weight, total, other = found[:, k]
        fits = e * e <= gate * gate * variance
        recent[0, i] += (1 - memory[0]) * (min(e * e / variance, gate * gate) - recent[0, i])
        if raised[i]:
            raised[i] = recent[0, i] > settled
            continue
        if not suspected[i]:
            suspected[i], side[i] = not fits, 0.0
            expected[0, i], expected[1, i], expected[2, i] = z[k] - e, variance, weight
        off = z[k] - expected[0, i]
        # After a pause the old forecast has become as uncertain as its models are now.
        spread = max(expected[1, i], expected[2, i] * total + (1 - expected[2, i]) * other)
        before, side[i] = side[i], np.sign(off) if off * off > gate * gate * spread else 0.0
        beyond = side[i] != 0
        goes_on = beyond and side[i] == before
        was_outlier = count[i] > 0 and not goes_on
        needed = 2 if recent[1, i] <= usual else 3
        count[i] = count[i] + 1 if goes_on else int(beyond)
        recent[1, i] += (1 - memory[1]) * (was_outlier - recent[1, i])
        if count[i] >= needed:
            new[k], raised[i], suspected[i], side[i], count[i] = True, True, False, 0.0, 0
        elif not beyond and fits:
            suspected[i] = False
    return new


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
