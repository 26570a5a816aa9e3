"""Iteration times by the closed form of `twin.pipeline.critical_cycle`: one micro-batch through and back,
then the period of the critical cycle.

What links do not change is computed once a plan, the rest once a link state.
"""

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.estimation.mixed_shapes_kernel import Lines, both_ends, exchange_ns, linked, one_type
from twin.pipeline.kernel import DEAD, LONGEST_NS
from twin.pipeline.pipeline import BLOCKING, OVERLAPPED, RENDEZVOUS

Int = NDArray[np.int64]
Float = NDArray[np.float64]
THERE, BACK, DOWN, UP = range(4)
"""Rows of `path`, ns of a boundary: occupancy by a message downstream and upstream, and both with latency."""


def closed_form_ns(
    lines: Lines, bandwidth_bps: Float, latency_s: Float, gpipe: bool, mode: int, out: Int
) -> None:
    """Approximates `twin.estimation.mixed_shapes_kernel.exact_ns`; fills `out` (P, X)."""
    width = lines.forward.shape[1]
    room = (
        np.empty(width),
        np.empty((4, width)),
        np.empty(width, np.int64),
        np.empty((2, 2 * width), np.int64),
    )
    _closed_form_ns(lines, one_type(bandwidth_bps), one_type(latency_s), gpipe, mode, room, out)


