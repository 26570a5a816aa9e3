"""Forecasters of one link behind one interface: the Kalman filter and what a sceptic would compare it with.

Each sees log values one at a time and says mean and variance of an observation `ahead_s` after the last one.
"""

from typing import Protocol

import numpy as np

from ingest.units import to_ns
from twin.kalman import FilterBank
from twin.ou import Array, OuParameters, fit


class Forecaster(Protocol):
    """`train` once on the past, then `observe` and `predict` in turn; times in seconds, values are logs."""

    name: str

    def train(self, times_s: Array, values: Array) -> None:
        """Learn from a training window (n,)."""
        ...

    def observe(self, time_s: float, value: float) -> None:
        """Take one observation."""
        ...

    def predict(self, ahead_s: float) -> tuple[float, float]:
        """Mean and variance of an observation `ahead_s` after the last one."""
        ...


class Kalman:
    """One filter of `twin.kalman`, fitted by maximum likelihood."""

    name = "kalman"

    def train(self, times_s: Array, values: Array) -> None:
        """Fit the OU process and run the filter through the training window."""
        self._parameters: OuParameters = fit([times_s], [values])
        self._bank = FilterBank(self._parameters)
        self._origin_s, self._now_ns = float(times_s[0]), 0
        for time, value in zip(times_s.tolist(), values.tolist(), strict=True):
            self.observe(time, value)

    def observe(self, time_s: float, value: float) -> None:
        """Filter step."""
        self._now_ns = to_ns(time_s - self._origin_s)
        self._bank.observe(self._now_ns, np.zeros(1, np.int64), np.array([value]))

    def predict(self, ahead_s: float) -> tuple[float, float]:
        """Closed form; the variance includes that of the observation."""
        mean, var = self._bank.forecast(self._now_ns, np.array([ahead_s]))
        return float(mean[0, 0]), float(var[0, 0] + self._parameters.r[0])


class Ewma:
    """Exponentially weighted mean of the samples; its weight minimises the one-step error in training."""

    name = "ewma"
    _WEIGHTS = np.linspace(0.02, 1.0, 50)

    def train(self, times_s: Array, values: Array) -> None:
        """Try every weight on the training window; keep the best one and its error."""
        level = np.full(len(self._WEIGHTS), values[0])
        total = np.zeros(len(self._WEIGHTS))
        for value in values[1:]:
            total += (value - level) ** 2
            level += self._WEIGHTS * (value - level)
        best = int(np.argmin(total))
        self._weight, self._level = float(self._WEIGHTS[best]), float(level[best])
        self._var = float(total[best]) / max(1, len(values) - 1)

    def observe(self, time_s: float, value: float) -> None:
        """Move the level towards the value."""
        self._level += self._weight * (value - self._level)

    def predict(self, ahead_s: float) -> tuple[float, float]:
        """The level, whatever the horizon; the one-step error variance of training."""
        return self._level, self._var


class Persistence:
    """The last value stays; its variance is that of one-step differences in training."""

    name = "persistence"

    def train(self, times_s: Array, values: Array) -> None:
        """Remember the last value and how far values move from one to the next."""
        self._last, self._var = float(values[-1]), float(np.mean(np.diff(values) ** 2))

    def observe(self, time_s: float, value: float) -> None:
        """Keep the value."""
        self._last = value

    def predict(self, ahead_s: float) -> tuple[float, float]:
        """The last value."""
        return self._last, self._var


FORECASTERS: dict[str, type[Forecaster]] = {cls.name: cls for cls in (Kalman, Ewma, Persistence)}
"""By name, for comparisons."""
