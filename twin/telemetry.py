"""What the controller may know: noisy, late samples of the links, through the filter."""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from simpy import Environment, Event

from ingest.units import to_ns
from twin.clock import SENSE, At
from twin.domain import LinkState, Matrix
from twin.kalman import LinkFilter, pairs
from twin.links import Links, Pair
from twin.settings import TelemetrySettings
from twin.view import Forecast

Emit = Callable[[str, dict[str, Any]], None]
Request = Callable[[str, Any], None]


class Telemetry:
    """Samples every link each period with log-normal noise; a sample reaches the filter `delay_s` later.

    The sample of time 0 is known at once: the links were measured before the job starts. Noise is drawn for
    all links at every tick, so it is the same whatever is decided. Asks for a decision on an alarm of the
    filter and when a filtered bandwidth has moved by more than `change_threshold` since the last decision.
    """

    def __init__(
        self,
        env: Environment,
        links: Links,
        link_filter: LinkFilter,
        settings: TelemetrySettings,
        change_threshold: float,
        rng: np.random.Generator,
        emit: Emit,
        request: Request,
    ) -> None:
        self._env = env
        self._links = links
        self._filter = link_filter
        self._settings = settings
        self._threshold = change_threshold
        self._rng = rng
        self._emit = emit
        self._request = request
        self._decided: Matrix | None = None
        self._rows, self._columns = pairs(link_filter.size)
        env.process(self._sample())

    def forecast(self) -> Forecast:
        """The filter's view of the links from now on; a link that is dead now is known to be dead."""
        dead = self._links.state.bandwidth_bps[self._rows, self._columns] <= 0
        self._filter.dead = dead
        return self._filter.forecast(self._env.now)

    def decided_on(self, forecast: Forecast) -> None:
        """A decision was taken on `forecast`: changes are counted from there."""
        self._decided = forecast.bandwidth_bps[0]

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
        if alarms:
            self._request("alarm", [list(pair) for pair in alarms])
        changed = self._changed()
        if changed:
            self._request("change", [list(pair) for pair in changed])

    def _rowwise(self, sample: LinkState) -> list[list[float]]:
        columns = (
            self._rows.tolist(),
            self._columns.tolist(),
            sample.bandwidth_bps[self._rows, self._columns].tolist(),
            sample.latency_s[self._rows, self._columns].tolist(),
        )
        return [list(row) for row in zip(*columns, strict=True)]

    def _changed(self) -> list[Pair]:
        """Links whose filtered bandwidth has moved by more than the threshold since the last decision."""
        if self._decided is None:
            return []
        now = self.forecast().bandwidth_bps[0][self._rows, self._columns]
        before = self._decided[self._rows, self._columns]
        moved = np.abs(now - before) > self._threshold * before
        # A link that was dead at the decision is announced by its repair, not by a relative change of 0.
        moved &= (before > 0) & (now > 0)
        return [(int(self._rows[n]), int(self._columns[n])) for n in np.flatnonzero(moved)]
