"""Predicted against observed, from the events of a run: bandwidth per link and horizon, computing time per
domain, time per iteration.

Every decision logs its view (`decided.observation`): the forecast of each link at each horizon and the
slowdown of each domain. The observations after it are in `link_observed` and `iteration_done`. Errors are
predicted / observed - 1: a positive bias predicts more bandwidth, or longer work, than observed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import log

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, to_ns
from replay.log.events import Event, Json
from replay.log.fold import Fold
from replay.store.decision_codec import plan_in_force, view_from_json
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.view import GAUSSIAN
from twin.estimation.estimator import Estimator
from twin.estimation.resource_use import plan_costs
from twin.filters.link_filter import LinkFilter
from twin.filters.slowdown_filter import SlowdownFilter

Float = NDArray[np.float64]
Pair = tuple[int, int]
MOST_RATIO = 1e9
"""Largest ratio of predicted to observed that an error counts: means stay finite numbers."""


@dataclass(slots=True)
class Errors:
    """Sums over `count` predictions, and the number of observations inside their intervals, if any."""

    count: int = 0
    signed: float = 0.0
    absolute: float = 0.0
    inside_80: int = 0
    inside_95: int = 0

    def add(self, predicted: float, observed: float, count: int = 1) -> None:
        """Adds `count` equal predictions and observations; `observed` > 0."""
        error = min(predicted / observed, MOST_RATIO) - 1
        self.count += count
        self.signed += error * count
        self.absolute += abs(error) * count

    @property
    def bias(self) -> float | None:
        """Mean relative error; None without any prediction."""
        return self.signed / self.count if self.count else None

    @property
    def mape(self) -> float | None:
        """Mean absolute relative error; None without any prediction."""
        return self.absolute / self.count if self.count else None

    @property
    def covered(self) -> tuple[float, float] | None:
        """Shares inside the 80 % and the 95 % interval; None without any prediction."""
        return (self.inside_80 / self.count, self.inside_95 / self.count) if self.count else None


def merged(parts: Sequence[Errors]) -> Errors:
    """Returns the sums over all parts."""
    return Errors(*(sum(getattr(part, each.name) for part in parts) for each in fields(Errors)))


@dataclass(frozen=True, slots=True, eq=False)
class _PendingForecast:
    """Forecast of all links at one horizon: median (K, K) and half widths (log) (2, K, K)."""

    horizon: int
    due_ns: int
    median_bps: Float
    half_log: Float


@dataclass
class LinkErrors(Fold):
    """Forecasts of every directed link at every horizon, each against the first telemetry at or after it.

    Telemetry has `noise` (standard deviation of its log), by which the intervals are widened. Links that are
    dead, or were at the forecast, are left out.
    """

    noise: float
    horizons_s: tuple[float, ...] = ()
    found: dict[Pair, list[Errors]] = field(default_factory=dict)
    _pending: list[_PendingForecast] = field(default_factory=list)

    def _on_decided(self, event: Event, decided: Json) -> None:
        forecast = view_from_json(decided["observation"]).forecast
        self.horizons_s = tuple(float(h) for h in forecast.horizons_s)
        widths = np.broadcast_to(forecast.widths, (len(self.horizons_s), 2))
        for h, horizon_s in enumerate(self.horizons_s):
            reach = widths[h][:, None, None] * forecast.sd_log[h]
            half = np.hypot(reach, self.noise * GAUSSIAN[0][:, None, None])
            self._pending.append(
                _PendingForecast(h, event.sim_ns + to_ns(horizon_s), forecast.bandwidth_bps[h], half)
            )

    def _on_link_observed(self, event: Event, observed: Json) -> None:
        for forecast in [each for each in self._pending if each.due_ns <= observed["sampled_ns"]]:
            self._pending.remove(forecast)
            self._compare(forecast, observed["samples"])

    def _compare(self, forecast: _PendingForecast, samples: Sequence[Sequence[float]]) -> None:
        for i, j, seen_bps, _ in samples:
            pair = int(i), int(j)
            predicted = float(forecast.median_bps[pair])
            if seen_bps > 0 and predicted > 0:
                errors = self.found.setdefault(pair, [Errors() for _ in self.horizons_s])[forecast.horizon]
                errors.add(predicted, seen_bps)
                off = abs(log(predicted) - log(seen_bps))  # their ratio may be below the smallest number
                errors.inside_80 += off <= forecast.half_log[0][pair]
                errors.inside_95 += off <= forecast.half_log[1][pair]


@dataclass
class DomainErrors(Fold):
    """Computing time of every domain, and time of whole iterations, over the expected ones.

    Expected is the cost model of the job (`estimators`, by name) for the plan in force at the slowdown of the
    last decision's view; jobs without a cost model are left out. `scatter` is that of step times (log).
    """

    estimators: Mapping[str, Estimator]
    size: int
    scatter: float = 0.0
    iterations: Errors = field(default_factory=Errors)
    _decided: dict[str, Json] = field(default_factory=dict)
    _plans: dict[str, Plan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.computing = [Errors() for _ in range(self.size)]
        self._slowdown = SlowdownFilter(self.size, self.scatter)

    @property
    def nis(self) -> Float:
        """(K,) running normalised innovation squared of the slowdown filters."""
        return self._slowdown.nis

    def _on_decided(self, event: Event, decided: Json) -> None:
        self._decided[event.job] = decided

    def _on_plan_applied(self, event: Event, applied: Json) -> None:
        self._plans[event.job] = plan_in_force(applied["plan"])

    def _on_iteration_done(self, event: Event, done: Json) -> None:
        decided = self._decided.get(event.job)
        if decided is None:
            return
        expected_s = decided["predicted_iter_s"]
        if expected_s is not None:
            for count, ns in done["durations"]:
                self.iterations.add(expected_s, ns / NS_PER_S, count)
        if event.job not in self.estimators or event.job not in self._plans:
            return
        slowdown = np.array(decided["observation"]["slowdown"])
        nominal, expected = (self._compute_ns(event.job, slow) for slow in (np.ones(self.size), slowdown))
        observed = np.array(done["compute_ns"]) / done["count"]
        for domain in np.flatnonzero((expected > 0) & (observed > 0)).tolist():
            self.computing[domain].add(float(expected[domain]), float(observed[domain]), done["count"])
        slowdown_now = np.full(self.size, np.nan)
        np.divide(observed, nominal, out=slowdown_now, where=(nominal > 0) & (observed > 0))
        self._slowdown.observe(event.sim_ns, slowdown_now)

    def _compute_ns(self, job: str, slowdown: Float) -> Float:
        return np.array(plan_costs(self.estimators[job], self._plans[job], slowdown).compute_ns, np.float64)


@dataclass
class Innovations(Fold):
    """The link filters at the start of a run, updated with everything that it observed."""

    filter_: LinkFilter

    def _on_link_observed(self, event: Event, observed: Json) -> None:
        seen = LinkState(*np.full((2, self.filter_.size, self.filter_.size), np.nan))
        for i, j, bandwidth_bps, latency_s in observed["samples"]:
            seen.bandwidth_bps[int(i), int(j)] = bandwidth_bps
            seen.latency_s[int(i), int(j)] = latency_s
        self.filter_.observe(observed["sampled_ns"], seen)
