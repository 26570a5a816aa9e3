"""Samples of links as they were pushed, ordered into rounds that the filter takes one after the other."""

from collections.abc import Iterator, Sequence

import numpy as np

from twin.core.domain import LinkState

Samples = Sequence[Sequence[float]]
"""[i, j, ns, bandwidth_bps, latency_s] per sample; 0 bit/s: dead, 0 s: latency not measured."""


def rounds(samples: Samples, size: int, gap_ns: int) -> Iterator[tuple[int, LinkState]]:
    """Yields (ns, state) in the order of time: at most one sample of each of the `size` domains' links.

    A filter was trained on samples of one period. Samples of a link within the same `gap_ns` become one, the
    geometric mean of those since it was last seen dead, at the time of the last; a link that was dead last is
    dead. Links without a sample in a round are NaN.
    """
    if not len(samples):
        return
    table = np.asarray(samples, np.float64)
    times_ns = np.array([int(row[2]) for row in samples], np.int64)  # a float would round them
    order = np.argsort(times_ns, kind="stable")
    table, times_ns = table[order], times_ns[order]
    slots = times_ns // gap_ns
    for slot in np.unique(slots):
        chosen = slots == slot
        yield int(times_ns[chosen][-1]), _joined(table[chosen], size)


def _joined(rows: np.ndarray, size: int) -> LinkState:
    """One state of the links in `rows` (n, 5), which are in the order of time."""
    bandwidth, latency = np.full((2, size, size), np.nan)
    links = (rows[:, 0] * size + rows[:, 1]).astype(np.int64)
    for link in np.unique(links):
        own = rows[links == link]
        dead = np.flatnonzero(own[:, 3] <= 0)
        alive = own[dead[-1] + 1 :] if len(dead) else own
        i, j = divmod(int(link), size)
        bandwidth[i, j] = _geometric_mean(alive[:, 3]) if len(alive) else 0.0
        timed = alive[alive[:, 4] > 0, 4]
        latency[i, j] = _geometric_mean(timed) if len(timed) else 0.0
    return LinkState(bandwidth, latency)


def _geometric_mean(values: np.ndarray) -> float:
    return float(values[0]) if len(values) == 1 else float(np.exp(np.log(values).mean()))
