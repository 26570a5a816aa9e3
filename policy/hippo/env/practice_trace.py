"""A window of the WAN prepared for practice: what a controller would have known at each period, and what
was true.

The filter does not depend on what is decided, so it runs once over the trace; every twin then reads from
the same arrays. A decision at time t sees only telemetry that had arrived by t.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, to_ns
from policy.core.objective import speed_alone
from policy.control.relay_links import Relays
from twin.settings.disturbances import Noise, Perturbation, Regime
from twin.core.domain import LinkState
from twin.filters.link_filter import pairs
from twin.traces.perturbation import perturb
from twin.scenario.prepare import Setup
from twin.core.seeds import generator
from twin.core.view import Forecast
from twin.traces.wan_trace import WanTrace

Float = NDArray[np.float64]

MOST_PERIODS = 2000
"""Longest stretch taken from a window (its end): memory stays small."""
WEATHER: tuple[Perturbation, ...] = (
    Perturbation(),
    Perturbation(noise=Noise(clip=0.3, sd=0.15)),
    Perturbation(
        regimes=(Regime(per_day=12, mean_s=2400, factor=0.2), Regime(per_day=3, mean_s=900, factor=0.0))
    ),
)
"""Conditions of practice and validation: as measured; +-30 % noise; congestion and outages."""


MOVING = ("bandwidth_bps", "sd_log", "widths", "latency_s", "true_bps", "true_latency_s")
"""Fields of a footage that have one entry a decision."""


@dataclass(frozen=True, eq=False)
class Footage:
    """D decision times in segments that do not touch; J true link states cover each period."""

    horizons_s: Float  # (H,)
    bandwidth_bps: Float  # (D, H, K, K) forecast at the decision
    sd_log: Float  # (D, H, K, K)
    widths: Float  # (D, H, 2) of the intervals, in `sd_log`
    latency_s: Float  # (D, K, K)
    true_bps: Float  # (D, J, K, K)
    true_latency_s: Float  # (D, J, K, K)
    segment_end: NDArray[np.int64]  # (D,) index one past the segment that a decision belongs to

    def __len__(self) -> int:
        return len(self.bandwidth_bps)

    @property
    def segments(self) -> NDArray[np.int64]:
        """First decision of each segment and one past its last, (S, 2)."""
        ends = np.unique(self.segment_end)
        return np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1)

    def split(self, share: float) -> tuple["Footage", "Footage"]:
        """Every segment cut in two, `share` of it in the first footage.

        A segment of a single decision is in both.
        """
        early, late = [], []
        for first, last in self.segments.tolist():
            cut = min(max(1, round((last - first) * share)), max(1, last - first - 1))
            early.append(self._part(first, first + cut))
            late.append(self._part(min(first + cut, last - 1), last))
        return joined(early), joined(late)

    def _part(self, first: int, last: int) -> "Footage":
        """Decisions first .. last - 1, which lie in one segment."""
        return self.picked(np.arange(first, last), np.full(last - first, last - first))

    def without_forecast(self) -> "Footage":
        """Links are expected to stay as they are estimated now, with certainty."""
        now = np.broadcast_to(self.bandwidth_bps[:, :1], self.bandwidth_bps.shape).copy()
        return replace(self, bandwidth_bps=now, sd_log=np.zeros_like(self.sd_log))

    def relayed(self, relays: Relays) -> "Footage":
        """Links as messages find them on their best ways, as the policy sees them and turns to them."""
        forecasts, later = [], relays.film(self.true_bps, self.true_latency_s)
        for d in range(len(self)):
            known = Forecast(
                self.horizons_s, self.bandwidth_bps[d], self.sd_log[d], self.latency_s[d], self.widths[d]
            )
            forecasts.append(relays.forecast(known))
        return replace(
            self,
            bandwidth_bps=np.stack([f.bandwidth_bps for f in forecasts]),
            sd_log=np.stack([f.sd_log for f in forecasts]),
            latency_s=np.stack([f.latency_s for f in forecasts]),
            true_bps=later[0],
            true_latency_s=later[1],
        )

    def picked(self, index: NDArray[np.int64], segment_end: NDArray[np.int64]) -> "Footage":
        """The decisions `index`, whose segments end at `segment_end`."""
        chosen = {name: getattr(self, name)[index] for name in MOVING}
        return replace(self, segment_end=segment_end, **chosen)


@dataclass(frozen=True, eq=False)
class Films:
    """The same decisions twice: links themselves, and as messages find them over relays."""

    direct: Footage
    relayed: Footage

    def seen(self, weights: tuple[float, float, float]) -> Footage:
        """What the policy is shown and has under these weights, as `policy.knobs.Knobs.view` decides it."""
        return self.relayed if speed_alone(weights) else self.direct

    def without_forecast(self) -> "Films":
        """`Footage.without_forecast` of both."""
        return Films(self.direct.without_forecast(), self.relayed.without_forecast())

    def split(self, share: float) -> tuple["Films", "Films"]:
        """`Footage.split` of both."""
        (early, late), (relayed_early, relayed_late) = self.direct.split(share), self.relayed.split(share)
        return Films(early, relayed_early), Films(late, relayed_late)


def joined(parts: Sequence[Footage]) -> Footage:
    """Several footages as segments of one."""
    offsets = np.cumsum([0, *(len(part) for part in parts[:-1])])
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in MOVING}
    ends = np.concatenate([p.segment_end + o for p, o in zip(parts, offsets, strict=True)])
    return replace(parts[0], segment_end=ends, **arrays)


def filmed(setup: Setup, samples: int, *, seed: int, weather: Sequence[Perturbation] = WEATHER) -> Footage:
    """The window of `setup` under each condition; the noise of telemetry and conditions comes from `seed`."""
    shots = []
    for number, perturbation in enumerate(weather):
        wan = perturb(setup.wan, perturbation, seed + 1000 * number)
        shots.append(_film(setup, wan, samples, generator(seed, f"film-{number}")))
    return joined(shots)


def _film(setup: Setup, wan: WanTrace, samples: int, rng: np.random.Generator) -> Footage:
    control, telemetry = setup.scenario.control, setup.scenario.telemetry
    period_ns, tick_ns = to_ns(control.period_s), to_ns(telemetry.period_s)
    periods = max(wan.end_ns // period_ns, 1)
    first = max(0, periods - MOST_PERIODS)
    k = len(wan.names)
    link_filter = setup.link_filter()
    ticks = np.arange(0, periods * period_ns, tick_ns, dtype=np.int64)
    # Ticks long before the first decision only warm the filter up; a day of them is plenty.
    ticks = ticks[ticks >= first * period_ns - 86_400 * NS_PER_S]
    seen_bps, seen_s = _truth(wan, ticks)
    noise = np.exp(telemetry.noise * rng.standard_normal((2, *seen_bps.shape)))
    seen_bps, seen_s = seen_bps * noise[0], seen_s * noise[1]
    delay_ns, at, forecasts = to_ns(telemetry.delay_s), 0, []
    for d in range(first, periods):
        now = d * period_ns
        # The sample of time 0 is known at once, as in the world.
        while at < len(ticks) and (ticks[at] + delay_ns <= now or ticks[at] == 0):
            link_filter.observe(int(ticks[at]), LinkState(seen_bps[at], seen_s[at]))
            at += 1
        forecasts.append(link_filter.forecast(now))
    inside = (np.arange(samples) + 0.5) / samples * period_ns
    times = (np.arange(first, periods)[:, None] * period_ns + inside).astype(np.int64)
    true_bps, true_s = _truth(wan, times.reshape(-1))
    shape = (periods - first, samples, k, k)
    return Footage(
        link_filter.horizons_s,
        np.stack([f.bandwidth_bps for f in forecasts]),
        np.stack([f.sd_log for f in forecasts]),
        np.stack([f.widths for f in forecasts]),
        np.stack([f.latency_s for f in forecasts]),
        true_bps.reshape(shape),
        true_s.reshape(shape),
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
