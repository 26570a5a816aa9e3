"""Predicted against observed, from the events of a run: bandwidth per link and horizon, computing time per
domain, time per iteration.

Every decision logs what it was shown (`decided.observation`): the forecast of each link at each horizon and
the slowdown of each domain. What then came is in `link_observed` and `iteration_done`. Errors are relative to
what was observed, predicted / observed - 1: a positive bias promises more bandwidth, or longer work, than
there was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, to_ns
from replay.log.events import Event
from replay.store.decision_codec import plan_from_json, view_from_json
from twin.estimate.resource_use import plan_costs
from twin.core.domain import LinkState
from twin.estimate.estimator import Estimator
from twin.filters.link_filter import LinkFilter
from twin.core.plan import Plan
from twin.filters.slowdown_filter import Slowness
from twin.core.view import GAUSSIAN, Forecast

Float = NDArray[np.float64]
Pair = tuple[int, int]


@dataclass(slots=True)
class Errors:
    """Sums over `count` predictions, and how many observations were inside their intervals, if any."""

    count: int = 0
    signed: float = 0.0
    absolute: float = 0.0
    inside_80: int = 0
    inside_95: int = 0

    def add(self, predicted: float, observed: float, count: int = 1) -> None:
        """`count` equal predictions and observations; `observed` > 0."""
        error = predicted / observed - 1
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
    """All predictions together."""
    return Errors(*(sum(getattr(part, each.name) for part in parts) for each in fields(Errors)))


@dataclass(frozen=True, slots=True, eq=False)
class _Promise:
    """What one forecast said of all links at one horizon; median and half widths (log) (2, K, K)."""

    horizon: int
    due_ns: int
    median_bps: Float
    half_log: Float


@dataclass
class LinkErrors:
    """Forecasts of every directed link at every horizon, each held to the first telemetry at or after it.

    Telemetry carries `noise` (deviation of its log), for which the intervals are widened. A link that is
    dead, or was when it was forecast, is not judged.
    """

    noise: float
    horizons_s: tuple[float, ...] = ()
    found: dict[Pair, list[Errors]] = field(default_factory=dict)
    _waiting: list[_Promise] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Look at the next event of the log."""
        if event.type == "decided":
            self._promise(event.sim_ns, view_from_json(event.payload["observation"]).forecast)
        elif event.type == "link_observed":
            due = [promise for promise in self._waiting if promise.due_ns <= event.payload["sampled_ns"]]
            for promise in due:
                self._waiting.remove(promise)
                self._judge(promise, event.payload["samples"])

    def _promise(self, now_ns: int, forecast: Forecast) -> None:
        self.horizons_s = tuple(float(h) for h in forecast.horizons_s)
        widths = np.broadcast_to(forecast.widths, (len(self.horizons_s), 2))
        for h, horizon_s in enumerate(self.horizons_s):
            reach = widths[h][:, None, None] * forecast.sd_log[h]
            half = np.hypot(reach, self.noise * GAUSSIAN[0][:, None, None])
            self._waiting.append(_Promise(h, now_ns + to_ns(horizon_s), forecast.bandwidth_bps[h], half))

    def _judge(self, promise: _Promise, samples: Sequence[Sequence[float]]) -> None:
        for i, j, seen_bps, _ in samples:
            pair = int(i), int(j)
            predicted = float(promise.median_bps[pair])
            if seen_bps > 0 and predicted > 0:
                errors = self.found.setdefault(pair, [Errors() for _ in self.horizons_s])[promise.horizon]
                errors.add(predicted, seen_bps)
                off = abs(log(predicted / seen_bps))
                errors.inside_80 += off <= promise.half_log[0][pair]
                errors.inside_95 += off <= promise.half_log[1][pair]


@dataclass
class DomainErrors:
    """Computing time of every domain, and time of whole iterations, over what was expected.

    The cost model of its job (`estimators`, by name) expects the plan in force at the slowdown that the last
    decision was shown; that of a job which it lacks is not judged. `scatter` is that of step times (log).
    """

    estimators: Mapping[str, Estimator]
    size: int
    scatter: float = 0.0
    iterations: Errors = field(default_factory=Errors)
    _decided: dict[str, dict[str, Any]] = field(default_factory=dict)
    _plans: dict[str, Plan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.computing = [Errors() for _ in range(self.size)]
        self._slowness = Slowness(self.size, self.scatter)

    @property
    def nis(self) -> Float:
        """(K,) running normalised innovation squared of the slowdown filters."""
        return self._slowness.nis

    def take(self, event: Event) -> None:
        """Look at the next event of the log."""
        if event.type == "decided":
            self._decided[event.job] = event.payload
        elif event.type == "plan_applied":
            plan = plan_from_json(event.payload["plan"])
            assert plan is not None, "a plan took effect"
            self._plans[event.job] = plan
        elif event.type == "iteration_done" and event.job in self._decided:
            self._judge(event, self._decided[event.job])

    def _judge(self, event: Event, decided: dict[str, Any]) -> None:
        done, expected_s = event.payload, decided["predicted_iter_s"]
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
        pace = np.full(self.size, np.nan)
        np.divide(observed, nominal, out=pace, where=(nominal > 0) & (observed > 0))
        self._slowness.observe(event.sim_ns, pace)

    def _compute_ns(self, job: str, slowdown: Float) -> Float:
        return np.array(plan_costs(self.estimators[job], self._plans[job], slowdown).compute_ns, np.float64)


@dataclass
class Innovations:
    """The filters with which a run began, shown everything that it observed."""

    filter_: LinkFilter

    def take(self, event: Event) -> None:
        """Look at the next event of the log."""
        if event.type == "link_observed":
            seen = LinkState(*np.full((2, self.filter_.size, self.filter_.size), np.inf))
            for i, j, bandwidth_bps, latency_s in event.payload["samples"]:
                seen.bandwidth_bps[int(i), int(j)] = bandwidth_bps
                seen.latency_s[int(i), int(j)] = latency_s
            self.filter_.observe(event.payload["sampled_ns"], seen)