@njit(borrowing=True, cache=True, nogil=True)
def _closed_form_ns(lines, bandwidth_bps, latency_s, gpipe, mode, room, out):  # type: ignore[no-untyped-def]
    """Fills `out`. `room` is for S stages: what they compute, the paths of boundaries, those between domains,
    and the stages beside them and elsewhere."""
    own, path, boundaries, stages = room
    for p in range(len(lines.stages)):
        depth, m, tail = lines.stages[p], lines.micro_batches[p], lines.tail[p]
        tf, tb = lines.forward[p], lines.backward[p]
        for i in range(depth):
            own[i] = tf[i] + tb[i]
        wan = boundaries[: _fill_inner_boundaries(p, lines, path, boundaries)]
        beside, other = _stages_beside(wan, depth, stages)
        beside_wan, others = stages[0, :beside], stages[1, :other]
        one_stage = mode != OVERLAPPED and m >= depth and not gpipe
        steady = _longest_turn(others, depth, own, path, mode) if one_stage else 0.0
        longest, outer = np.int64(0), both_ends(p, lines)
        for i in range(depth):
            longest = max(longest, tail[i])
        for x in range(out.shape[1]):
            tied = exchange_ns(p, x, outer, lines, bandwidth_bps, latency_s)
            if tied >= LONGEST_NS or not _fill_wan_boundaries(
                p, x, lines, bandwidth_bps, latency_s, wan, path
            ):
                out[p, x] = DEAD
                continue
            first_ns = 0.0
            for b in range(depth - 1):
                first_ns += path[DOWN, b] + path[UP, b]
            for i in range(depth):
                first_ns += own[i]
            if gpipe:
                period = _period_gpipe(depth, tf, tb, path, mode)
            elif one_stage:
                period = max(steady, _longest_turn(beside_wan, depth, own, path, mode))
            else:
                period = _period_1f1b(depth, m, own, path, mode)
            ends = max(longest, max(tail[0], tail[depth - 1]) + tied)
            out[p, x] = np.int64(first_ns + (m - 1) * period + ends)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _fill_inner_boundaries(p, lines, path, out):  # type: ignore[no-untyped-def]
    """Fills the paths of plan p's boundaries inside domains, and `out` with those between domains; returns
    how many these are."""
    count = 0
    for b in range(lines.stages[p] - 1):
        if lines.source[p, b] >= 0:
            out[count] = b
            count += 1
        else:
            path[THERE, b] = path[BACK, b] = lines.occupancy[p, b]
            path[DOWN, b] = path[UP, b] = lines.occupancy[p, b] + lines.latency[p, b]
    return count


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _stages_beside(wan, depth, out):  # type: ignore[no-untyped-def]
    """Fills `out` with the stages beside boundaries between domains (some twice), and with the others;
    returns how many they are."""
    beside, other, at = 0, 0, 0
    for b in wan:
        out[0, beside], out[0, beside + 1] = b, b + 1
        beside += 2
        for i in range(at, b):
            out[1, other] = i
            other += 1
        at = b + 2
    for i in range(at, depth):
        out[1, other] = i
        other += 1
    return beside, other


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _fill_wan_boundaries(p, x, lines, bandwidth_bps, latency_s, wan, path):  # type: ignore[no-untyped-def]
    """Fills the paths of plan p's boundaries between domains under state x; False where a link is dead."""
    size_ns = lines.message_bytes[p] * 8e9
    for b in wan:
        i, j = lines.source[p, b], lines.target[p, b]
        down_bps, up_bps = linked(bandwidth_bps, p, x, i, j), linked(bandwidth_bps, p, x, j, i)
        if down_bps <= 0 or up_bps <= 0:
            return False
        there, back = size_ns / down_bps, size_ns / up_bps
        if max(there, back) >= LONGEST_NS:
            return False
        path[THERE, b], path[BACK, b] = there, back
        path[DOWN, b] = there + linked(latency_s, p, x, i, j) * 1e9
        path[UP, b] = back + linked(latency_s, p, x, j, i) * 1e9
    return True


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _waits(i, j, depth, path, mode):  # type: ignore[no-untyped-def]
    """What a cycle over stages i to j waits for at its ends: for its sends if blocking, for what it receives
    under rendezvous."""
    if mode == BLOCKING:
        return (path[DOWN, j] if j < depth - 1 else 0.0) + (path[UP, i - 1] if i > 0 else 0.0)
    if mode == RENDEZVOUS:
        return (path[DOWN, i - 1] if i > 0 else 0.0) + (path[UP, j] if j < depth - 1 else 0.0)
    return 0.0


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _longest_turn(stages, depth, own, path, mode):  # type: ignore[no-untyped-def]
    """Longest turn of `stages`, their waits included: the period of 1F1B with m >= depth and messages that
    someone waits for, where a cycle over several stages is the mean of theirs."""
    period = 0.0
    for i in stages:
        period = max(period, own[i] + _waits(i, i, depth, path, mode))
    return period


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _period_1f1b(depth, m, own, path, mode):  # type: ignore[no-untyped-def]
    """Largest cycle mean of 1F1B per micro-batch; warm-up depths are min(m, depth - 1 - i)."""
    period = 0.0
    for i in range(depth):
        length = 0.0
        for j in range(i, depth):
            length += own[j]
            if j > i:
                length += path[DOWN, j - 1] + path[UP, j - 1]
            turns = length + _waits(i, j, depth, path, mode)
            period = max(period, turns / (min(m, depth - 1 - i) - min(m, depth - 1 - j) + 1))
    if mode == OVERLAPPED:
        for b in range(depth - 1):
            period = max(period, path[THERE, b], path[BACK, b])
    return period


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _period_gpipe(depth, tf, tb, path, mode):  # type: ignore[no-untyped-def]
    """Slowest forward step plus slowest backward step."""
    ahead, behind = 0.0, 0.0
    for i in range(depth):
        out, home = i < depth - 1, i > 0
        if mode == BLOCKING:
            ahead = max(ahead, tf[i] + (path[DOWN, i] if out else 0.0))
            behind = max(behind, tb[i] + (path[UP, i - 1] if home else 0.0))
        elif mode == RENDEZVOUS:
            ahead = max(ahead, tf[i] + (path[DOWN, i - 1] if home else 0.0))
            behind = max(behind, tb[i] + (path[UP, i] if out else 0.0))
        else:
            ahead = max(ahead, tf[i], path[THERE, i] if out else 0.0)
            behind = max(behind, tb[i], path[BACK, i - 1] if home else 0.0)
    return ahead + behind
