"""Multiplies the level of one data set by the relative variation of another.

A link of the variation set becomes the factor sample / mean over its training share: the future does not set
the level of the past. A pair of domains that the set has gets its own factor. Other pairs borrow one, in
order: the n-th borrower the n-th link of the set, starting over when all are used. Each time over, the values
are rotated in time by another amount, the training share and the rest each within itself: links do not move
together, and nothing of the test window is used in training.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np

from twin.traces.link_samples import LinkSamples, Pair
from twin.traces.wan_trace import Values

_GOLDEN = (5**0.5 - 1) / 2
"""Golden section: spreads any number of rotations evenly."""


def varied(
    level_bps: Mapping[Pair, float],
    links: Mapping[tuple[str, str], LinkSamples],
    sites: Sequence[str],
    train_share: float,
) -> tuple[dict[Pair, LinkSamples], int]:
    """Series of every pair of `level_bps`, and the number of pairs that borrow their variation.

    level_bps: single-stream rate of each pair; links: the variation set; sites: name of each domain in it.
    """
    start = min(int(link.times_ns[0]) for link in links.values())
    end = max(int(link.times_ns[-1]) for link in links.values())
    test_ns = start + round(train_share * (end - start))
    names, found, borrowed = sorted(links), {}, 0
    for i, j in permutations(range(len(sites)), 2):
        own = links.get((sites[i], sites[j]))
        round_ = 0
        if own is None:
            round_, link = divmod(borrowed, len(names))
            own, borrowed = links[names[link]], borrowed + 1
        factor = _factor(own, test_ns, round_ * _GOLDEN % 1)
        unknown = np.full(len(factor), np.nan)
        found[i, j] = LinkSamples(own.times_ns, level_bps[i, j] * factor, unknown)
    return found, borrowed


def _factor(link: LinkSamples, test_ns: int, rotation: float) -> Values:
    """Samples over the mean of the training share, both shares rotated by `rotation` of their length."""
    cut = int(np.searchsorted(link.times_ns, test_ns))
    parts = [link.single_bps[:cut], link.single_bps[cut:]]
    rotated = [np.roll(part, round(rotation * len(part))) for part in parts]
    mean = float(parts[0].mean()) if cut else float(link.single_bps.mean())
    return np.concatenate(rotated) / mean if mean > 0 else np.ones(len(link.single_bps))
