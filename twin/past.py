"""What was known before a window began: filter parameters and filter states, from telemetry of the past.

The past is looked at as telemetry will look at the window: the link in force is read at regular steps. A
trace that is measured in blocks and holds in between is therefore learned as what it is in this world, levels
that last; fitting the bare samples instead takes the scatter inside a block for all there is (on the held-out
part of cloudpilot-iperf3 that trebles the error of the filtered present).
"""

import numpy as np

from ingest.errors import UsageError
from ingest.units import NS_PER_S, to_ns
from twin import ou
from twin.domain import Matrix
from twin.kalman import FilterBank, LinkParameters, LinkStart, pairs
from twin.wan import Times, WanTrace

MAX_SAMPLES = 2000
"""Longer pasts are read at longer steps: keeps the fit within a second whatever the length of the trace."""
_LEAST_LATENCY_S = 1e-6


def fit(train: WanTrace, period_s: float) -> LinkParameters:
    """Maximum-likelihood dynamics of every link, read each `period_s` (or longer, see `MAX_SAMPLES`).

    Raises:
        UsageError: a link is dead in all of `train`.
    """
    times_ns, bandwidth, latency = _read(train, 0, train.end_ns, period_s)
    times = times_ns / NS_PER_S
    # A dead link has no logarithm; its dynamics come from the times when it was alive.
    alive = bandwidth > 0
    if not alive.any(axis=1).all():
        raise UsageError("a link is dead in all of the training share; choose another data set")
    return LinkParameters(
        ou.fit([times[a] for a in alive], [np.log(b[a]) for b, a in zip(bandwidth, alive, strict=True)]),
        ou.fit([times] * len(latency), list(np.log(latency))),
    )


def warm(filters: LinkParameters, whole: WanTrace, start_ns: int, period_s: float) -> LinkStart | None:
    """Filter states at `start_ns` after seeing the past of `whole`; None at the beginning of the series."""
    if start_ns == 0:
        return None
    banks = FilterBank(filters.bandwidth), FilterBank(filters.latency)
    times_ns, bandwidth, latency = _read(whole, 0, start_ns, period_s)
    every = np.arange(len(latency))
    for k, now in enumerate(times_ns.tolist()):
        alive = np.flatnonzero(bandwidth[:, k] > 0)
        banks[0].observe(now, alive, np.log(bandwidth[alive, k]))
        banks[1].observe(now, every, np.log(latency[:, k]))
    return LinkStart(banks[0].state(start_ns), banks[1].state(start_ns))


def _read(wan: WanTrace, start_ns: int, end_ns: int, period_s: float) -> tuple[Times, Matrix, Matrix]:
    """Times (n,), bandwidth and latency (L, n) of every link in force at regular steps in [start, end)."""
    step_ns = max(to_ns(period_s), -(-(end_ns - start_ns) // MAX_SAMPLES))
    times = np.arange(start_ns, end_ns, step_ns, dtype=np.int64)
    bandwidth, latency = [], []
    for i, j in zip(*pairs(len(wan.names)), strict=True):
        link = wan.series[int(i), int(j)]
        now = np.maximum(np.searchsorted(link.times_ns, times, side="right") - 1, 0)
        bandwidth.append(link.bandwidth_bps[now])
        latency.append(np.maximum(link.latency_s[now], _LEAST_LATENCY_S))
    return times, np.array(bandwidth), np.array(latency)
