"""Forecasters of the links of one data set behind one interface: the Kalman filter and what a sceptic would
compare it with.

All L links are forecast together, as arrays; each has its own clock in seconds. A forecaster learns from
training windows once, sees log values one sample at a time, and says mean and variance of an observation
some time after the last one. `walk` drives one through all samples; `intervals` turns the errors it made in
training into intervals that need no Gaussian. The recurrent network is in `twin.gru`.

`POOL`, `FITTED_SHARE` and calibrating each horizon on its own were chosen on the last 15 % of the
training parts of the data sets in `docs/forecast.md`, never on the held-out parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from twin.filters.kalman_bank import FilterBank, Index
from twin.filters.conformal_intervals import OPEN, Intervals, Tracker
from twin.filters.ou_process import MIN_SD, Array, fit, fit_level
from twin.filters.multiple_model import Regimes

BURN_IN = 5
"""Samples of a link before its forecasts count: the first ones tell more of the start."""
MAX_FITTED = 2000
"""Samples of a link that are fitted: keeps the fit within seconds whatever the length of the series."""
POOL = 30.0
"""Evidence, in samples, that the dynamics of a link are those of the others."""
FITTED_SHARE = 2 / 3
"""Of a training window; what is left calibrates the intervals."""


class Forecaster(Protocol):
    """`train` once on the past, then `observe` and `predict` in turn; times in seconds, values are logs."""

    name: str

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Learn from one training window (n_l,) per link; the state is then that before any sample."""
        ...

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Take one sample of each link in `index`; all (n,)."""
        ...

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """Mean and variance of an observation `ahead_s` (H, L) after each link's last one; both (H, L)."""
        ...


class Kalman:
    """One filter a link (`twin.bank`), fitted by maximum likelihood; `pool` as in `twin.ou.fit`."""

    name = "kalman"

    def __init__(self, pool: float = POOL):
        self._pool = pool

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Fit the processes to the last `MAX_FITTED` samples; the filters start stationary."""
        recent = slice(-MAX_FITTED, None)
        self._parameters = fit([t[recent] for t in times_s], [v[recent] for v in values], self._pool)
        self._bank = FilterBank(self._parameters)
        self._origin_s = np.array([times[0] for times in times_s])

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Filter step."""
        self._bank.observe(_since(self._origin_s[index], times_s), index, values)

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """Closed form; the variance includes that of the observation."""
        mean, var = self._bank.forecast(self._bank.time_ns, ahead_s)
        return mean, var + self._parameters.r


class Ewma:
    """Exponentially weighted mean; the weight of a link minimises its one-step training error."""

    name = "ewma"
    _WEIGHTS = np.linspace(0.02, 1.0, 50)

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Try every weight on the training windows; keep the best one and its error variance."""
        chosen = [self._best(series) for series in values]
        self._weight, self._var = (np.array(column) for column in zip(*chosen, strict=True))
        self._level = np.full(len(values), np.nan)

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Move the level towards the value; the first value is the level."""
        level = np.where(np.isnan(self._level[index]), values, self._level[index])
        self._level[index] = level + self._weight[index] * (values - level)

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """The level, whatever the horizon; the one-step error variance of training."""
        return np.tile(self._level, (len(ahead_s), 1)), np.tile(self._var, (len(ahead_s), 1))

    def _best(self, values: Array) -> tuple[float, float]:
        level, total = np.full(len(self._WEIGHTS), values[0]), np.zeros(len(self._WEIGHTS))
        for value in values[1:].tolist():
            error = value - level
            total += error * error
            level += self._WEIGHTS * error
        best = int(np.argmin(total))
        return float(self._WEIGHTS[best]), max(MIN_SD**2, float(total[best]) / max(1, len(values) - 1))


class Persistence:
    """The last value stays; its variance is that of one-step differences in training."""

    name = "persistence"

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """How far values move from one to the next."""
        steps = [np.diff(series, append=series[-1]) for series in values]
        self._var = np.array([max(MIN_SD**2, (step @ step) / max(1, len(step) - 1)) for step in steps])
        self._last = np.full(len(values), np.nan)

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Keep the values."""
        self._last[index] = values

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """The last values."""
        return np.tile(self._last, (len(ahead_s), 1)), np.tile(self._var, (len(ahead_s), 1))


class Mixture:
    """The two regimes that a controller sees: `twin.regimes`."""

    name = "mixture"

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Fit both to the last `MAX_FITTED` samples; neither is preferred at the start."""
        times, logs = ([series[-MAX_FITTED:] for series in part] for part in (times_s, values))
        self._regimes = Regimes(fit(times, logs, POOL), fit_level(times, logs))
        self._origin_s = np.array([series[0] for series in times_s])

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Filter step, and judgement of the regimes."""
        self._regimes.observe(_since(self._origin_s[index], times_s), index, values)

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """Mean and variance of the mixture."""
        return self._regimes.forecast(self._regimes.time_ns, ahead_s)


def _since(origin_s: Array, times_s: Array) -> Index:
    return np.rint((times_s - origin_s) * NS_PER_S).astype(np.int64)


def _gru() -> Forecaster:
    from twin.filters.gru import Gru  # imports torch

    return Gru()


FORECASTERS: dict[str, Callable[[], Forecaster]] = {
    "kalman": Kalman,
    "mixture": Mixture,
    "ewma": Ewma,
    "persistence": Persistence,
    "gru": _gru,
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

    A forecaster that learned from the first `FITTED_SHARE` of each window is judged on the rest of it: errors
    on samples that it was fitted to would be too small.
    """
    cuts = [int(FITTED_SHARE * len(series)) for series in values]
    errors = walk(make(), times_s, values, cuts, ahead)
    return tuple(Intervals.of(errors.standardised(h)) for h in range(len(ahead)))


def tracked(found: Walk, h: int, trained: Intervals, ahead: int) -> Array:
    """Half widths (n, 2), in stated deviations, of the held-out forecasts at horizon index `h`, `ahead`
    samples, as `Walk.standardised` orders them: those of training, moved by every error known by then.

    As in `twin.foresight`, no more than about `OPEN` forecasts of a link wait to be judged.
    """
    held, tracker = found.held(h), Tracker([trained], found.error.shape[2])
    rows = np.arange(held.shape[0])[:, None]
    judged = held & (rows % max(1, ahead // OPEN) == 0)
    z, due = (found.error[h] / found.sd[h])[judged], found.due_s[h][judged]
    order = np.argsort(due, kind="stable")
    moments, first = np.unique(due[order], return_index=True)
    factors = [np.ones(2)]
    for errors in np.split(z[order], first[1:]):
        tracker.judge(0, errors)
        factors.append(tracker.factor[0])
    known = np.searchsorted(moments, found.made_s[held], side="right")
    widths: Array = np.array(factors)[known] * (trained.d80, trained.d95)
    return widths


def walk(
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
