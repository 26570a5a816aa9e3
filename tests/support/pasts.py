"""Pasts of two domains' links, given by hand."""

import numpy as np

from twin.core.link_history import LinkHistory


def past(*bps: float) -> LinkHistory:
    """Two domains whose links both have these bandwidths, one sample a minute."""
    bandwidth = np.full((len(bps), 2, 2), np.inf)
    bandwidth[:, 0, 1] = bandwidth[:, 1, 0] = bps
    return LinkHistory(60.0, bandwidth, np.full_like(bandwidth, 0.001), 0)
