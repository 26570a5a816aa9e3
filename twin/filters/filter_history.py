"""What was known before a window began: dynamics, calibration and the state of the filters, from telemetry of
the past.

The past is looked at as telemetry will look at the window: the link in force is read at regular steps. A
trace that is measured in blocks and holds in between is therefore learned as what it is in this world, levels
that last; fitting the bare samples instead takes the scatter inside a block for all there is (on the held-out
part of cloudpilot-iperf3 that trebles the error of the filtered present).
"""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S, to_ns
from twin.filters import ou_process as ou
from twin.core.domain import LinkState
from twin.filters.conformal_intervals import Intervals
from twin.filters.link_filter import BandwidthFilter, LinkFilter, LinkParameters, pairs
from twin.filters.ou_process import Array
from twin.core.seeds import generator
from twin.traces.wan_trace import Times, WanTrace

MAX_SAMPLES = 2000
"""Longer pasts are read at longer steps, or their last part is read: keeps everything here within seconds
whatever the length of the trace."""
FITTED_SHARE = 2 / 3
"""Of the training share; what is left calibrates the intervals of filters that have not seen it."""
NIS_POOL = 30.0
"""Evidence, in samples, that the innovations of a link are those of the others."""
_LEAST_LATENCY_S = 1e-6


@dataclass(frozen=True, slots=True)
class Sensing:
    """How the filters will be fed and asked: period and noise of telemetry, horizons of forecasts."""

    period_s: float
    horizons_s: tuple[float, ...] = (0.0,)
    noise: float = 0.0


def least_ns(whole: WanTrace, sensing: Sensing) -> int:
    """Length of the shortest past of `whole` that filters can be fitted on: the dynamics of every link on
    `ou.MIN_SAMPLES` samples, the calibration of the farthest forecasts on as many, all links alive once."""
    judged_s = sensing.horizons_s[-1] + ou.MIN_SAMPLES * sensing.period_s
    enough_ns = to_ns(judged_s / (1 - FITTED_SHARE))
    awake = (link.times_ns[int(np.argmax(link.bandwidth_bps > 0))] for link in whole.series.values())
    return max(enough_ns, to_ns(sensing.period_s) + max(int(at_ns) for at_ns in awake))


def fit(train: WanTrace, sensing: Sensing) -> LinkParameters:
    """Maximum-likelihood dynamics of every link and calibrated intervals, from `train` alone.

    Raises:
        UsageError: a link is dead in all of `train`.
    """
    cut_ns = round(FITTED_SHARE * train.end_ns)
    whole = _dynamics(train, train.end_ns, sensing.period_s)
    try:
        early = _dynamics(train, cut_ns, sensing.period_s)
    except UsageError:  # a link came alive only afterwards: nothing to calibrate on
        return whole
    found = _calibrated(early, train, cut_ns, sensing)
    return replace(whole, intervals=found.intervals, observed=found.observed, nis=found.nis)


def warm(parameters: LinkParameters, whole: WanTrace, start_ns: int, sensing: Sensing) -> LinkFilter | None:
    """A filter that has seen the past of `whole` before `start_ns`, which is its time 0; None where there is
    no past."""
    if start_ns == 0:
        return None
    filter_ = LinkFilter(parameters, len(whole.names), sensing.horizons_s, noise=sensing.noise)
    first_ns = max(0, start_ns - MAX_SAMPLES * to_ns(sensing.period_s))
    times_ns, _, samples = _sensed(whole, first_ns, start_ns, sensing)
    for k, now_ns in enumerate(times_ns.tolist()):
        filter_.observe(now_ns, _matrices(filter_, samples, k))
    filter_.rebase(start_ns)
    return filter_


