"""The level of one data set times the relative variation of another: links that nobody measured over time.

A link of the variation set becomes the factor sample / mean over its training share: the future does not set
the level of the past. A pair of domains that the set knows gets its own factor. Other pairs borrow one, in
order: the n-th borrower the n-th link of the set, starting over when all are used. Each time over, the values
are rotated in time by another amount, the training share and the rest each within itself: links do not move
together, and nothing of the test window is seen in training.
"""

from collections.abc import Mapping, Sequence
from itertools import permutations

import numpy as np

from twin.traces.link_samples import Pair, Series
from twin.traces.wan_trace import Values

_TURN = (5**0.5 - 1) / 2
"""Golden section: spreads any number of rotations evenly."""


def varied(
    level_bps: Mapping[Pair, float],
    links: Mapping[tuple[str, str], Series],
    sites: Sequence[str],
    train_share: float,
) -> tuple[dict[Pair, Series], int]:
    """A series for every pair of `level_bps`, and how many of them borrow their variation.

    level_bps: single-stream rate of each pair; links: the variation set; sites: of each domain in it.
    """
    start = min(int(link.times_ns[0]) for link in links.values())
    end = max(int(link.times_ns[-1]) for link in links.values())
    test_ns = start + round(train_share * (end - start))
    names, found, borrowed = sorted(links), {}, 0
    for i, j in permutations(range(len(sites)), 2):
        own = links.get((sites[i], sites[j]))
        turn = 0
        if own is None:
            turn, at = divmod(borrowed, len(names))
            own, borrowed = links[names[at]], borrowed + 1
        factor = _factor(own, test_ns, turn * _TURN % 1)
        nothing = np.full(len(factor), np.nan)
        found[i, j] = Series(own.times_ns, level_bps[i, j] * factor, nothing)
    return found, borrowed


def _factor(link: Series, test_ns: int, turn: float) -> Values:
    """Samples over the mean of the training share, both shares rotated by the part `turn` of their length."""
    cut = int(np.searchsorted(link.times_ns, test_ns))
    parts = [link.single_bps[:cut], link.single_bps[cut:]]
    turned = [np.roll(part, round(turn * len(part))) for part in parts]
    mean = float(parts[0].mean()) if cut else float(link.single_bps.mean())
    return np.concatenate(turned) / mean if mean > 0 else np.ones(len(link.single_bps))
