"""Reads the past of the links as telemetry would have sampled it: the link in force at regular steps.

A trace that is measured in blocks and holds in between is therefore learned as what it is in this world,
levels that last. Fitting the bare samples instead takes the scatter inside a block for all there is: on the
held-out part of cloudpilot-iperf3 that trebles the error of the filtered present.
"""

from dataclasses import dataclass

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S, to_ns
from twin.core.domain import LinkState
from twin.core.seeds import generator
from twin.filters.link_filter import pairs
from twin.filters.ou_process import Array
from twin.traces.wan_trace import Times, WanTrace

MAX_SAMPLES = 2000
"""Longer pasts are read at longer steps, or only their last part is: training takes seconds for any trace."""
_LEAST_LATENCY_S = 1e-6
_LogSeries = tuple[list[Array], list[Array]]


@dataclass(frozen=True, slots=True)
class TelemetryModel:
    """Period and noise (deviation of the log) of telemetry, and the horizons of forecasts."""

    period_s: float
    horizons_s: tuple[float, ...] = (0.0,)
    noise: float = 0.0


def read(wan: WanTrace, start_ns: int, end_ns: int, step_ns: int) -> tuple[Times, LinkState]:
    """Times (n,) at regular steps in [start, end) and the links in force then, (L, n) each."""
    times = np.arange(start_ns, end_ns, step_ns, dtype=np.int64)
    bandwidth, latency = [], []
    for i, j in zip(*pairs(len(wan.names)), strict=True):
        link = wan.series[int(i), int(j)]
        now = np.maximum(np.searchsorted(link.times_ns, times, side="right") - 1, 0)
        bandwidth.append(link.bandwidth_bps[now])
        latency.append(np.maximum(link.latency_s[now], _LEAST_LATENCY_S))
    return times, LinkState(np.array(bandwidth), np.array(latency))


def sampled(
    wan: WanTrace, start_ns: int, end_ns: int, telemetry: TelemetryModel
) -> tuple[Times, LinkState, LinkState]:
    """Times (n,) in [start, end), the links then, (L, n) each, and noisy samples of them."""
    times_ns, truth = read(wan, start_ns, end_ns, to_ns(telemetry.period_s))
    rng = generator(0, "telemetry of the past")
    noise = np.exp(telemetry.noise * rng.standard_normal((2, *truth.latency_s.shape)))
    return times_ns, truth, LinkState(truth.bandwidth_bps * noise[0], truth.latency_s * noise[1])


def recent_ns(wan: WanTrace, end_ns: int, period_s: float) -> int:
    """Begin of the last `MAX_SAMPLES` samples before `end_ns`, or earlier until every link was alive."""
    alive = (link.times_ns[link.bandwidth_bps > 0] for link in wan.series.values())
    last_ns = min(int(times[times < end_ns].max(initial=0)) for times in alive)
    return max(0, min(last_ns, end_ns - MAX_SAMPLES * to_ns(period_s)))


def log_series(times_ns: Times, links: LinkState) -> tuple[_LogSeries, _LogSeries]:
    """Times in seconds and logs, of L links each: of bandwidth where it is not 0, and of latency.

    Raises:
        UsageError: a link is dead all the time.
    """
    alive = links.bandwidth_bps > 0
    if not alive.any(axis=1).all():
        raise UsageError("a link is dead in all of the training share; choose another data set")
    times = times_ns / NS_PER_S
    rates = [times[a] for a in alive], [np.log(b[a]) for b, a in zip(links.bandwidth_bps, alive, strict=True)]
    return rates, ([times] * len(alive), list(np.log(links.latency_s)))
