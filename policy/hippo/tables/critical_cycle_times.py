"""Iteration times by the closed form of `twin.cycle`: one micro-batch through and back, then the pace.

What links do not change is worked out once for a plan, what they change once for each state.
"""

import numpy as np
from numba import njit

from twin.estimate.mixed_shapes_kernel import both_ends, exchange_ns
from twin.pipeline.kernel import DEAD, LONGEST_NS

THERE, BACK, DOWN, UP = range(4)
"""Of a boundary, in ns: how long a message occupies it downstream and upstream, and its way with latency."""


@njit(cache=True, nogil=True)
def paced_ns(lines, bandwidth_bps, latency_s, gpipe, blocking, out):  # type: ignore[no-untyped-def]
    """As `policy.exact.exact_ns`, roughly."""
    width = lines.forward.shape[1]
    own, way = np.empty(width), np.empty((4, width))
    wide, near, inner = np.empty(width, np.int64), np.empty(2 * width, np.int64), np.empty(width, np.int64)
    for p in range(len(lines.stages)):
        depth, m, tail = lines.stages[p], lines.micro_batches[p], lines.tail[p]
        tf, tb = lines.forward[p], lines.backward[p]
        for i in range(depth):
            own[i] = tf[i] + tb[i]
        crossed = _inside(p, lines, way, wide)
        beside, alone = _sides(depth, wide[:crossed], near, inner)
        one_stage = blocking and m >= depth and not gpipe
        steady = _slowest(inner[:alone], depth, own, way) if one_stage else 0.0
        longest, outer = tail[:depth].max(), both_ends(p, lines)
        for x in range(out.shape[1]):
            tied = exchange_ns(p, x, outer, lines, bandwidth_bps, latency_s)
            alive = tied < LONGEST_NS and _across(p, x, lines, bandwidth_bps, latency_s, wide[:crossed], way)
            if not alive:
                out[p, x] = DEAD
                continue
            once = 0.0
            for b in range(depth - 1):
                once += way[DOWN, b] + way[UP, b]
            for i in range(depth):
                once += own[i]
            if gpipe:
                pace = _gpipe_pace(depth, tf, tb, way, blocking)
            elif one_stage:
                pace = max(steady, _slowest(near[:beside], depth, own, way))
            else:
                pace = _pace(depth, m, own, way, blocking)
            ends = max(longest, max(tail[0], tail[depth - 1]) + tied)
            out[p, x] = np.int64(once + (m - 1) * pace + ends)


@njit(cache=True, nogil=True)
def _inside(p, lines, way, wide):  # type: ignore[no-untyped-def]
    """Fill the ways of plan p's boundaries inside domains, and list those between domains; how many there
    are."""
    crossed = 0
    for b in range(lines.stages[p] - 1):
        if lines.source[p, b] >= 0:
            wide[crossed] = b
            crossed += 1
        else:
            way[THERE, b] = way[BACK, b] = lines.occupancy[p, b]
            way[DOWN, b] = way[UP, b] = lines.occupancy[p, b] + lines.latency[p, b]
    return crossed


@njit(cache=True, nogil=True)
def _sides(depth, wide, near, inner):  # type: ignore[no-untyped-def]
    """List the stages beside boundaries between domains (some twice), and the others; how many there are."""
    beside, alone, at = 0, 0, 0
    for b in wide:
        near[beside], near[beside + 1] = b, b + 1
        beside += 2
        for i in range(at, b):
            inner[alone] = i
            alone += 1
        at = b + 2
    for i in range(at, depth):
        inner[alone] = i
        alone += 1
    return beside, alone


@njit(cache=True, nogil=True)
def _across(p, x, lines, bandwidth_bps, latency_s, wide, way):  # type: ignore[no-untyped-def]
    """Fill the ways of plan p's boundaries between domains under state x; False: a link is dead."""
    size_ns = lines.message_bytes[p] * 8e9
    for b in wide:
        i, j = lines.source[p, b], lines.target[p, b]
        down_bps, up_bps = bandwidth_bps[p, x, i, j], bandwidth_bps[p, x, j, i]
        if down_bps <= 0 or up_bps <= 0:
            return False
        there, back = size_ns / down_bps, size_ns / up_bps
        if max(there, back) >= LONGEST_NS:
            return False
        way[THERE, b], way[BACK, b] = there, back
        way[DOWN, b] = there + latency_s[p, x, i, j] * 1e9
        way[UP, b] = back + latency_s[p, x, j, i] * 1e9
    return True


@njit(cache=True, nogil=True)
def _slowest(stages, depth, own, way):  # type: ignore[no-untyped-def]
    """Longest turn of some stages, what they send included: the pace of 1F1B with blocking sends and
    m >= depth, where a cycle over several stages is the mean of theirs."""
    pace = 0.0
    for i in stages:
        turns = (way[DOWN, i] if i < depth - 1 else 0.0) + (way[UP, i - 1] if i > 0 else 0.0)
        pace = max(pace, own[i] + turns)
    return pace


@njit(cache=True, nogil=True)
def _pace(depth, m, own, way, blocking):  # type: ignore[no-untyped-def]
    """Heaviest cycle of 1F1B over the micro-batches in it; warm-up depths are min(m, depth - 1 - i)."""
    pace = 0.0
    for i in range(depth):
        length = 0.0
        for j in range(i, depth):
            length += own[j]
            if j > i:
                length += way[DOWN, j - 1] + way[UP, j - 1]
            turns = 0.0
            if blocking:
                turns = (way[DOWN, j] if j < depth - 1 else 0.0) + (way[UP, i - 1] if i > 0 else 0.0)
            pace = max(pace, (length + turns) / (min(m, depth - 1 - i) - min(m, depth - 1 - j) + 1))
    if not blocking:
        for b in range(depth - 1):
            pace = max(pace, way[THERE, b], way[BACK, b])
    return pace


@njit(cache=True, nogil=True)
def _gpipe_pace(depth, tf, tb, way, blocking):  # type: ignore[no-untyped-def]
    """Slowest forward step and slowest backward step."""
    ahead, behind = 0.0, 0.0
    for i in range(depth):
        out, home = i < depth - 1, i > 0
        if blocking:
            ahead = max(ahead, tf[i] + (way[DOWN, i] if out else 0.0))
            behind = max(behind, tb[i] + (way[UP, i - 1] if home else 0.0))
        else:
            ahead = max(ahead, tf[i], way[THERE, i] if out else 0.0)
            behind = max(behind, tb[i], way[BACK, i - 1] if home else 0.0)
    return ahead + behind
