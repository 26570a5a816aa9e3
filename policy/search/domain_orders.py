"""Which orders of domains are worth planning for: all of them while they are few, else those that suit the
links.

What a pipeline over the domains `o_1 .. o_n` must pace at (`policy.pacing`) when layers are dealt out
perfectly: with c_k the seconds that a layer adds to the stages of domain k and M_ij those of a message,

    P = (N + sum over boundaries of (M_ij / c_i + M_ji / c_j)) / (sum over domains of 1 / c_k),

so that the best order of a given length is a light path in a graph with weights on edges and nodes; a model
with a tied embedding adds what the two ends exchange. A beam grows such paths at both ends; longer ones are
looked at as long as they help.
"""

from collections.abc import Sequence
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from policy.search.closed_form import MOST, Tables
from policy.search.batch_scoring import Scorer
from policy.search.plan_shapes import orders

Float = NDArray[np.float64]

ENUMERATE_UP_TO = 5
"""Living domains up to which every order is looked at."""
BEAM = 24
"""Paths kept at each length for each message size."""
MESSAGES = 3
"""Message sizes for which paths are grown: the smaller a message, the more latency counts."""


def every_order(alive: tuple[int, ...]) -> tuple[tuple[int, ...], ...] | None:
    """All orders of all subsets; None where they are too many."""
    return orders(alive) if len(alive) <= ENUMERATE_UP_TO else None


def beams(scorer: Scorer, known: Tables, alive: Sequence[int]) -> list["Beam"]:
    """A beam for each of a few message sizes from the smallest to the largest, all of length 1."""
    sizes = np.argsort(known.menu.message_bytes, kind="stable")
    chosen = sizes[np.unique(np.linspace(0, len(sizes) - 1, MESSAGES).round().astype(np.int64))]
    return [Beam(*_weights(scorer, known, int(c), alive), known.layers) for c in chosen]


def _weights(scorer: Scorer, known: Tables, size: int, alive: Sequence[int]) -> tuple[Float, Float, Float]:
    """Weights of edges (K, K), infinite where a link or a domain is dead, and of domains (K,), and what the
    ends of a path add to the time of a micro-batch (K, K)."""
    menu, sent = known.menu, scorer.messages
    spread = known.layers - 2
    held = known.shares[size, :, :, 0, MOST, spread].min(axis=1, initial=np.inf)
    cost = np.where(menu.class_of >= 0, held[menu.class_of], np.inf)
    each = cost * scorer.slow / spread
    dead = sent.occupancy[size] < 0
    there = np.where(dead, 0.0, (sent.occupancy[size] + sent.latency).astype(float))
    speed = np.where(np.isfinite(each), 1.0 / each, 0.0)
    edge = there * speed[:, None] + there.T * speed[None, :]
    usable = np.zeros(len(each), np.bool_)
    usable[list(alive)] = True
    usable &= speed > 0
    ends = np.where(sent.tied[size] < 0, np.inf, sent.tied[size] / menu.micro_batches[size])
    np.fill_diagonal(ends, 0.0)
    joined = usable[:, None] & usable[None, :] & ~dead & ~dead.T
    return np.where(joined, edge, np.inf), np.where(usable, speed, 0.0), ends


class Beam:
    """Paths of one length, the most promising first; `grow` makes them one domain longer."""

    def __init__(self, edge: Float, speed: Float, ends: Float, layers: int) -> None:
        self._edge, self._speed, self._ends, self._layers = edge, speed, ends, layers
        alone = [k for k in range(len(speed)) if speed[k] > 0]
        self.paths: list[tuple[int, ...]] = [(k,) for k in alone]
        self._waits, self._sum = np.zeros(len(alone)), speed[alone]

    def grow(self) -> None:
        """Every path with every domain that is not on it at either end, the best `BEAM` of them."""
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
        """Pace of a path by the formula above; infinite where none of its domains can compute."""
        at = list(path)
        speed = float(self._speed[at].sum())
        if speed <= 0:
            return float("inf")
        split = (self._layers + self._edge[at[:-1], at[1:]].sum()) / speed
        return float(split + self._ends[at[0], at[-1]])

    def around(self, path: tuple[int, ...], most: int) -> list[tuple[int, ...]]:
        """The `most` best paths that differ from `path` by one domain put in, out or in place of another, or
        by a stretch turned round."""
        n, others = len(path), [k for k in range(len(self._speed)) if self._speed[k] > 0 and k not in path]
        near = {(*path[:i], k, *path[i:]) for i in range(n + 1) for k in others}
        near |= {(*path[:i], k, *path[i + 1 :]) for i in range(n) for k in others}
        near |= {(*path[:i], *path[i + 1 :]) for i in range(n) if n > 1}
        near |= {(*path[:i], *path[i:j][::-1], *path[j:]) for i, j in combinations(range(n + 1), 2)}
        scored = sorted((self.pace(one), one) for one in {min(one, one[::-1]) for one in near})
        return [one for pace, one in scored[:most] if np.isfinite(pace)]


def turned(path: Sequence[int]) -> list[tuple[int, ...]]:
    """Both directions of a path; every order of a short one."""
    if len(path) <= 3:
        return list(permutations(path))
    return [tuple(path), tuple(path[::-1])]