def _dynamics(train: WanTrace, end_ns: int, period_s: float) -> LinkParameters:
    step_ns = max(to_ns(period_s), -(-end_ns // MAX_SAMPLES))
    times_ns, links = _read(train, 0, end_ns, step_ns)
    bandwidth, latency = links.bandwidth_bps, links.latency_s
    # A dead link has no logarithm; its dynamics come from the times when it was alive.
    alive = bandwidth > 0
    if not alive.any(axis=1).all():
        raise UsageError("a link is dead in all of the training share; choose another data set")
    times = times_ns / NS_PER_S
    rates = [times[a] for a in alive], [np.log(b[a]) for b, a in zip(bandwidth, alive, strict=True)]
    delays = [times] * len(latency), list(np.log(latency))
    return LinkParameters(
        ou.fit(*rates), ou.fit(*delays), ou.fit_level(*rates), ou.fit_level(*delays),
        capacity_bps=None if train.capacity_bps is None else train.capacity_bps[pairs(len(train.names))],
    )  # fmt: skip


def _matrices(filter_: LinkFilter, samples: LinkState, k: int) -> LinkState:
    """Sample k as (K, K) matrices."""
    bandwidth, latency = np.full((2, filter_.size, filter_.size), np.inf)
    bandwidth[filter_.rows, filter_.columns] = samples.bandwidth_bps[:, k]
    latency[filter_.rows, filter_.columns] = samples.latency_s[:, k]
    return LinkState(bandwidth, latency)


def _calibrated(early: LinkParameters, train: WanTrace, cut_ns: int, sensing: Sensing) -> LinkParameters:
    """`early`, fitted before `cut_ns`, with calibrations on what came after it.

    A forecast is judged as `LinkFilter` does, but one is made at every sample: a training share is short.
    """
    horizons_s = np.array(sensing.horizons_s)
    filter_ = BandwidthFilter(early, horizons_s, sensing.noise)
    first_ns = max(0, train.end_ns - MAX_SAMPLES * to_ns(sensing.period_s))
    from_ns = max(cut_ns, first_ns + (train.end_ns - first_ns) // 4)  # what comes before warms up
    times_ns, truth, samples = _sensed(train, first_ns, train.end_ns, sensing)
    pending: list[deque[tuple[int, Array, Array]]] = [deque() for _ in horizons_s]
    errors: list[list[Array]] = [[np.zeros((2, 0))] for _ in horizons_s]
    surprise, seen_times = np.zeros((2, len(truth.latency_s)))
    for k, now_ns in enumerate(times_ns.tolist()):
        alive = np.flatnonzero(truth.bandwidth_bps[:, k] > 0)
        real, seen = (np.log(links.bandwidth_bps[alive, k]) for links in (truth, samples))
        for found, waiting in zip(errors, pending, strict=True):
            while waiting and waiting[0][0] <= now_ns:
                mean, sd = (part[alive] for part in waiting.popleft()[1:])
                found.append(np.stack([(real - mean) / sd, (seen - mean) / filter_.noisy(sd)]))
        nis = filter_.observe(now_ns, alive, seen).nis
        if now_ns >= from_ns:
            surprise[alive] += nis
            seen_times[alive] += 1
            mean, sd = filter_.outlook(now_ns)
            for h, waiting in enumerate(pending):
                waiting.append((now_ns + to_ns(horizons_s[h]), mean[h], sd[h]))
    joined = [np.concatenate(found, axis=1) for found in errors]
    intervals, observed = (tuple(Intervals.of(found[of]) for found in joined) for of in (0, 1))
    common = float(surprise.sum()) / max(1.0, float(seen_times.sum())) or 1.0
    usual = (surprise + NIS_POOL * common) / (seen_times + NIS_POOL)
    return replace(early, intervals=intervals, observed=observed, nis=usual)


def _sensed(
    wan: WanTrace, start_ns: int, end_ns: int, sensing: Sensing
) -> tuple[Times, LinkState, LinkState]:
    """Times (n,) in [start, end), the links then, (L, n) each, and what telemetry would have said of them."""
    times_ns, truth = _read(wan, start_ns, end_ns, to_ns(sensing.period_s))
    rng = generator(0, "telemetry of the past")
    noise = np.exp(sensing.noise * rng.standard_normal((2, *truth.latency_s.shape)))
    return times_ns, truth, LinkState(truth.bandwidth_bps * noise[0], truth.latency_s * noise[1])


def _read(wan: WanTrace, start_ns: int, end_ns: int, step_ns: int) -> tuple[Times, LinkState]:
    """Times (n,) at regular steps in [start, end) and the links in force then, (L, n) each."""
    times = np.arange(start_ns, end_ns, step_ns, dtype=np.int64)
    bandwidth, latency = [], []
    for i, j in zip(*pairs(len(wan.names)), strict=True):
        link = wan.series[int(i), int(j)]
        now = np.maximum(np.searchsorted(link.times_ns, times, side="right") - 1, 0)
        bandwidth.append(link.bandwidth_bps[now])
        latency.append(np.maximum(link.latency_s[now], _LEAST_LATENCY_S))
    return times, LinkState(np.array(bandwidth), np.array(latency))
