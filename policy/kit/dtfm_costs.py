"""Costs of DT-FM: all-reduces of groups of devices, delays of pairs, the shortest path through groups."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE
from twin.core.domain import LinkState
from twin.estimation.estimator import Estimator

Float = NDArray[np.float64]
HELD_KARP_UP_TO = 12
"""Groups up to which the path is exact; longer ones are grown to the nearest group and improved by 2-opt."""


def delays_s(estimator: Estimator, links: LinkState, dp: int, micro_batch: int) -> Float:
    """Returns seconds L + A/B between devices by their domains (K, K), symmetric; A is the activation bytes
    of an iteration. The worse direction of a link counts; inside a domain the network between nodes.
    """
    job, domains = estimator.job, estimator.cluster.domains
    count = job.micro_batches(dp, micro_batch)
    assert count is not None
    activations = float(count * job.message_bytes(micro_batch))
    bps = np.maximum(np.minimum(links.bandwidth_bps, links.bandwidth_bps.T), 1.0)  # dead: a bit a second
    latency = np.maximum(links.latency_s, links.latency_s.T)
    np.fill_diagonal(bps, [domain.inter_node_bps for domain in domains])
    latency = latency + np.diag([domain.inter_node_latency_s for domain in domains])
    return latency + activations * (BITS_PER_BYTE / bps)


def reduce_s(estimator: Estimator, domains: Iterable[int], dp: int, tp: int, stages: int) -> float:
    """Returns DT-FM's cost_DP: max over groups of sum over pairs 2 (L + S/(D B)), each group inside a domain.

    S is the gradient bytes of a GPU: those of the model, divided evenly by `stages` and tp. Devices fill one
    node before the next, so of the other D - 1 devices those that fit beside a device are in its node.
    """
    job = estimator.job
    bits = BITS_PER_BYTE * job.gradient_bytes * job.model.trained_parameters / (stages * tp) / dp
    worst = 0.0
    for domain in (estimator.cluster.domains[k] for k in domains):
        near = min(dp, domain.gpus_per_node // tp) - 1
        worst = max(
            worst,
            near * 2 * (domain.intra_node_latency_s + bits / domain.intra_node_bps)
            + (dp - 1 - near) * 2 * (domain.inter_node_latency_s + bits / domain.inter_node_bps),
        )
    return worst


def shortest_path(apart: Float) -> tuple[float, tuple[int, ...]]:
    """Returns length and order of the shortest open path through all groups; exact up to
    `HELD_KARP_UP_TO`."""
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
    """Returns length, last group and parents of the best path; best[mask, j] ends in j after visiting
    mask."""
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
    """Returns the shortest of the nearest-neighbour paths from every group."""
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
    """Reverses stretches in place while that shortens the path."""
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
