"""Plain starting points beside the network's proposals: chains of well-joined domains, balanced cuts, every
knob.

They keep the verified policy from missing a number of domains that the network no longer proposes. Only the
best of each number of domains is kept, judged under one link state.
"""

import numpy as np
from numpy.typing import NDArray

from policy.hippo.problem import Codes, Problem
from policy.hippo.refine import legal
from policy.hippo.timing import Timer
from twin.domain import LinkState
from twin.kernel import DEAD

Float = NDArray[np.float64]

STARTS = 8
"""Domains that a chain may begin at."""
DENSE = 8
"""Numbers of domains that are all tried; above, fewer and fewer."""


def skeletons(problem: Problem, timer: Timer, links: LinkState, slowdown: Float) -> Codes:
    """The fastest skeleton of each number of domains under `links`; none where nothing fits."""
    k = problem.k
    rows = []
    for order in _chains(links.bandwidth_bps):
        for n in _lengths(k):
            for c in np.flatnonzero(problem.knob_mask).tolist():
                rows += _rows(problem, order[:n], c, slowdown)
    table = np.unique(np.array(rows, dtype=np.int64).reshape(-1, 2 + 3 * k), axis=0)
    codes = Codes(table[:, 0], table[:, 1], *(table[:, 2 + i * k : 2 + (i + 1) * k] for i in range(3)))
    codes = codes.take(np.flatnonzero(legal(problem, codes)))
    if len(codes) == 0:
        return codes
    shape = (len(codes), 1, k, k)
    ns = timer.paced_ns(
        timer.rows(codes, slowdown),
        np.broadcast_to(links.bandwidth_bps, shape),
        np.broadcast_to(links.latency_s, shape),
    )[:, 0]
    best = []
    for n in np.unique(codes.count):
        same = np.flatnonzero((codes.count == n) & (ns != DEAD))
        best += same[np.argsort(ns[same], kind="stable")[:2]].tolist()
    return codes.take(best)


def _lengths(k: int) -> list[int]:
    """Every number of domains up to `DENSE`, then half as many again each time."""
    lengths = list(range(1, min(k, DENSE) + 1))
    while lengths[-1] < k:
        lengths.append(min(k, lengths[-1] * 3 // 2))
    return lengths


def _chains(bandwidth_bps: Float) -> list[list[int]]:
    """From a domain on, always to the unused domain with the best link both ways.

    From every domain, or from the `STARTS` whose few best links are fastest.
    """
    both = np.minimum(bandwidth_bps, bandwidth_bps.T)
    size = len(both)
    inside = np.where(np.eye(size, dtype=np.bool_), 0.0, both)
    near = np.sort(inside, axis=1)[:, -min(3, size) :].sum(1)
    chains = []
    for first in sorted(np.argsort(-near, kind="stable")[:STARTS].tolist()):
        chain = [first]
        while len(chain) < len(both):
            rest = [j for j in range(len(both)) if j not in chain]
            chain.append(max(rest, key=lambda j: (both[chain[-1], j], -j)))
        chains.append(chain)
    return chains


def _rows(problem: Problem, order: list[int], c: int, slowdown: Float) -> list[list[int]]:
    """One knob on one order: layers in proportion to speed, with the widest and the deepest arrangement."""
    k, t = problem.k, problem.tables
    found = []
    for widest in (True, False):
        picks = []
        for d in order:
            inner = problem.choices[c][problem.class_of[d]]
            if not inner:
                return []
            sign = 1 if widest else -1
            picks.append(
                max(range(len(inner)), key=lambda q: (inner[q][0] * inner[q][1], sign * inner[q][0]))
            )
        seconds = [
            t.forward[c, problem.kind_of[d], q, -1] / t.pp[c, problem.class_of[d], q] * slowdown[d]
            for d, q in zip(order, picks, strict=True)
        ]
        layers = _split(problem.n, 1 / np.array(seconds))
        pad = k - len(order)
        found.append([c, len(order), *order, *[-1] * pad, *layers, *[0] * pad, *picks, *[0] * pad])
    return found


def _split(n: int, speed: Float) -> list[int]:
    """`n` layers in proportion to `speed`, rounded at the cuts."""
    cuts = np.rint(np.cumsum(speed) / speed.sum() * n).astype(np.int64)
    return [int(x) for x in np.diff(np.concatenate([[0], cuts]))]
