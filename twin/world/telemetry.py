"""Noisy, delayed samples of the links, passed to the filter that policies see."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from simpy import Environment, Event

from ingest.core.units import to_ns
from twin.core.clock import SENSE, At
from twin.core.domain import LinkState, Matrix, Pair
from twin.core.view import Forecast
from twin.filters.link_filter import LinkFilter, pairs
from twin.network.link_state import Links
from twin.settings.scenario_file import TelemetrySettings

Emit = Callable[[str, dict[str, Any]], None]
OnSample = Callable[[Matrix, list[list[int]]], None]
"""Called with a sample: the filtered present bandwidth (K, K) and the links that raise an alarm."""


class Telemetry:
    """Samples every link each period with log-normal noise; a sample reaches the filter `delay_s` later.

    The sample of time 0 arrives at once: the links were measured before the job starts. Noise is drawn for
    all links at every sample, so that it does not depend on decisions.
    """

    def __init__(
        self,
        env: Environment,
        links: Links,
        link_filter: LinkFilter,
        settings: TelemetrySettings,
        rng: np.random.Generator,
        emit: Emit,
        on_sample: OnSample,
    ) -> None:
        self._env = env
        self._links = links
        self._filter = link_filter
        self._settings = settings
        self._rng = rng
        self._emit = emit
        self._on_sample = on_sample
        self._rows, self._columns = pairs(link_filter.size)
        env.process(self._sample())

    def forecast(self) -> Forecast:
        """The filtered links now and at each horizon; a link that is dead now is forecast as dead."""
        return self._updated_filter().forecast(self._env.now)

    def _updated_filter(self) -> LinkFilter:
        self._filter.dead = self._links.state.bandwidth_bps[self._rows, self._columns] <= 0
        return self._filter

    def _sample(self) -> Generator[Event, Any, None]:
        delay_ns, period_ns = to_ns(self._settings.delay_s), to_ns(self._settings.period_s)
        self._arrive(self._env.now, self._measure())
        while True:
            yield At(self._env, period_ns, SENSE)
            self._deliver(self._env.now, self._measure(), delay_ns)

    def _deliver(self, sampled_ns: int, sample: LinkState, delay_ns: int) -> None:
        arrival = At(self._env, delay_ns, SENSE)
        arrival.callbacks.append(lambda _: self._arrive(sampled_ns, sample))

    def _measure(self) -> LinkState:
        truth = self._links.state
        noise = np.exp(self._settings.noise * self._rng.standard_normal((2, *truth.latency_s.shape)))
        return LinkState(truth.bandwidth_bps * noise[0], truth.latency_s * noise[1])

    def _arrive(self, sampled_ns: int, sample: LinkState) -> None:
        self._emit("link_observed", {"sampled_ns": sampled_ns, "samples": self._rowwise(sample)})
        alarms = self._filter.observe(sampled_ns, sample)
        self._on_sample(self._updated_filter().present_bps(self._env.now), [list(pair) for pair in alarms])

    def _rowwise(self, sample: LinkState) -> list[list[float]]:
        columns = (
            self._rows.tolist(),
            self._columns.tolist(),
            sample.bandwidth_bps[self._rows, self._columns].tolist(),
            sample.latency_s[self._rows, self._columns].tolist(),
        )
        return [list(row) for row in zip(*columns, strict=True)]


def moved_links(before: Matrix | None, now: Matrix, threshold: float) -> list[Pair]:
    """Links whose filtered bandwidth (K, K) differs by more than `threshold`, relative to `before`.

    None before a first decision. A link that was dead triggers by its repair, not by a relative change of 0.
    """
    if before is None:
        return []
    rows, columns = pairs(len(now))
    was, is_ = before[rows, columns], now[rows, columns]
    moved = (np.abs(is_ - was) > threshold * was) & (was > 0) & (is_ > 0)
    return [(int(rows[n]), int(columns[n])) for n in np.flatnonzero(moved)]


def present_links(forecast: Forecast) -> list[list[float]]:
    """[[i, j, bandwidth_bps, sd_log, latency_s], ...]: the present estimate of the filter."""
    i, j = pairs(len(forecast.latency_s))
    values = (forecast.bandwidth_bps[0, i, j], forecast.sd_log[0, i, j], forecast.latency_s[i, j])
    return [list(row) for row in zip(*(column.tolist() for column in (i, j, *values)), strict=True)]
