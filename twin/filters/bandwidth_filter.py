"""Filters log bandwidth with the models of an engine, weighted per horizon and capped by capacity."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from twin.filters.horizon_mixture import HorizonMixture, ModelForecasts
from twin.filters.kalman_bank import Index
from twin.filters.ou_process import MIN_SD, Array

_EXPLAINED = 4.0
"""Deviations of the noise of telemetry that chance alone hardly ever exceeds."""


class LinkModel(Protocol):
    """One log quantity of L links under two models; what it observes and forecasts are noisy samples."""

    @property
    def odds(self) -> Array:
        """(L,) evidence of recent samples against the first model, twice the log-likelihood ratio."""
        ...

    @property
    def restarted(self) -> Index:
        """Links of which a filter was re-initialised by the last observation."""
        ...

    def observe(self, now_ns: int, index: Index, z_log: Array) -> tuple[Index, Array]:
        """Takes observations `z_log` (n,) of links `index` (n,).

        Returns: the links whose alarm is raised now and the normalised innovations squared (n,).
        """
        ...

    def forecast(self, now_ns: int, horizons_s: Array, odds: Array | None = None) -> tuple[Array, Array]:
        """Mean and variance (H, L) at `now_ns` + each horizon (H,); `odds` (H, L) replace the recent ones."""
        ...

    def forecast_models(self, now_ns: int, horizons_s: Array) -> tuple[Array, Array]:
        """Means and variances of either model, both (H, 2, L)."""
        ...

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FilterUpdate:
    """Results of one observation.

    `alarms`: links whose alarm is raised now; `restarted`: those of which a filter was re-initialised;
    `nis` (n,): normalised innovations squared; `errors`: horizon index and errors (n,), in stated deviations
    of a sample, of each forecast that came due.
    """

    alarms: Index
    restarted: Index
    nis: Array
    errors: list[tuple[int, Array]]


class BandwidthFilter:
    """Log bandwidth of L links, forecast at `horizons_s` (H,) and nowhere above `capacity_bps` (L,).

    The log of a sample has the deviation `noise` on top of the own scatter of the link.
    """

    def __init__(
        self, model: LinkModel, links: int, horizons_s: Array, noise: float, capacity_bps: Array | None = None
    ):
        self._model = model
        self._horizons_s = horizons_s
        self._mixture = HorizonMixture(horizons_s, links)
        self._noise = noise
        self._log_capacity = np.full(links, np.inf) if capacity_bps is None else np.log(capacity_bps)

    def observe(self, now_ns: int, index: Index, z_log: Array) -> FilterUpdate:
        """Takes the samples `z_log` (n,) of links `index` (n,) and compares them with the forecasts due.

        A sample above the capacity by more than noise explains shows that the link is wider than was stated.
        """
        errors = self._mixture.compare(now_ns, index, z_log)
        certain = z_log - _EXPLAINED * self._noise
        self._log_capacity[index] = np.maximum(self._log_capacity[index], certain)
        alarms, nis = self._model.observe(now_ns, index, z_log)
        due = self._mixture.due(now_ns)
        if len(due):
            mean, sd = (stated[due] for stated in self.forecast(now_ns))
            means, variances = self._model.forecast_models(now_ns, self._horizons_s[due])
            self._mixture.keep(now_ns, due, ModelForecasts(mean, self.with_noise(sd), means, variances))
        return FilterUpdate(alarms, self._model.restarted, nis, errors)

    def forecast(self, now_ns: int) -> tuple[Array, Array]:
        """Mean, not above the capacity, and stated deviation at every horizon; both (H, L).

        The link's own fast scatter is included, the noise of samples is not: this is of the truth.
        """
        odds = self._mixture.odds(self._model.odds)
        return self._without_noise(*self._model.forecast(now_ns, self._horizons_s, odds))

    def present(self, now_ns: int) -> Array:
        """(L,) mean now."""
        present: Array = self._without_noise(*self._model.forecast(now_ns, np.zeros(1)))[0][0]
        return present

    def with_noise(self, sd: Array) -> Array:
        """Deviation of a sample where that of the truth is `sd`."""
        return np.hypot(sd, self._noise)

    def rebase(self, now_ns: int) -> None:
        """Shift the clock so that `now_ns` becomes 0."""
        self._model.rebase(now_ns)
        self._mixture.rebase(now_ns)

    def _without_noise(self, mean: Array, var: Array) -> tuple[Array, Array]:
        return np.minimum(mean, self._log_capacity), np.sqrt(np.maximum(var - self._noise**2, MIN_SD**2))
