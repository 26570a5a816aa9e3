"""Orders of domains worth planning for: all of them while they are few, else those that suit the links.

With layers split perfectly over the domains `o_1 .. o_n`, a micro-batch takes
(`policy.search.bottleneck_split`)

    P = (N + sum over boundaries of (M_ij / c_i + M_ji / c_j)) / (sum over domains of 1 / c_k),

c_k being the seconds that a layer adds to the stages of domain k and M_ij those of a message. So the best
order of a given length is a lightest path in a graph with weights on edges and nodes; a tied embedding adds
the exchange between the two ends. A beam search grows such paths at both ends, as long as longer ones help.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.search.batch_scoring import Scorer
from policy.search.closed_form import MOST, ShareTimeTables
from policy.search.plan_shapes import orders

Int = NDArray[np.int64]
Float = NDArray[np.float64]

ENUMERATE_UP_TO = 5
"""Living domains up to which every order is considered."""
BEAM = 24
"""Paths kept at each length for each message size."""
MESSAGE_SIZES = 3
"""Message sizes for which paths are grown: the smaller a message, the more latency matters."""


def every_order(alive: tuple[int, ...]) -> tuple[tuple[int, ...], ...] | None:
    """Returns all orders of all subsets; None where they are too many."""
    return orders(alive) if len(alive) <= ENUMERATE_UP_TO else None


def beams(scorer: Scorer, known: ShareTimeTables, alive: Sequence[int]) -> list["Beam"]:
    """Returns a beam of paths of length 1 for each of a few message sizes, smallest to largest."""
    return [Beam(*path_weights(scorer, known, c, alive), known.layers) for c in typical_sizes(known)]


def typical_sizes(known: ShareTimeTables) -> list[int]:
    """Returns the indices of a few message sizes, smallest to largest."""
    sizes = np.argsort(known.options.arrays.message_bytes, kind="stable")
    if not len(sizes):  # nothing can run
        return []
    chosen = sizes[np.unique(np.linspace(0, len(sizes) - 1, MESSAGE_SIZES).round().astype(np.int64))]
    return [int(c) for c in chosen]


def path_weights(
    scorer: Scorer, known: ShareTimeTables, size: int, alive: Sequence[int]
) -> tuple[Float, Float, Float]:
    """Returns weights of edges (K, K), infinite where a link or a domain is dead, speeds of domains (K,), and
    the time that the ends of a path add to a micro-batch (K, K)."""
    options, messages = known.options.arrays, scorer.messages
    blocks = known.layers - 2
    slowest = known.shares[size, :, :, 0, MOST, blocks].min(axis=1, initial=np.inf)
    cost = np.where(options.class_of >= 0, slowest[options.class_of], np.inf)
    per_layer = cost * scorer.slowdown / blocks
    dead = messages.occupancy[size] < 0
    message_ns = np.where(dead, 0.0, (messages.occupancy[size] + messages.latency).astype(float))
    speed = np.where(np.isfinite(per_layer), 1.0 / per_layer, 0.0)
    edge = message_ns * speed[:, None] + message_ns.T * speed[None, :]
    usable = np.zeros(len(per_layer), np.bool_)
    usable[list(alive)] = True
    usable &= speed > 0
    tied = messages.tied[size]
    ends = np.where(tied < 0, np.inf, tied / options.micro_batches[size])
    np.fill_diagonal(ends, 0.0)
    connected = usable[:, None] & usable[None, :] & ~dead & ~dead.T
    return np.where(connected, edge, np.inf), np.where(usable, speed, 0.0), ends


class Beam:
    """Paths of one length (P, n), the best first; `grow` extends them by one domain."""

    def __init__(self, edge: Float, speed: Float, ends: Float, layers: int) -> None:
        self._edge, self._speed, self._ends, self._layers = edge, speed, ends, layers
        usable = np.flatnonzero(speed > 0)
        self.paths: Int = usable[:, None]
        self._waits, self._sum = np.zeros(len(usable)), speed[usable]

    def grow(self) -> None:
        """Adds every domain that is not on a path at either of its ends, and keeps the best `BEAM` paths."""
        longer = np.empty((BEAM, self.paths.shape[1] + 1), np.int64)
        waits, speed = np.empty((2, BEAM))
        weights = (self._edge, self._speed, self._ends, self._layers)
        found = _grow((self.paths, self._waits, self._sum), weights, (longer, waits, speed))
        self.paths, self._waits, self._sum = longer[:found], waits[:found], speed[:found]

    def around(self, path: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
        """Returns the `most` best paths that differ from `path` by one domain inserted, removed or replaced,
        or by a reversed stretch."""
        n, others = len(path), [k for k in range(len(self._speed)) if self._speed[k] > 0 and k not in path]
        near = {(*path[:i], k, *path[i:]) for i in range(n + 1) for k in others}
        near |= {(*path[:i], k, *path[i + 1 :]) for i in range(n) for k in others}
        near |= {(*path[:i], *path[i + 1 :]) for i in range(n) if n > 1}
        near |= {(*path[:i], *path[i:j][::-1], *path[j:]) for i, j in combinations(range(n + 1), 2)}
        by_length: dict[int, set[tuple[int, ...]]] = {}
        for one in near:
            by_length.setdefault(len(one), set()).add(min(one, one[::-1]))
        scored: list[tuple[float, tuple[int, ...]]] = []
        for alike in map(list, by_length.values()):
            scored += zip(self._paces(np.array(alike)).tolist(), alike, strict=True)
        return [one for pace, one in sorted(scored)[:most] if np.isfinite(pace)]

    def _paces(self, paths: Int) -> Float:
        """Returns P of paths of one length (P, n) by the formula above; infinite where none of the domains
        can compute."""
        speed = self._speed[paths].sum(axis=1)
        waits = self._edge[paths[:, :-1], paths[:, 1:]].sum(axis=1)
        with np.errstate(divide="ignore"):
            split = (self._layers + waits) / speed
        return np.where(speed > 0, split + self._ends[paths[:, 0], paths[:, -1]], np.inf)


@njit(cache=True, nogil=True)
def _grow(paths, weights, longer):  # type: ignore[no-untyped-def]
    """Fills `longer` with the best paths that have one domain more, one way each, since weights are the same
    both ways: domains, sums of waits and of speeds, as in `paths`. Returns how many there are."""
    domains, waits, speeds = paths
    edge, speed, ends, layers = weights
    out, out_waits, out_speeds = longer
    rows, n, k, found = domains.shape[0], domains.shape[1], len(speed), 0
    pace, path = np.full(rows * 2 * k, np.inf), np.empty(n + 1, np.int64)
    for row in range(rows):
        for end in range(2):
            here, there = domains[row, end * (n - 1)], domains[row, (1 - end) * (n - 1)]
            at = (row * 2 + end) * k
            for new in range(k):
                wait = waits[row] + edge[here, new]
                pace[at + new] = (layers + wait) / max(speeds[row] + speed[new], 1e-300) + ends[there, new]
            for i in range(n):
                pace[at + domains[row, i]] = np.inf
    for at in np.argsort(pace, kind="mergesort")[: 4 * BEAM]:
        if found == BEAM or not np.isfinite(pace[at]):
            break
        row, end, new = at // (2 * k), at // k % 2, at % k
        path[0 if end == 0 else n] = new
        path[1 - end : n + 1 - end] = domains[row]
        if not _ascends(path):
            path = path[::-1].copy()
        known = False
        for one in out[:found]:
            known |= np.array_equal(one, path)
        if not known:
            here = domains[row, end * (n - 1)]
            out[found], out_waits[found] = path, waits[row] + edge[here, new]
            out_speeds[found] = speeds[row] + speed[new]
            found += 1
    return found


@njit(inner=True, cache=True, nogil=True)
def _ascends(path):  # type: ignore[no-untyped-def]
    """Tells whether a path comes before its reverse, or is the same."""
    for i in range(len(path) // 2):
        if path[i] != path[len(path) - 1 - i]:
            return path[i] < path[len(path) - 1 - i]
    return True
