"""What DT-FM pays for groups of devices (recipe 12): delays of pairs, bottleneck matchings, shortest path."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.units import BITS_PER_BYTE
from policy.even import stage_layers
from twin.domain import LinkState
from twin.estimate import Estimator

Float = NDArray[np.float64]
Groups = tuple[tuple[int, ...], ...]
"""Of each group how many devices it has in each domain."""
HELD_KARP_UP_TO = 12
"""Groups up to which the path is exact; longer ones are grown to the nearest group and improved by 2-opt."""
GRADIENT_BYTES = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    """Seconds between devices by their domains (K, K): `sync` 2 (L + S/(D B)), `step` L + A/B; symmetric."""

    sync: Float
    step: Float

    @classmethod
    def of(
        cls, estimator: Estimator, links: LinkState, dp: int, tp: int, stages: int, micro_batch: int
    ) -> "Delays":
        """Delays of a size: S the gradient bytes of an even stage and device, A the activation bytes of an
        iteration. The worse direction of a link counts; inside a domain the network between nodes.
        """
        job, domains = estimator.job, estimator.cluster.domains
        count = job.micro_batches(dp, micro_batch)
        layers = stage_layers(estimator.n_layers, stages)
        assert count is not None and layers is not None
        gradients = GRADIENT_BYTES * job.model.parameters / stages / tp
        activations = float(count * job.message_bytes(micro_batch))
        bps = np.maximum(np.minimum(links.bandwidth_bps, links.bandwidth_bps.T), 1.0)  # dead: a bit a second
        latency = np.maximum(links.latency_s, links.latency_s.T)
        np.fill_diagonal(bps, [domain.inter_node_bps for domain in domains])
        latency = latency + np.diag([domain.inter_node_latency_s for domain in domains])
        rate = BITS_PER_BYTE / bps
        return cls(2.0 * (latency + gradients / dp * rate), latency + activations * rate)


class Costs:
    """DT-FM's costs under fixed delays, each group and pair of groups priced once."""

    def __init__(self, delays: Delays, dp: int) -> None:
        self._delays, self._dp = delays, dp
        self.size = len(delays.sync)
        self._pairs: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}
        self._scores: dict[Groups, float] = {}
        self._paths: dict[Groups, tuple[float, tuple[int, ...]]] = {}

    def score(self, groups: Groups) -> float:
        """cost_DP + 2 cost_PP."""
        if groups not in self._scores:
            self._scores[groups] = self.data_parallel_s(groups) + 2 * self._path(groups)[0]
        return self._scores[groups]

    def path(self, groups: Groups) -> tuple[int, ...]:
        """Groups in the order of the shortest path."""
        return self._path(groups)[1]

    def data_parallel_s(self, groups: Groups) -> float:
        """cost_DP: every pair of a group talks in the sharded all-reduce."""
        counts = np.array(groups, dtype=np.float64)
        sums = counts @ self._delays.sync.T - np.diag(self._delays.sync)
        return float(np.where(counts > 0, sums, -np.inf).max())

    def attachment(self, labels: NDArray[np.int64], home: NDArray[np.int64], groups: int) -> Float:
        """(devices, groups): seconds that a device's all-reduce takes with the others of each group."""
        counts = np.zeros((groups, self.size))
        np.add.at(counts, (labels, home), 1.0)
        sums: Float = (counts @ self._delays.sync.T)[:, home].T
        sums[np.arange(len(home)), labels] -= np.diag(self._delays.sync)[home]
        return sums

    def between_s(self, one: tuple[int, ...], other: tuple[int, ...]) -> float:
        """The longest delay in the bottleneck perfect matching of two groups."""
        key = (one, other) if one <= other else (other, one)
        if key not in self._pairs:
            left, right = (np.repeat(np.arange(self.size), group) for group in key)
            self._pairs[key] = bottleneck_matching(self._delays.step[np.ix_(left, right)])
        return self._pairs[key]

    def _path(self, groups: Groups) -> tuple[float, tuple[int, ...]]:
        if groups not in self._paths:
            apart = np.array([[self.between_s(a, b) for b in groups] for a in groups])
            np.fill_diagonal(apart, 0.0)
            self._paths[groups] = shortest_path(apart)
        return self._paths[groups]


def bottleneck_matching(delays: Float) -> float:
    """The least t so that edges of at most t contain a perfect matching (D, D)."""
    from scipy.sparse import csr_array  # lazily: most runs never plan with this
    from scipy.sparse.csgraph import maximum_bipartite_matching

    values = np.unique(delays)
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        matched = maximum_bipartite_matching(csr_array(delays <= values[middle]), perm_type="column")
        low, high = (low, middle) if (matched >= 0).all() else (middle + 1, high)
    return float(values[low])


def shortest_path(apart: Float) -> tuple[float, tuple[int, ...]]:
    """Length and order of the shortest open path through all groups (P, P); exact up to `HELD_KARP_UP_TO`."""
    groups = len(apart)
    if groups <= HELD_KARP_UP_TO:
        length, last, parent = _held_karp(apart)
        order, mask = [int(last)], (1 << groups) - 1
        while parent[mask, order[-1]] >= 0:
            before = int(parent[mask, order[-1]])
            mask ^= 1 << order[-1]
            order.append(before)
        return float(length), tuple(order[::-1])
    order = min((_nearest(apart, start) for start in range(groups)), key=lambda o: (_length(apart, o), o))
    improved = _two_opt(apart, order)
    return _length(apart, improved), tuple(improved)


@njit(cache=True)
def _held_karp(apart):  # type: ignore[no-untyped-def]
    """Length, last group and parents of the best path: best[mask, j] ends in j after visiting mask."""
    groups = len(apart)
    full = 1 << groups
    best = np.full((full, groups), np.inf)
    parent = np.full((full, groups), -1, np.int64)
    for j in range(groups):
        best[1 << j, j] = 0.0
    for mask in range(1, full):
        for j in range(groups):
            if best[mask, j] < np.inf:
                for k in range(groups):
                    grown = mask | (1 << k)
                    if grown != mask and best[mask, j] + apart[j, k] < best[grown, k]:
                        best[grown, k] = best[mask, j] + apart[j, k]
                        parent[grown, k] = j
    last = np.argmin(best[full - 1])
    return best[full - 1, last], last, parent


def _length(apart: Float, order: Sequence[int]) -> float:
    return float(apart[list(order[:-1]), list(order[1:])].sum())


def _nearest(apart: Float, start: int) -> list[int]:
    order, left = [start], set(range(len(apart))) - {start}
    while left:
        order.append(min(left, key=lambda k: (apart[order[-1], k], k)))
        left.remove(order[-1])
    return order


def _two_opt(apart: Float, order: list[int]) -> list[int]:
    """Turn stretches round while that shortens the path."""
    improved = True
    while improved:
        improved = False
        for a in range(len(order) - 1):
            for b in range(a + 2, len(order) + 1):
                turned = order[:a] + order[a:b][::-1] + order[b:]
                if _length(apart, turned) < _length(apart, order) - 1e-12:
                    order, improved = turned, True
    return order
