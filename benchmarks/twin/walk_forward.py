"""Walk-forward validation on the bare samples of a data set, at their own irregular times.

A forecaster learns from training series once, sees log values one sample at a time, and gives mean and
variance of an observation some time after the last one. `walk_forward` drives one through all samples;
`intervals` turns the errors it made in training into intervals that need no Gaussian. Beside the forecasters
of the engines (`twin.filters.forecasters`, `twin.filters.gru`) there are the Kalman filters, here with pooled
dynamics: the series of these data sets are short.

`POOL`, `FITTED_SHARE` and calibrating each horizon on its own were chosen on the last 15 % of the
training parts of the data sets in `docs/measured/forecast.md`, never on the held-out parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from twin.filters.conformal_intervals import OPEN, Intervals, IntervalTracker
from twin.filters.forecasters import Ewma, Forecaster, Persistence
from twin.filters.gru import Gru
from twin.filters.kalman_bank import FilterBank, Index
from twin.filters.multiple_model import MultipleModelFilter
from twin.filters.ou_process import MIN_SAMPLES, Array, OuParameters, fit, fit_level

BURN_IN = 5
"""Samples of a link before its forecasts count: the first ones tell more of the start."""
MAX_FITTED = 2000
"""Samples of a link that are fitted: keeps the fit within seconds whatever the length of the series."""
POOL = 30.0
"""Evidence, in samples, that the dynamics of a link are those of the others."""
FITTED_SHARE = 2 / 3
"""Of a training series; the rest calibrates the intervals."""


def fit_pooled(times_s: Sequence[Array], values: Sequence[Array], pool: float = POOL) -> OuParameters:
    """Maximum-likelihood dynamics drawn towards the median of the links with enough samples, by
    pool / (pool + n_l): geometrically, r over the whole variance on the logit axis."""
    own, counts = fit(times_s, values), np.array([len(series) for series in values])
    enough = counts >= MIN_SAMPLES
    if enough.sum() < 2:
        return own
    total = own.stationary_var + own.r
    free = np.stack([-np.log(own.theta_per_s), np.log(total), np.log(own.r / (total - own.r))])
    share = np.where(enough, pool / (pool + counts), 0.0)
    tau, total, odds = np.exp((1 - share) * free + share * np.median(free[:, enough], axis=1, keepdims=True))
    r = total * odds / (1 + odds)
    return OuParameters(own.mu, 1 / tau, np.sqrt(2 * (total - r) / tau), r)


class Kalman:
    """One filter a link (`twin.filters.kalman_bank`), fitted by maximum likelihood."""

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Fit the processes to the last `MAX_FITTED` samples; the filters start stationary."""
        recent = slice(-MAX_FITTED, None)
        self._parameters = fit_pooled([t[recent] for t in times_s], [v[recent] for v in values])
        self._bank = FilterBank(self._parameters)
        self._origin_s = np.array([times[0] for times in times_s])

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Filter step."""
        self._bank.observe(_since(self._origin_s[index], times_s), index, values)

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """Closed form; the variance includes that of the observation."""
        mean, var = self._bank.forecast(self._bank.time_ns, ahead_s)
        return mean, var + self._parameters.r


class Mixture:
    """Both models of the bank engine, weighted by their recent errors: `twin.filters.multiple_model`."""

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Fit both to the last `MAX_FITTED` samples; neither is preferred at the start."""
        times, logs = ([series[-MAX_FITTED:] for series in part] for part in (times_s, values))
        self._models = MultipleModelFilter(fit_pooled(times, logs), fit_level(times, logs))
        self._origin_s = np.array([series[0] for series in times_s])

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Filter step, and new weights of the models."""
        self._models.observe(_since(self._origin_s[index], times_s), index, values)

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """Mean and variance of the mixture."""
        return self._models.forecast(self._models.time_ns, ahead_s)


def _since(origin_s: Array, times_s: Array) -> Index:
    return np.rint((times_s - origin_s) * NS_PER_S).astype(np.int64)


FORECASTERS: dict[str, Callable[[], Forecaster]] = {
    "kalman": Kalman,
    "mixture": Mixture,
    "ewma": Ewma,
    "persistence": Persistence,
    "gru": Gru,
}
"""By name, for comparisons."""


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """Every forecast of a walk: error (log units), its stated deviation, whether the target is in training,
    when it was made and when its target was seen.

    Shapes (H, n, L), `made_s` (n, L); NaN where there is no such sample; `training` is boolean.
    """

    error: Array
    sd: Array
    training: NDArray[np.bool_]
    made_s: Array
    due_s: Array

    def held(self, h: int) -> NDArray[np.bool_]:
        """(n, L) forecasts at horizon index `h` of samples outside the training part."""
        held: NDArray[np.bool_] = ~self.training[h] & np.isfinite(self.error[h])
        return held

    def standardised(self, h: int) -> Array:
        """Errors over their stated deviation at horizon index `h`, outside the training part; (n,)."""
        held = self.held(h)
        z: Array = self.error[h][held] / self.sd[h][held]
        return z


def intervals(
    make: Callable[[], Forecaster],
    times_s: Sequence[Array],
    values: Sequence[Array],
    ahead: Sequence[int],
) -> tuple[Intervals, ...]:
    """Calibrated intervals for each horizon of `ahead` from training windows, pooled over links.

    A forecaster that learned from the first `FITTED_SHARE` of each series is tested on the rest of it: errors
    on samples that it was fitted to would be too small.
    """
    cuts = [int(FITTED_SHARE * len(series)) for series in values]
    errors = walk_forward(make(), times_s, values, cuts, ahead)
    return tuple(Intervals.of(errors.standardised(h)) for h in range(len(ahead)))


def tracked(found: Walk, h: int, trained: Intervals, ahead: int) -> Array:
    """Half widths (n, 2), in stated deviations, of the held-out forecasts at horizon index `h`, `ahead`
    samples, as `Walk.standardised` orders them: those of training, moved by every error known by then.

    As in `twin.filters.horizon_mixture`, no more than about `OPEN` forecasts of a link wait for their truth.
    """
    held, tracker = found.held(h), IntervalTracker([trained], found.error.shape[2])
    rows = np.arange(held.shape[0])[:, None]
    compared = held & (rows % max(1, ahead // OPEN) == 0)
    z, due = (found.error[h] / found.sd[h])[compared], found.due_s[h][compared]
    order = np.argsort(due, kind="stable")
    moments, first = np.unique(due[order], return_index=True)
    factors = [np.ones(2)]
    for errors in np.split(z[order], first[1:]):
        tracker.update(0, errors)
        factors.append(tracker.factor[0])
    known = np.searchsorted(moments, found.made_s[held], side="right")
    widths: Array = np.array(factors)[known] * (trained.d80, trained.d95)
    return widths


def walk_forward(
    model: Forecaster,
    times_s: Sequence[Array],
    values: Sequence[Array],
    cuts: Sequence[int],
    ahead: Sequence[int],
) -> Walk:
    """Train `model` on the first `cuts[l]` samples of each link, then forecast sample k - 1 + h before it
    sees sample k, for every k and every h of `ahead` (in samples)."""
    model.train(
        [t[:cut] for t, cut in zip(times_s, cuts, strict=True)],
        [v[:cut] for v, cut in zip(values, cuts, strict=True)],
    )
    lengths, links, longest = np.array([len(v) for v in values]), len(values), max(len(v) for v in values)
    times, panel = np.full((2, longest + max(ahead), links), np.nan)
    for link, (t, v) in enumerate(zip(times_s, values, strict=True)):
        times[: len(t), link], panel[: len(v), link] = t, v
    shape = (len(ahead), longest, links)
    error, sd = np.full(shape, np.nan), np.full(shape, np.nan)
    targets = np.arange(longest)[None, :] - 1 + np.asarray(ahead)[:, None]
    training = targets[:, :, None] < np.asarray(cuts)
    for k in range(longest):
        if k >= BURN_IN:
            mean, var = model.predict(np.nan_to_num(times[targets[:, k]] - times[k - 1], nan=1.0))
            error[:, k], sd[:, k] = panel[targets[:, k]] - mean, np.sqrt(var)
        index = np.flatnonzero(k < lengths)
        model.observe(index, times[k, index], panel[k, index])
    made_s = np.roll(times, 1, axis=0)[:longest]
    return Walk(error, sd, training, made_s, times[targets])
