"""Quantiles of every link over the time of a trace, weighted by how long each sample holds."""

import numpy as np

from twin.core.domain import LinkState
from twin.traces.wan_trace import LinkSeries, WanTrace


def quantile_state(trace: WanTrace, share: float) -> LinkState:
    """Link state with the `share` quantile of each bandwidth and the median of each latency.

    A bandwidth is exceeded during 1 - `share` of the trace; links are taken one by one, so the state need
    never have held at one instant.
    """
    size = len(trace.names)
    bandwidth, latency = np.full((size, size), np.inf), np.zeros((size, size))
    for (i, j), link in trace.series.items():
        held_ns = _held_ns(link, trace.start_ns, trace.end_ns)
        bandwidth[i, j] = _quantile(link.bandwidth_bps, held_ns, share)
        latency[i, j] = _quantile(link.latency_s, held_ns, 0.5)
    return LinkState(bandwidth, latency)


def _held_ns(link: LinkSeries, start_ns: int, end_ns: int) -> np.ndarray:
    """Nanoseconds (n,) within [start, end) during which each sample is in force."""
    begins = np.clip(link.times_ns, start_ns, end_ns)
    begins[0] = start_ns
    return np.diff(np.append(begins, end_ns))


def _quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The smallest value below or at which lies at least `share` of the weight."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, share * reached[-1])])
