"""Iteration times by the closed form of `twin.cycle`: one micro-batch through and back, then the pace."""

import numpy as np
from numba import njit

from policy.exact import exchange_ns
from twin.kernel import DEAD, LONGEST_NS


@njit(cache=True, nogil=True)
def paced_ns(lines, bandwidth_bps, latency_s, gpipe, blocking, out):  # type: ignore[no-untyped-def]
    """As `policy.exact.exact_ns`, roughly."""
    width = lines.forward.shape[1]
    down, up, there, back = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    for p in range(len(lines.stages)):
        depth, m, tail = lines.stages[p], lines.micro_batches[p], lines.tail[p]
        tf, tb = lines.forward[p], lines.backward[p]
        for x in range(out.shape[1]):
            once = _boundaries(p, x, lines, bandwidth_bps, latency_s, there, back, down, up)
            tied = exchange_ns(p, x, lines, bandwidth_bps, latency_s)
            if once < 0 or tied >= LONGEST_NS:
                out[p, x] = DEAD
                continue
            ends = max(tail[0], tail[depth - 1]) + tied
            for i in range(depth):
                once += tf[i] + tb[i]
                ends = max(ends, tail[i])
            pace = (
                _gpipe_pace(depth, tf, tb, there, back, down, up, blocking)
                if gpipe
                else _pace(depth, m, tf, tb, there, back, down, up, blocking)
            )
            out[p, x] = np.int64(once + (m - 1) * pace + ends)


@njit(cache=True, nogil=True)
def _boundaries(p, x, lines, bandwidth_bps, latency_s, there, back, down, up):  # type: ignore[no-untyped-def]
    """Fill occupancy and way of each boundary of plan p under state x; their sum, -1 over a dead link."""
    once, size_ns = 0.0, lines.message_bytes[p] * 8e9
    for b in range(lines.stages[p] - 1):
        i, j = lines.source[p, b], lines.target[p, b]
        if i >= 0:
            slow = min(bandwidth_bps[p, x, i, j], bandwidth_bps[p, x, j, i])
            if slow <= 0 or size_ns / slow >= LONGEST_NS:
                return -1.0
            there[b] = size_ns / bandwidth_bps[p, x, i, j]
            back[b] = size_ns / bandwidth_bps[p, x, j, i]
            down[b] = there[b] + latency_s[p, x, i, j] * 1e9
            up[b] = back[b] + latency_s[p, x, j, i] * 1e9
        else:
            there[b] = back[b] = lines.occupancy[p, b]
            down[b] = up[b] = lines.occupancy[p, b] + lines.latency[p, b]
        once += down[b] + up[b]
    return once


@njit(cache=True)
def _pace(depth, m, tf, tb, there, back, down, up, blocking):  # type: ignore[no-untyped-def]
    """Heaviest cycle of 1F1B over the micro-batches in it; warm-up depths are min(m, depth - 1 - i).

    With blocking sends and m >= depth a cycle over several stages is the mean of theirs: one stage is enough.
    """
    pace = 0.0
    if blocking and m >= depth:
        for i in range(depth):
            turns = (down[i] if i < depth - 1 else 0.0) + (up[i - 1] if i > 0 else 0.0)
            pace = max(pace, tf[i] + tb[i] + turns)
        return pace
    for i in range(depth):
        length = 0.0
        for j in range(i, depth):
            length += tf[j] + tb[j]
            if j > i:
                length += down[j - 1] + up[j - 1]
            turns = 0.0
            if blocking:
                turns = (down[j] if j < depth - 1 else 0.0) + (up[i - 1] if i > 0 else 0.0)
            pace = max(pace, (length + turns) / (min(m, depth - 1 - i) - min(m, depth - 1 - j) + 1))
    if not blocking:
        for b in range(depth - 1):
            pace = max(pace, there[b], back[b])
    return pace


@njit(cache=True)
def _gpipe_pace(depth, tf, tb, there, back, down, up, blocking):  # type: ignore[no-untyped-def]
    """Slowest forward step and slowest backward step."""
    ahead, behind = 0.0, 0.0
    for i in range(depth):
        out, home = i < depth - 1, i > 0
        if blocking:
            ahead = max(ahead, tf[i] + (down[i] if out else 0.0))
            behind = max(behind, tb[i] + (up[i - 1] if home else 0.0))
        else:
            ahead = max(ahead, tf[i], there[i] if out else 0.0)
            behind = max(behind, tb[i], back[i - 1] if home else 0.0)
    return ahead + behind
