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

from policy.search.batch_scoring import Scorer
from policy.search.closed_form import MOST, ShareTimeTables
from policy.search.plan_shapes import orders

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
    """Paths of one length, the best first; `grow` extends them by one domain."""

    def __init__(self, edge: Float, speed: Float, ends: Float, layers: int) -> None:
        self._edge, self._speed, self._ends, self._layers = edge, speed, ends, layers
        usable = [k for k in range(len(speed)) if speed[k] > 0]
        self.paths: list[tuple[int, ...]] = [(k,) for k in usable]
        self._waits, self._sum = np.zeros(len(usable)), speed[usable]

    def grow(self) -> None:
        """Adds every domain that is not on a path at either of its ends, and keeps the best `BEAM` paths."""
        if not self.paths:
            return
        ends = np.array([(path[0], path[-1]) for path in self.paths])
        waits = self._waits[:, None, None] + self._edge[ends]  # (B, 2, K)
        for row, path in enumerate(self.paths):
            waits[row][:, list(path)] = np.inf
        speed = (self._sum[:, None] + self._speed)[:, None, :]
        pace = (self._layers + waits) / np.maximum(speed, 1e-300) + self._ends[ends[:, ::-1]]
        found: dict[tuple[int, ...], tuple[float, float]] = {}
        for flat in np.argsort(pace, axis=None, kind="stable")[: 4 * BEAM].tolist():
            row, end, k = (int(x) for x in np.unravel_index(flat, pace.shape))
            if len(found) == BEAM or not np.isfinite(pace[row, end, k]):
                break
            path = (k, *self.paths[row]) if end == 0 else (*self.paths[row], k)
            one_way = min(path, path[::-1])  # weights are the same both ways
            found.setdefault(one_way, (float(waits[row, end, k]), float(speed[row, 0, k])))
        self.paths = list(found)
        self._waits = np.array([waits for waits, _ in found.values()])
        self._sum = np.array([speed for _, speed in found.values()])

    def pace(self, path: Sequence[int]) -> float:
        """Returns P of a path by the formula above; infinite where none of its domains can compute."""
        domains = list(path)
        speed = float(self._speed[domains].sum())
        if speed <= 0:
            return float("inf")
        split = (self._layers + self._edge[domains[:-1], domains[1:]].sum()) / speed
        return float(split + self._ends[domains[0], domains[-1]])

    def around(self, path: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
        """Returns the `most` best paths that differ from `path` by one domain inserted, removed or replaced,
        or by a reversed stretch."""
        n, others = len(path), [k for k in range(len(self._speed)) if self._speed[k] > 0 and k not in path]
        near = {(*path[:i], k, *path[i:]) for i in range(n + 1) for k in others}
        near |= {(*path[:i], k, *path[i + 1 :]) for i in range(n) for k in others}
        near |= {(*path[:i], *path[i + 1 :]) for i in range(n) if n > 1}
        near |= {(*path[:i], *path[i:j][::-1], *path[j:]) for i, j in combinations(range(n + 1), 2)}
        scored = sorted((self.pace(one), one) for one in {min(one, one[::-1]) for one in near})
        return [one for pace, one in scored[:most] if np.isfinite(pace)]
