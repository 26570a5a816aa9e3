"""Trains, calibrates and warms up the filters of a run on telemetry from before its window."""

from collections import deque
from dataclasses import replace

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import to_ns
from twin.core.domain import LinkState
from twin.filters import ou_process, past_telemetry
from twin.filters.bandwidth_filter import BandwidthFilter
from twin.filters.conformal_intervals import Intervals
from twin.filters.engines import ENGINES
from twin.filters.link_filter import LinkFilter, TrainedLinks
from twin.filters.ou_process import Array
from twin.filters.past_telemetry import MAX_SAMPLES, TelemetryModel
from twin.traces.wan_trace import WanTrace

FITTED_SHARE = 2 / 3
"""Of the training share; the rest calibrates the intervals of filters that were not trained on it."""
NIS_POOL = 30.0
"""Evidence, in samples, that the innovations of a link are those of the others."""


def least_ns(whole: WanTrace, telemetry: TelemetryModel) -> int:
    """Length of the shortest past of `whole` that filters can be fitted on.

    It has `ou_process.MIN_SAMPLES` samples for the dynamics of every link and as many for the calibration of
    the farthest forecasts, and every link is alive once.
    """
    calibrated_s = telemetry.horizons_s[-1] + ou_process.MIN_SAMPLES * telemetry.period_s
    enough_ns = to_ns(calibrated_s / (1 - FITTED_SHARE))
    awake = (link.times_ns[int(np.argmax(link.bandwidth_bps > 0))] for link in whole.series.values())
    return max(enough_ns, to_ns(telemetry.period_s) + max(int(at_ns) for at_ns in awake))


def fit(train: WanTrace, telemetry: TelemetryModel, engine: str = "bank") -> TrainedLinks:
    """Filters of an engine trained and calibrated on `train` alone.

    Raises:
        UsageError: a link is dead in all of `train`.
    """
    cut_ns = round(FITTED_SHARE * train.end_ns)
    whole = ENGINES[engine](train, train.end_ns, telemetry)
    try:
        early = ENGINES[engine](train, cut_ns, telemetry)
    except UsageError:  # a link came alive only afterwards: nothing to calibrate on
        return whole
    found = _calibrated(early, train, cut_ns, telemetry)
    return replace(whole, intervals=found.intervals, observed=found.observed, nis=found.nis)


def warm(
    trained: TrainedLinks, whole: WanTrace, start_ns: int, telemetry: TelemetryModel
) -> LinkFilter | None:
    """Filter after the past of `whole` before `start_ns`, its time 0; None where there is no past."""
    if start_ns == 0:
        return None
    filter_ = LinkFilter(trained, len(whole.names), telemetry.horizons_s, noise=telemetry.noise)
    first_ns = max(0, start_ns - MAX_SAMPLES * to_ns(telemetry.period_s))
    times_ns, _, samples = past_telemetry.sampled(whole, first_ns, start_ns, telemetry)
    for k, now_ns in enumerate(times_ns.tolist()):
        filter_.observe(now_ns, _matrices(filter_, samples, k))
    filter_.rebase(start_ns)
    return filter_


def _matrices(filter_: LinkFilter, samples: LinkState, k: int) -> LinkState:
    """Sample k as (K, K) matrices."""
    bandwidth, latency = np.full((2, filter_.size, filter_.size), np.inf)
    bandwidth[filter_.rows, filter_.columns] = samples.bandwidth_bps[:, k]
    latency[filter_.rows, filter_.columns] = samples.latency_s[:, k]
    return LinkState(bandwidth, latency)


def _calibrated(early: TrainedLinks, train: WanTrace, cut_ns: int, telemetry: TelemetryModel) -> TrainedLinks:
    """`early`, trained before `cut_ns`, with calibrations on what came after it.

    Errors are taken as `LinkFilter` takes them, but a forecast is made at every sample: a training share is
    short.
    """
    horizons_s = np.array(telemetry.horizons_s)
    first_ns = max(0, train.end_ns - MAX_SAMPLES * to_ns(telemetry.period_s))
    from_ns = max(cut_ns, first_ns + (train.end_ns - first_ns) // 4)  # what comes before warms up
    times_ns, truth, samples = past_telemetry.sampled(train, first_ns, train.end_ns, telemetry)
    links = len(truth.latency_s)
    filter_ = BandwidthFilter(
        early.models(telemetry.noise)[0], links, horizons_s, telemetry.noise, early.capacity_bps
    )
    pending: list[deque[tuple[int, Array, Array]]] = [deque() for _ in horizons_s]
    errors: list[list[Array]] = [[np.zeros((2, 0))] for _ in horizons_s]
    nis_sum, observed_times = np.zeros((2, links))
    for k, now_ns in enumerate(times_ns.tolist()):
        alive = np.flatnonzero(truth.bandwidth_bps[:, k] > 0)
        real, seen = (np.log(state.bandwidth_bps[alive, k]) for state in (truth, samples))
        for found, waiting in zip(errors, pending, strict=True):
            while waiting and waiting[0][0] <= now_ns:
                mean, sd = (part[alive] for part in waiting.popleft()[1:])
                found.append(np.stack([(real - mean) / sd, (seen - mean) / filter_.with_noise(sd)]))
        nis = filter_.observe(now_ns, alive, seen).nis
        if now_ns >= from_ns:
            nis_sum[alive] += nis
            observed_times[alive] += 1
            mean, sd = filter_.forecast(now_ns)
            for h, waiting in enumerate(pending):
                waiting.append((now_ns + to_ns(horizons_s[h]), mean[h], sd[h]))
    joined = [np.concatenate(found, axis=1) for found in errors]
    intervals, observed = (tuple(Intervals.of(found[of]) for found in joined) for of in (0, 1))
    common = float(nis_sum.sum()) / max(1.0, float(observed_times.sum())) or 1.0
    usual = (nis_sum + NIS_POOL * common) / (observed_times + NIS_POOL)
    return replace(early, intervals=intervals, observed=observed, nis=usual)
