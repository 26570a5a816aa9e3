"""Pasts of two domains' links, given by hand."""

from collections.abc import Sequence

import numpy as np

from twin.core.link_history import LinkHistory


def past(*bps: float) -> LinkHistory:
    """Two domains whose links both have these bandwidths, one sample a minute."""
    bandwidth = np.full((len(bps), 2, 2), np.inf)
    bandwidth[:, 0, 1] = bandwidth[:, 1, 0] = bps
    return LinkHistory(60.0, bandwidth, np.full_like(bandwidth, 0.001), 0)


def days(hourly_bps: Sequence[float], count: int = 7) -> LinkHistory:
    """The same for so many days before an hour 0, UTC, each hour of which has the same bandwidths every day;
    one sample in half an hour."""
    bandwidth = past(*np.tile(np.repeat(hourly_bps, 2), count)).bandwidth_bps
    return LinkHistory(1800.0, bandwidth, np.full_like(bandwidth, 0.001), 0)
