"""Exact iteration times of many different plans, each under a handful of link states, in one compiled pass.

`twin.kernel` runs many plans of one shape. Here every plan may have other numbers of stages and
micro-batches: those with equally many share the lanes of `twin.rounds`, whatever their link states. A test
holds the two equal to the nanosecond.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from twin.pipeline.kernel import DEAD, LONGEST_NS
from twin.pipeline.round_recurrence import LANES, LB, LF, OB, OF, TAIL, TB, TF, fold, run
from twin.costs.tied_embeddings import STEPS

Int = NDArray[np.int64]
Float = NDArray[np.float64]


class Lines(NamedTuple):
    """Stage times of P plans in ns, links between domains aside; S is the longest pipeline, shorter ones are
    padded."""

    stages: Int  # (P,)
    micro_batches: Int  # (P,)
    forward: Int  # (P, S)
    backward: Int  # (P, S)
    tail: Int  # (P, S)
    source: Int  # (P, S - 1) domain before the boundary, -1 inside a domain
    target: Int  # (P, S - 1)
    occupancy: Int  # (P, S - 1) of boundaries inside a domain
    latency: Int  # (P, S - 1)
    message_bytes: Float  # (P,)
    tied_bytes: Float  # (P,) what the domains at both ends exchange at a time for a tied embedding

    def take(self, chosen: NDArray[np.bool_]) -> "Lines":
        """The plans `chosen` (P,)."""
        return Lines._make(column[chosen] for column in self)


def empty(plans: int, stages: int) -> tuple[tuple[Int, Int, Int], tuple[Int, Int, Int, Int]]:
    """Room for `plans` pipelines of up to `stages`: the three rows of stages and the four of boundaries of
    `Lines`, no boundary between domains yet."""
    joints = max(stages - 1, 0)
    a, b, c = np.zeros((3, plans, stages), np.int64)
    d, e = np.full((2, plans, joints), -1, np.int64)
    f, g = np.zeros((2, plans, joints), np.int64)
    return (a, b, c), (d, e, f, g)


@njit(cache=True, nogil=True)
def exact_ns(lines, bandwidth_bps, latency_s, gpipe, blocking, out):  # type: ignore[no-untyped-def]
    """Iteration times of P plans under X link states into `out` (P, X); `DEAD` where a used link is.

    `bandwidth_bps` and `latency_s` are (P, X, K, K).
    """
    width = lines.forward.shape[1]
    room = (
        np.zeros((7, width * LANES), np.int64),
        np.zeros((5, (width + 1) * LANES), np.int64),
        np.zeros((5, (width + 1) * LANES), np.int64),
        np.zeros(LANES, np.int64),
    )
    t, waiting, filled, depth, m = room[0], np.zeros((LANES, 2), np.int64), 0, 0, 0
    alike = (lines.stages << 32) + lines.micro_batches
    for p in np.argsort(alike, kind="mergesort"):
        if filled and (lines.stages[p] != depth or lines.micro_batches[p] != m):
            _run(filled, depth, m, gpipe, blocking, room, waiting, out)
            filled = 0
        depth, m, ends = lines.stages[p], lines.micro_batches[p], both_ends(p, lines)
        for x in range(out.shape[1]):
            tied = exchange_ns(p, x, ends, lines, bandwidth_bps, latency_s)
            alive = tied < LONGEST_NS and _load(p, x, filled, lines, bandwidth_bps, latency_s, t)
            if not alive:
                out[p, x] = DEAD
                continue
            t[TAIL, filled] += tied
            if depth > 1:
                t[TAIL, (depth - 1) * LANES + filled] += tied
            if blocking:
                fold(depth, filled, t)
            waiting[filled, 0], waiting[filled, 1] = p, x
            filled += 1
            if filled == LANES:
                _run(filled, depth, m, gpipe, blocking, room, waiting, out)
                filled = 0
    if filled:
        _run(filled, depth, m, gpipe, blocking, room, waiting, out)


@njit(cache=True, nogil=True)
def _run(filled, depth, m, gpipe, blocking, room, waiting, out):  # type: ignore[no-untyped-def]
    """Time the lanes that are `filled`; the others repeat the first one."""
    t, s, saved, total = room
    for x in range(filled, LANES):
        for r in range(7):
            for f in range(0, depth * LANES, LANES):
                t[r, f + x] = t[r, f]
    run(depth, m, gpipe, blocking, t, s, saved, total)
    for x in range(filled):
        out[waiting[x, 0], waiting[x, 1]] = total[x]


@njit(cache=True, nogil=True)
def _load(p, x, lane, lines, bandwidth_bps, latency_s, t):  # type: ignore[no-untyped-def]
    """Fill a lane with plan p under state x; False: a link is dead."""
    bits_ns, depth = lines.message_bytes[p] * 8, lines.stages[p]
    first = (depth - 1) * LANES + lane
    t[OB, first] = t[LB, first] = t[OF, lane] = t[LF, lane] = 0
    for i in range(depth):
        f = first - i * LANES
        t[TF, f], t[TB, f], t[TAIL, f] = lines.forward[p, i], lines.backward[p, i], lines.tail[p, i]
        if i == depth - 1:
            break
        a, b = lines.source[p, i], lines.target[p, i]
        if a < 0:
            t[OF, f] = t[OB, f - LANES] = lines.occupancy[p, i]
            t[LF, f] = t[LB, f - LANES] = lines.latency[p, i]
            continue
        there, back = bandwidth_bps[p, x, a, b], bandwidth_bps[p, x, b, a]
        sent = LONGEST_NS if there <= 0 else np.rint(min(bits_ns / there * 1e9, LONGEST_NS))
        home = LONGEST_NS if back <= 0 else np.rint(min(bits_ns / back * 1e9, LONGEST_NS))
        if sent >= LONGEST_NS or home >= LONGEST_NS:
            return False
        t[OF, f], t[OB, f - LANES] = sent, home
        t[LF, f] = np.rint(latency_s[p, x, a, b] * 1e9)
        t[LB, f - LANES] = np.rint(latency_s[p, x, b, a] * 1e9)
    return True


@njit(cache=True, nogil=True)
def both_ends(p, lines):  # type: ignore[no-untyped-def]
    """The domains that exchange the gradient of a tied embedding of plan p; -1, -1: nothing is exchanged."""
    a, b = -1, -1
    if lines.tied_bytes[p] > 0:
        for i in range(lines.stages[p] - 1):
            if lines.source[p, i] >= 0:
                a, b = lines.source[p, i] if a < 0 else a, lines.target[p, i]
    return a, b


@njit(cache=True, nogil=True)
def exchange_ns(p, x, ends, lines, bandwidth_bps, latency_s):  # type: ignore[no-untyped-def]
    """What `both_ends` of plan p take for that under state x; `LONGEST_NS` over a dead link."""
    a, b = ends
    if a < 0:
        return 0
    longest = np.int64(0)
    for i, j in ((a, b), (b, a)):
        speed = bandwidth_bps[p, x, i, j]
        sent = LONGEST_NS if speed <= 0 else np.rint(min(lines.tied_bytes[p] * 8 / speed * 1e9, LONGEST_NS))
        if sent >= LONGEST_NS:
            return LONGEST_NS
        step = np.int64(sent) + np.int64(np.rint(latency_s[p, x, i, j] * 1e9))
        longest = max(longest, step)
    return STEPS * longest
