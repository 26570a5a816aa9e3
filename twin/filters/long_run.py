"""Reads the past before a run into the history that policies see."""

import numpy as np

from ingest.core.units import NS_PER_S, to_ns
from twin.core.link_history import LinkHistory
from twin.filters import past_telemetry
from twin.filters.link_filter import pairs
from twin.filters.past_telemetry import MAX_SAMPLES, TelemetryModel
from twin.traces.wan_trace import WanTrace

MOST_VALUES = 2_000_000
"""Most bandwidths of a history: of many domains fewer samples are kept, further apart."""


def before(whole: WanTrace, start_ns: int, telemetry: TelemetryModel) -> LinkHistory | None:
    """Returns the past of `whole` before `start_ns` as telemetry would have sampled it; None without one.

    Long pasts are sampled at longer steps, whole multiples of the period of telemetry.
    """
    period_ns = to_ns(telemetry.period_s)
    if start_ns < period_ns:
        return None
    size = len(whole.names)
    most = max(2, min(MAX_SAMPLES, MOST_VALUES // size**2))
    step_ns = period_ns * max(1, -(-start_ns // (period_ns * most)))
    first_ns = start_ns - (start_ns // step_ns) * step_ns  # so that the last sample lies one step before
    coarse = TelemetryModel(step_ns / NS_PER_S, telemetry.horizons_s, telemetry.noise)
    times_ns, _, samples = past_telemetry.sampled(whole, first_ns, start_ns, coarse)
    bandwidth = np.full((len(times_ns), size, size), np.inf)
    latency = np.zeros_like(bandwidth)
    rows, columns = pairs(size)
    bandwidth[:, rows, columns] = samples.bandwidth_bps.T
    latency[:, rows, columns] = samples.latency_s.T
    origin_ns = whole.origin_epoch_ns + start_ns
    return LinkHistory(step_ns / NS_PER_S, bandwidth, latency, origin_ns)
