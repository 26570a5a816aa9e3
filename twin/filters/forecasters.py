"""Forecasters without a process model: exponential smoothing and persistence.

The recurrent network of `twin.filters.gru` has the same interface; `SingleModel` makes any of them a filter.
A forecaster observes the log values of L links, each link with a clock of its own, in seconds. It learns from
training series once, then takes samples and gives mean and variance of an observation some time after the
last.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Protocol

import numpy as np

from ingest.core.units import NS_PER_S
from twin.filters.change_alarms import ChangeAlarms, Innovations
from twin.filters.kalman_bank import GATE, Index
from twin.filters.ou_process import MIN_SAMPLES, MIN_SD, Array


class Forecaster(Protocol):
    """`train` once on the past, then `observe` and `predict` in turn; times in seconds, values are logs."""

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Learns from one training series (n_l,), n_l >= 1, per link; the state is then that before any
        sample."""
        ...

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Takes one sample of each link in `index`; all (n,)."""
        ...

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """Mean and variance of an observation `ahead_s` (H, L) after each link's last one; both (H, L)."""
        ...


class Ewma:
    """Exponentially weighted mean, with the weight w of a link that minimises its one-step training error.

    With s2 the variance of that error, the variance h steps ahead is s2 (1 + w^2 (h - 1)): simple exponential
    smoothing with additive errors, ETS(A,N,N) (Hyndman and Athanasopoulos, Forecasting: Principles and
    Practice, 3rd ed., section 8.7). The training mean is the level before the first sample. A link of fewer
    than `MIN_SAMPLES` samples takes the medians of the others.
    """

    _WEIGHTS = np.linspace(0.02, 1.0, 50)

    def train(self, times_s: Sequence[Array], values: Sequence[Array]) -> None:
        """Tries every weight on the training series; keeps the best one and its error variance."""
        weights, variances = np.array([self._best(series) for series in values]).T
        long = np.array([len(series) >= MIN_SAMPLES for series in values])
        if long.any():
            weights[~long], variances[~long] = np.median(weights[long]), np.median(variances[long])
        self._weight, self._var = weights, variances
        steps = [np.diff(times) for times in times_s]
        common_s = float(np.median(np.concatenate(steps))) if any(map(len, steps)) else 1.0
        self._step_s = np.array([np.median(step) if len(step) else common_s for step in steps])
        self._level = np.array([series.mean() for series in values])
        self._seen = np.zeros(len(values), np.bool_)

    def observe(self, index: Index, times_s: Array, values: Array) -> None:
        """Moves the level towards the value; the first value is the level."""
        weight = np.where(self._seen[index], self._weight[index], 1.0)
        self._level[index] = (1 - weight) * self._level[index] + weight * values
        self._seen[index] = True

    def predict(self, ahead_s: Array) -> tuple[Array, Array]:
        """Level at every horizon, and a variance that grows with it; both (H, L)."""
        steps = np.maximum(ahead_s / self._step_s, 1.0)
        return np.tile(self._level, (len(ahead_s), 1)), self._var * (1 + self._weight**2 * (steps - 1))

    def _best(self, values: Array) -> tuple[float, float]:
        """Weight of the smallest mean squared one-step error, and that error."""
        level, total = np.full(len(self._WEIGHTS), values[0]), np.zeros(len(self._WEIGHTS))
        for value in values[1:].tolist():
            error = value - level
            total += error * error
            level += self._WEIGHTS * error
        best = int(np.argmin(total))
        return float(self._WEIGHTS[best]), max(MIN_SD**2, float(total[best]) / max(1, len(values) - 1))


class Persistence(Ewma):
    """Last value as the forecast, that of a random walk: exponential smoothing of weight 1."""

    _WEIGHTS = np.ones(1)


class SingleModel:
    """Trained forecaster as a `twin.filters.bandwidth_filter.LinkModel` of L links.

    To the mixture over horizons it is two models that agree, so that evidence between them stays 0.
    """

    def __init__(self, trained: Forecaster, links: int):
        self._forecaster = deepcopy(trained)
        self._last_ns, self._origin_ns = np.zeros(links, np.int64), 0
        self.odds = np.zeros(links)
        self._alarms = ChangeAlarms(links)
        self.restarted: Index = np.zeros(0, np.int64)  # no forecaster is ever re-initialised

    def observe(self, now_ns: int, index: Index, z_log: Array) -> tuple[Index, Array]:
        """Takes observations `z_log` (n,) of links `index` (n,).

        Returns: the links whose alarm is raised now, and (n,) the squared error of each forecast over its
        stated variance (NIS), at most the square of the gate of the Kalman filters.
        """
        mean, var = (stated[0, index] for stated in self.forecast(now_ns, np.zeros(1)))
        self._last_ns[index] = now_ns + self._origin_ns
        self._forecaster.observe(index, self._last_ns[index] / NS_PER_S, z_log)
        found = Innovations(z_log - mean, var, np.ones_like(var), var, var)
        return self._alarms.observe(index, z_log, found), found.nis(GATE)

    def forecast(self, now_ns: int, horizons_s: Array, odds: Array | None = None) -> tuple[Array, Array]:
        """Mean and variance of an observation at `now_ns` + each horizon (H,); both (H, L)."""
        since_s = (now_ns + self._origin_ns - self._last_ns) / NS_PER_S
        return self._forecaster.predict(since_s + horizons_s[:, None])

    def forecast_models(self, now_ns: int, horizons_s: Array) -> tuple[Array, Array]:
        """Mean and variance of `forecast` for either model, equal; both (H, 2, L)."""
        mean, var = self.forecast(now_ns, horizons_s)
        return np.stack([mean, mean], axis=1), np.stack([var, var], axis=1)

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        self._origin_ns += now_ns
