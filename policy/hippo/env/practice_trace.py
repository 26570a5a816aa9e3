"""A trace window prepared for training: the forecast at each period, and the true links.

The filter does not depend on decisions, so it runs once over the trace and all twins share the arrays. A
decision at time t uses only telemetry that had arrived by t.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, to_ns
from policy.control.relay_links import RelayPaths
from policy.core.objective import speed_alone
from twin.core.domain import LinkState
from twin.core.link_history import HOURS
from twin.core.seeds import generator
from twin.core.view import Forecast
from twin.filters.link_filter import pairs
from twin.scenario.prepare import PreparedScenario
from twin.settings.disturbances import Noise, Perturbation, Regime
from twin.traces.perturbation import perturb
from twin.traces.wan_trace import WanTrace

Float = NDArray[np.float64]

MOST_PERIODS = 2000
"""Longest part taken from the end of a window, to bound memory."""
CONDITIONS: tuple[Perturbation, ...] = (
    Perturbation(),
    Perturbation(noise=Noise(clip=0.3, sd=0.15)),
    Perturbation(
        regimes=(Regime(per_day=12, mean_s=2400, factor=0.2), Regime(per_day=3, mean_s=900, factor=0.0))
    ),
)
"""Conditions of training and validation: as measured; +-30 % noise; congestion and outages."""


PER_DECISION = ("bandwidth_bps", "sd_log", "widths", "latency_s", "true_bps", "true_latency_s", "hour")
"""Fields of a `PracticeTrace` with one entry a decision."""


@dataclass(frozen=True, eq=False)
class PracticeTrace:
    """D decision times in separate segments; J true link states cover each period."""

    horizons_s: Float  # (H,)
    bandwidth_bps: Float  # (D, H, K, K) forecast at the decision
    sd_log: Float  # (D, H, K, K)
    widths: Float  # (D, H, 2) of the intervals, in `sd_log`
    latency_s: Float  # (D, K, K)
    true_bps: Float  # (D, J, K, K)
    true_latency_s: Float  # (D, J, K, K)
    hour: NDArray[np.int64]  # (D,) of the day, UTC
    segment_end: NDArray[np.int64]  # (D,) index one past the segment of each decision

    def __len__(self) -> int:
        return len(self.bandwidth_bps)

    @property
    def segments(self) -> NDArray[np.int64]:
        """First decision of each segment and one past its last, (S, 2)."""
        ends = np.unique(self.segment_end)
        return np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1)

    def split(self, share: float) -> tuple["PracticeTrace", "PracticeTrace"]:
        """Returns two traces, `share` of every segment in the first; a segment of one decision is in both."""
        early, late = [], []
        for first, last in self.segments.tolist():
            cut = min(max(1, round((last - first) * share)), max(1, last - first - 1))
            early.append(self._part(first, first + cut))
            late.append(self._part(min(first + cut, last - 1), last))
        return joined(early), joined(late)

    def _part(self, first: int, last: int) -> "PracticeTrace":
        """Decisions first .. last - 1 of one segment."""
        return self.select(np.arange(first, last), np.full(last - first, last - first))

    def without_forecast(self) -> "PracticeTrace":
        """Returns the trace with the present estimate as the forecast, without variance."""
        now = np.broadcast_to(self.bandwidth_bps[:, :1], self.bandwidth_bps.shape).copy()
        return replace(self, bandwidth_bps=now, sd_log=np.zeros_like(self.sd_log))

    def forecast(self, index: int) -> Forecast:
        """Returns the forecast at decision `index`."""
        at = (array[index] for array in (self.bandwidth_bps, self.sd_log, self.latency_s, self.widths))
        return Forecast(self.horizons_s, *at)

    def relayed(self, relays: RelayPaths) -> "PracticeTrace":
        """Returns the trace with the better of each link and its relays in the forecasts.

        The truth stays: what relays bring depends on what else the plan sends.
        """
        forecasts = [relays.forecast(self.forecast(d)) for d in range(len(self))]
        return replace(
            self,
            bandwidth_bps=np.stack([f.bandwidth_bps for f in forecasts]),
            sd_log=np.stack([f.sd_log for f in forecasts]),
            latency_s=np.stack([f.latency_s for f in forecasts]),
        )

    def select(self, index: NDArray[np.int64], segment_end: NDArray[np.int64]) -> "PracticeTrace":
        """Returns the decisions `index`, with segments that end at `segment_end`."""
        chosen = {name: getattr(self, name)[index] for name in PER_DECISION}
        return replace(self, segment_end=segment_end, **chosen)


@dataclass(frozen=True, eq=False)
class PracticeTracePair:
    """The same decisions with forecasts of direct links and of links with relays; the truth is the same."""

    direct: PracticeTrace
    relayed: PracticeTrace

    def for_weights(self, weights: tuple[float, float, float]) -> PracticeTrace:
        """Returns the trace that policies use under these objective weights, as
        `policy.control.knobs.Knobs.view`."""
        return self.relayed if speed_alone(weights) else self.direct

    def without_forecast(self) -> "PracticeTracePair":
        """Applies `PracticeTrace.without_forecast` to both."""
        return PracticeTracePair(self.direct.without_forecast(), self.relayed.without_forecast())

    def split(self, share: float) -> tuple["PracticeTracePair", "PracticeTracePair"]:
        """Applies `PracticeTrace.split` to both."""
        (early, late), (relayed_early, relayed_late) = self.direct.split(share), self.relayed.split(share)
        return PracticeTracePair(early, relayed_early), PracticeTracePair(late, relayed_late)


def joined(parts: Sequence[PracticeTrace]) -> PracticeTrace:
    """Concatenates traces, as segments of one."""
    offsets = np.cumsum([0, *(len(part) for part in parts[:-1])])
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_DECISION}
    ends = np.concatenate([p.segment_end + o for p, o in zip(parts, offsets, strict=True)])
    return replace(parts[0], segment_end=ends, **arrays)


def prepare_trace(
    setup: PreparedScenario, samples: int, *, seed: int, conditions: Sequence[Perturbation] = CONDITIONS
) -> PracticeTrace:
    """Returns the window of `setup` under each condition; `seed` is that of telemetry noise and
    conditions."""
    parts = []
    for number, condition in enumerate(conditions):
        wan = perturb(setup.wan, condition, seed + 1000 * number)
        parts.append(_trace_under(setup, wan, samples, generator(seed, f"film-{number}")))
    return joined(parts)


def _trace_under(
    setup: PreparedScenario, wan: WanTrace, samples: int, rng: np.random.Generator
) -> PracticeTrace:
    control, telemetry = setup.scenario.control, setup.scenario.telemetry
    period_ns, tick_ns = to_ns(control.period_s), to_ns(telemetry.period_s)
    periods = max(wan.end_ns // period_ns, 1)
    first = max(0, periods - MOST_PERIODS)
    k = len(wan.names)
    link_filter = setup.link_filter()
    ticks = np.arange(0, periods * period_ns, tick_ns, dtype=np.int64)
    # A day of telemetry before the first decision suffices to initialise the filter.
    ticks = ticks[ticks >= first * period_ns - 86_400 * NS_PER_S]
    seen_bps, seen_s = _truth(wan, ticks)
    noise = np.exp(telemetry.noise * rng.standard_normal((2, *seen_bps.shape)))
    seen_bps, seen_s = seen_bps * noise[0], seen_s * noise[1]
    delay_ns, next_tick, forecasts = to_ns(telemetry.delay_s), 0, []
    for d in range(first, periods):
        now = d * period_ns
        # The sample of time 0 has no delay, as in the world.
        while next_tick < len(ticks) and (ticks[next_tick] + delay_ns <= now or ticks[next_tick] == 0):
            link_filter.observe(int(ticks[next_tick]), LinkState(seen_bps[next_tick], seen_s[next_tick]))
            next_tick += 1
        forecasts.append(link_filter.forecast(now))
    inside = (np.arange(samples) + 0.5) / samples * period_ns
    times = (np.arange(first, periods)[:, None] * period_ns + inside).astype(np.int64)
    true_bps, true_s = _truth(wan, times.reshape(-1))
    shape = (periods - first, samples, k, k)
    return PracticeTrace(
        link_filter.horizons_s,
        np.stack([f.bandwidth_bps for f in forecasts]),
        np.stack([f.sd_log for f in forecasts]),
        np.stack([f.widths for f in forecasts]),
        np.stack([f.latency_s for f in forecasts]),
        true_bps.reshape(shape),
        true_s.reshape(shape),
        (wan.origin_epoch_ns + np.arange(first, periods) * period_ns) // (3600 * NS_PER_S) % HOURS,
        np.full(periods - first, periods - first),
    )


def _truth(wan: WanTrace, times_ns: NDArray[np.int64]) -> tuple[Float, Float]:
    """True bandwidth and latency (T, K, K) at given times."""
    k = len(wan.names)
    bandwidth, latency = np.full((len(times_ns), k, k), np.inf), np.zeros((len(times_ns), k, k))
    for i, j in zip(*pairs(k), strict=True):
        link = wan.series[int(i), int(j)]
        index = np.maximum(np.searchsorted(link.times_ns, times_ns, side="right") - 1, 0)
        bandwidth[:, i, j], latency[:, i, j] = link.bandwidth_bps[index], link.latency_s[index]
    return bandwidth, latency
