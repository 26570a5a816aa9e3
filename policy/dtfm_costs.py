"""What DT-FM pays for groups of devices (recipe 12): delays of pairs, bottleneck matchings, shortest path."""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.units import BITS_PER_BYTE
from policy.even import stage_layers
from twin.domain import LinkState
from twin.estimate import Estimator

Float = NDArray[np.float64]
Int = NDArray[np.int64]
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
    """DT-FM's costs under fixed delays, each set of groups priced once."""

    def __init__(self, delays: Delays, dp: int) -> None:
        self._delays, self._dp = delays, dp
        self.size = len(delays.sync)
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

    def between_s(self, one: tuple[int, ...], other: tuple[int, ...]) -> float:
        """The longest delay in the bottleneck perfect matching of two groups."""
        return float(_apart(np.array([one, other], dtype=np.int64), self._delays.step)[0, 1])

    def circular(self, labels: Int, home: Int, groups: int) -> Int:
        """See `policy.dtfm.circular_moves`."""
        return np.asarray(_circular(labels, home, self._delays.sync, groups))

    def _path(self, groups: Groups) -> tuple[float, tuple[int, ...]]:
        if groups not in self._paths:
            self._paths[groups] = shortest_path(_apart(np.array(groups, dtype=np.int64), self._delays.step))
        return self._paths[groups]


@njit(cache=True)
def _apart(counts, step):  # type: ignore[no-untyped-def]
    """Longest delay in the bottleneck matching of every two groups (P, P); `counts` (P, K) as in `Groups`."""
    groups, size = counts.shape
    devices = counts[0].sum()
    homes = np.zeros((groups, devices), np.int64)
    for g in range(groups):
        at = 0
        for k in range(size):
            for _ in range(counts[g, k]):
                homes[g, at] = k
                at += 1
    apart = np.zeros((groups, groups))
    delays = np.zeros((devices, devices))
    for a in range(groups):
        for b in range(a):
            if homes[a, 0] == homes[a, -1] and homes[b, 0] == homes[b, -1]:
                apart[a, b] = apart[b, a] = step[homes[a, 0], homes[b, 0]]
                continue
            for i in range(devices):
                for j in range(devices):
                    delays[i, j] = step[homes[a, i], homes[b, j]]
            apart[a, b] = apart[b, a] = bottleneck_matching(delays)
    return apart


@njit(cache=True)
def bottleneck_matching(delays):  # type: ignore[no-untyped-def]
    """The least t so that edges of at most t contain a perfect matching (D, D)."""
    values = np.unique(delays)
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if _matches(delays, values[middle]):
            high = middle
        else:
            low = middle + 1
    return values[low]


@njit(cache=True)
def _matches(delays, most):  # type: ignore[no-untyped-def]
    """Whether edges of at most `most` contain a perfect matching: an augmenting path for every row."""
    size = len(delays)
    of_column = np.full(size, -1, np.int64)
    came_from = np.empty(size, np.int64)
    queue = np.empty(size, np.int64)
    for start in range(size):
        came_from[:] = -1  # row from which a column was reached
        queue[0], head, tail, free = start, 0, 1, -1
        while head < tail and free < 0:
            row = queue[head]
            head += 1
            for column in range(size):
                if came_from[column] < 0 and delays[row, column] <= most:
                    came_from[column] = row
                    if of_column[column] < 0:
                        free = column
                        break
                    queue[tail] = of_column[column]
                    tail += 1
        if free < 0:
            return False
        while free >= 0:  # turn the path round; the row that starts it had no column
            row, before = came_from[free], -1
            for column in range(size):
                if of_column[column] == row:
                    before = column
            of_column[free] = row
            free = before
    return True


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
    grown = _nearest(apart)
    _two_opt(apart, grown)
    return float(apart[grown[:-1], grown[1:]].sum()), tuple(grown.tolist())


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


@njit(cache=True)
def _nearest(apart):  # type: ignore[no-untyped-def]
    """From every group the nearest one next; the shortest of these paths."""
    groups = len(apart)
    best, least = np.zeros(groups, np.int64), np.inf
    order, left = np.zeros(groups, np.int64), np.ones(groups, np.bool_)
    for start in range(groups):
        left[:] = True
        order[0], left[start], length = start, False, 0.0
        for n in range(1, groups):
            near = -1
            for k in range(groups):
                if left[k] and (near < 0 or apart[order[n - 1], k] < apart[order[n - 1], near]):
                    near = k
            length += apart[order[n - 1], near]
            order[n], left[near] = near, False
        if length < least:
            best[:], least = order, length
    return best


@njit(cache=True)
def _two_opt(apart, order):  # type: ignore[no-untyped-def]
    """Turn stretches round, in place, while that shortens the path."""
    groups, improved = len(order), True
    while improved:
        improved = False
        for a in range(groups - 1):
            for b in range(a + 2, groups + 1):
                less = 0.0
                if a > 0:
                    less += apart[order[a - 1], order[a]] - apart[order[a - 1], order[b - 1]]
                if b < groups:
                    less += apart[order[b - 1], order[b]] - apart[order[a], order[b]]
                if less > 1e-12:
                    order[a:b] = order[a:b][::-1].copy()
                    improved = True


@njit(cache=True)
def _circular(labels, home, sync, groups):  # type: ignore[no-untyped-def]
    """The labels after the best closed chain of moves."""
    size, devices = len(sync), len(labels)
    begin = np.zeros((groups, size))  # seconds that a device of each domain would pay in each group
    for device in range(devices):
        begin[labels[device]] += sync[:, home[device]]
    best, best_gain = labels.copy(), 0.0
    for first in range(groups):
        now, paid, gain, at = labels.copy(), begin.copy(), 0.0, first
        locked = np.zeros(devices, np.bool_)
        for _ in range(groups):
            device, worst = -1, -np.inf
            for other in range(devices):
                k = home[other]
                if now[other] == at and not locked[other] and paid[at, k] - sync[k, k] > worst:
                    device, worst = other, paid[at, k] - sync[k, k]
            if device < 0:
                break
            k = home[device]
            closed = gain + worst - paid[first, k]
            if at != first and closed > best_gain + 1e-12:
                best[:], best_gain = now, closed
                best[device] = first
            onward, most = -1, -np.inf
            for g in range(groups):
                if g != at and g != first and worst - paid[g, k] > most:
                    onward, most = g, worst - paid[g, k]
            if onward < 0:
                break
            gain += most
            paid[at] -= sync[:, k]
            paid[onward] += sync[:, k]
            now[device], locked[device], at = onward, True, onward
    return best
