"""What the past says of each link in the long run, as the networks read it.

A plan is kept for hours and a forecast reaches half an hour, so that a link which is only fast now must look
otherwise than one that always is. Where speed alone counts, links are those that messages find over relays,
as in the forecasts (`policy.control.knobs`).
"""

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE
from policy.control.long_run import samples_of, typical_links
from policy.control.relay_links import RelayPaths
from twin.core.link_history import HOURS, LinkHistory
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Int = NDArray[np.int64]

FURTHEST = 3.0
"""Bound of logarithms of ratios; outages would have no end."""


class HistoryFeatures:
    """Columns of the observation's edges that tell the past; all 0 without one."""

    def __init__(self, estimator: Estimator, history: LinkHistory | None) -> None:
        self._known = history is not None
        if history is None:
            return
        states = samples_of(history)
        bits = (
            float(min(map(estimator.job.message_bytes, estimator.job.micro_batches_allowed))) * BITS_PER_BYTE
        )
        over_relays, _ = RelayPaths(estimator.cluster, bits).best_routes(states)
        self._mean = np.stack([_mean_log_bps(one) for one in (states, over_relays)])  # direct, over relays
        self._spread = history.sd_log
        self._outages = history.outage_share
        self._hours = _hour_ratios(history)

    def columns(self, now_bps: Float, hour: Int, relayed: Bool) -> list[Float]:
        """Returns for B moments the long-run mean relative to the bandwidth now, the spread, the share of
        outages, and the mean of this hour of the day relative to the long run (0 where no week is known),
        each (B, K, K). `now_bps` is (B, K, K), above 0; `hour` (B,) is UTC; `relayed` (B,) tells whether
        `now_bps` is over relays."""
        if not self._known:
            return [np.zeros_like(now_bps)] * 4
        with np.errstate(invalid="ignore"):  # the diagonal is infinite; who reads clears it
            ratio = np.clip(self._mean[relayed.astype(np.int64)] - np.log(now_bps), -FURTHEST, FURTHEST)
        spread, outages = (np.broadcast_to(x, now_bps.shape) for x in (self._spread, self._outages))
        return [ratio, spread, outages, self._hours[hour]]


def _mean_log_bps(states: States) -> Float:
    """Log of the bandwidth that has the mean time per bit, (K, K); of 1 kb/s for a link that never lived."""
    mean: Float = np.log(np.maximum(typical_links(states, np.ones(len(states))).bandwidth_bps, 1e3))
    return mean


def _hour_ratios(history: LinkHistory) -> Float:
    """Log of the mean bandwidth of each hour of the day over the long-run mean, (24, K, K)."""
    hourly, mean = history.hourly_bps, history.mean_bps
    if hourly is None:
        return np.zeros((HOURS, *mean.shape))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(hourly / mean)  # not a number on the diagonal, and for links that never lived
    found: Float = np.clip(np.nan_to_num(ratio, nan=0.0, neginf=-FURTHEST), -FURTHEST, FURTHEST)
    return found
