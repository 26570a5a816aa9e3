"""Exact iteration times of many different plans, each under a handful of link states, in one compiled pass.

`twin.kernel` runs many plans of one shape side by side. Here every plan may have other numbers of stages and
micro-batches, so the lanes of the innermost loops are a plan's link states: the kernel's recurrences,
operation by operation; a test holds the two equal to the nanosecond.

A steady pipeline repeats itself. Once all that one round hands to the next has shifted by one constant within
the last c rounds, so will it within every c rounds that follow (the recurrences commute with adding a
constant), and those are skipped. Times are integers, so nothing is lost by it.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from twin.kernel import DEAD, LONGEST_NS
from twin.tied import STEPS

Int = NDArray[np.int64]

LANES = 4
"""Link states that run side by side; more do not pay, since few are asked at a time."""
TF, TB, OF, LF, OB, LB, END = range(7)
"""First axis of `t`: durations of a stage and of its boundaries, what goes up standing with its sender, and
what follows the last backward."""
FREE, DOWN, UP, NEXT, OTHER = range(5)
"""First axis of `s`: when a stage is free, when its links are, and the two activations that wait for it."""


@njit(cache=True, nogil=True)
def exact_ns(  # type: ignore[no-untyped-def]
    stages, micro_batches, forward, backward, tail, source, target, occupancy, latency, message_bytes,
    bandwidth_bps, latency_s, tied_bytes, gpipe, blocking, out,
):  # fmt: skip
    """Iteration times of P plans under X link states into `out` (P, X); `DEAD` where a used link is.

    `stages`, `micro_batches`, `message_bytes` are (P,), stage times (P, S), boundaries (P, S - 1) as in
    `policy.hippo.timing.Rows`, `bandwidth_bps` and `latency_s` (P, X, K, K). `tied_bytes` (P,) is what the
    domains at both ends exchange at a time for a tied embedding.
    """
    width, states = forward.shape[1], bandwidth_bps.shape[1]
    t = np.zeros((7, width + 1, LANES), np.int64)
    s = np.zeros((5, width + 1, LANES), np.int64)
    saved = np.zeros((4, width + 1, LANES), np.int64)
    grown = np.zeros(LANES, np.int64)
    total = np.zeros(LANES, np.int64)
    alive = np.zeros(LANES, np.bool_)
    for p in range(len(stages)):
        depth, m = stages[p], micro_batches[p]
        for first in range(0, states, LANES):
            n = min(LANES, states - first)
            one = _load(
                p, first, n, depth, forward, backward, source, target, occupancy, latency, message_bytes,
                bandwidth_bps, latency_s, t, alive,
            )  # fmt: skip
            _load_ends(
                p, first, n, depth, tail, source, target, tied_bytes, bandwidth_bps, latency_s, t, alive
            )
            if one >= 0:
                s[:] = 0
                if blocking:
                    _fold(depth, t)
                if gpipe:
                    _gpipe(depth, m, blocking, t, s, total)
                else:
                    _steady(depth, m, blocking, t, s, saved, grown, total)
            for x in range(n):
                out[p, first + x] = total[x] if alive[x] else DEAD


@njit(cache=True, nogil=True)
def _load(  # type: ignore[no-untyped-def]
    p, first, n, depth, forward, backward, source, target, occupancy, latency, message_bytes,
    bandwidth_bps, latency_s, t, alive,
):  # fmt: skip
    """Fill the lanes; dead and idle ones repeat a living one, whose number is returned (-1: none)."""
    bits_ns = message_bytes[p] * 8
    for x in range(LANES):
        alive[x] = x < n
    for i in range(depth):
        for x in range(LANES):
            t[TF, i, x], t[TB, i, x] = forward[p, i], backward[p, i]
        if i == depth - 1:
            break
        a, b = source[p, i], target[p, i]
        for x in range(n):
            if a < 0:
                t[OF, i, x] = t[OB, i + 1, x] = occupancy[p, i]
                t[LF, i, x] = t[LB, i + 1, x] = latency[p, i]
                continue
            there, back = bandwidth_bps[p, first + x, a, b], bandwidth_bps[p, first + x, b, a]
            t[OF, i, x] = LONGEST_NS if there <= 0 else np.rint(min(bits_ns / there * 1e9, LONGEST_NS))
            t[OB, i + 1, x] = LONGEST_NS if back <= 0 else np.rint(min(bits_ns / back * 1e9, LONGEST_NS))
            t[LF, i, x] = np.rint(latency_s[p, first + x, a, b] * 1e9)
            t[LB, i + 1, x] = np.rint(latency_s[p, first + x, b, a] * 1e9)
            if t[OF, i, x] >= LONGEST_NS or t[OB, i + 1, x] >= LONGEST_NS:
                alive[x] = False
    one = -1
    for x in range(n):
        if alive[x]:
            one = x
    for x in range(LANES):
        if one >= 0 and not alive[x]:
            for i in range(depth):
                for r in range(OF, LB + 1):
                    t[r, i, x] = t[r, i, one]
    return one


@njit(cache=True, nogil=True)
def exchange_ns(p, x, depth, source, target, tied_bytes, bandwidth_bps, latency_s):  # type: ignore[no-untyped-def]
    """What plan p's first and last domain take for the gradient of a tied embedding under state x."""
    a, b = -1, -1
    for i in range(depth - 1):
        if source[p, i] >= 0:
            a, b = source[p, i] if a < 0 else a, target[p, i]
    if a < 0 or tied_bytes[p] == 0:
        return 0
    longest = np.int64(0)
    for i, j in ((a, b), (b, a)):
        speed = bandwidth_bps[p, x, i, j]
        sent = LONGEST_NS if speed <= 0 else np.rint(min(tied_bytes[p] * 8 / speed * 1e9, LONGEST_NS))
        if sent >= LONGEST_NS:
            return LONGEST_NS
        step = np.int64(sent) + np.int64(np.rint(latency_s[p, x, i, j] * 1e9))
        longest = max(longest, step)
    return STEPS * longest


@njit(cache=True, nogil=True)
def _load_ends(p, first, n, depth, tail, source, target, tied_bytes, bandwidth_bps, latency_s, t, alive):  # type: ignore[no-untyped-def]
    for x in range(LANES):
        tied = 0
        if x < n:
            tied = exchange_ns(p, first + x, depth, source, target, tied_bytes, bandwidth_bps, latency_s)
        if tied >= LONGEST_NS:
            alive[x], tied = False, 0
        for i in range(depth):
            t[END, i, x] = tail[p, i] + (tied if i == 0 or i == depth - 1 else 0)


@njit(cache=True, nogil=True)
def _fold(depth, t):  # type: ignore[no-untyped-def]
    """Blocking, a stage computes, sends and waits for the arrival at a stretch: one duration, not three."""
    for i in range(depth):
        for x in range(LANES):
            t[OF, i, x] += t[TF, i, x] + t[LF, i, x]
            t[OB, i, x] += t[TB, i, x] + t[LB, i, x]


@njit(inline="always")
def _forward(i, slot, last, blocking, t, s):  # type: ignore[no-untyped-def]
    """One forward on stage i; an activation waits in slot 0 or 1 of the next stage."""
    if i == last:
        for x in range(LANES):
            s[FREE, i, x] = max(s[FREE, i, x], s[NEXT + slot, i, x]) + t[TF, i, x]
    elif blocking:
        for x in range(LANES):
            arrived = max(s[FREE, i, x], s[NEXT + slot, i, x]) + t[OF, i, x]
            s[NEXT + slot, i + 1, x] = arrived
            s[FREE, i, x] = arrived
    else:
        for x in range(LANES):
            end = max(s[FREE, i, x], s[NEXT + slot, i, x]) + t[TF, i, x]
            sent = max(end, s[DOWN, i, x]) + t[OF, i, x]
            s[DOWN, i, x] = sent
            s[NEXT + slot, i + 1, x] = sent + t[LF, i, x]
            s[FREE, i, x] = end


@njit(inline="always")
def _backward(i, blocking, t, s, gradient):  # type: ignore[no-untyped-def]
    """One backward on stage i; `gradient` is when its gradient arrived, then when the next stage's does."""
    if i == 0:
        for x in range(LANES):
            s[FREE, 0, x] = max(s[FREE, 0, x], gradient[x]) + t[TB, 0, x]
    elif blocking:
        for x in range(LANES):
            arrived = max(s[FREE, i, x], gradient[x]) + t[OB, i, x]
            gradient[x] = arrived
            s[FREE, i, x] = arrived
    else:
        for x in range(LANES):
            end = max(s[FREE, i, x], gradient[x]) + t[TB, i, x]
            sent = max(end, s[UP, i, x]) + t[OB, i, x]
            s[UP, i, x] = sent
            gradient[x] = sent + t[LB, i, x]
            s[FREE, i, x] = end


@njit(inline="always")
def _finish(i, t, s, gradient, total):  # type: ignore[no-untyped-def]
    """What the last backward of stage i and the work behind it make of the iteration's end."""
    for x in range(LANES):
        end = max(s[FREE, i, x], gradient[x]) + t[TB, i, x]
        total[x] = max(total[x], end + t[END, i, x])


@njit(cache=True, nogil=True)
def _gpipe(depth, m, blocking, t, s, total):  # type: ignore[no-untyped-def]
    gradient = np.zeros(LANES, np.int64)
    total[:] = 0
    for k in range(m):
        for i in range(depth):
            _forward(i, k & 1, depth - 1, blocking, t, s)
    for j in range(m):
        gradient[:] = 0
        for i in range(depth - 1, -1, -1):
            if j == m - 1:
                _finish(i, t, s, gradient, total)
            _backward(i, blocking, t, s, gradient)


@njit(cache=True, nogil=True)
def _steady(depth, m, blocking, t, s, saved, grown, total):  # type: ignore[no-untyped-def]
    """1F1B: stage i runs min(m, depth - 1 - i) forwards ahead, then forward and backward in turn."""
    last, ahead = depth - 1, min(m, depth - 1)
    gradient = np.zeros(LANES, np.int64)
    total[:] = 0
    for k in range(ahead):
        for i in range(min(depth, depth - 1 - k)):
            _forward(i, k & 1, last, blocking, t, s)
    full = min(m - ahead, m - 1)  # rounds in which every stage still has a forward to run; not the last one
    j, since, look = 0, -1, 1
    while j < m:
        for i in range(depth):
            k = min(m, last - i) + j
            if k < m:
                _forward(i, k & 1, last, blocking, t, s)
        gradient[:] = 0
        for i in range(last, -1, -1):
            if j == m - 1:
                _finish(i, t, s, gradient, total)
            _backward(i, blocking, t, s, gradient)
        j += 1
        if j < full:
            if since >= 0 and _repeats(depth, j, blocking, s, saved, grown):
                turns = (full - j) // (j - since)
                _skip(depth, turns * (j - since), turns, s, grown)
                j += turns * (j - since)
                since, look = -1, m
            elif j == look:
                _keep(depth, j, s, saved)
                since, look = j, 2 * j


@njit(inline="always")
def _waiting(depth, i, j):  # type: ignore[no-untyped-def]
    """Row of `s` with the activation that stage i takes in round j."""
    return NEXT + ((depth - 1 - i + j) & 1)


@njit(cache=True, nogil=True)
def _keep(depth, j, s, saved):  # type: ignore[no-untyped-def]
    for i in range(depth):
        waiting = _waiting(depth, i, j)
        for x in range(LANES):
            saved[FREE, i, x], saved[DOWN, i, x] = s[FREE, i, x], s[DOWN, i, x]
            saved[UP, i, x], saved[NEXT, i, x] = s[UP, i, x], s[waiting, i, x]


@njit(cache=True, nogil=True)
def _repeats(depth, j, blocking, s, saved, grown):  # type: ignore[no-untyped-def]
    """Whether each lane has shifted by one constant since it was saved."""
    for x in range(LANES):
        grown[x] = s[FREE, 0, x] - saved[FREE, 0, x]
    for i in range(depth):
        waiting = _waiting(depth, i, j)
        for x in range(LANES):
            if s[FREE, i, x] - saved[FREE, i, x] != grown[x]:
                return False
            if i > 0 and s[waiting, i, x] - saved[NEXT, i, x] != grown[x]:
                return False
            if not blocking and i < depth - 1 and s[DOWN, i, x] - saved[DOWN, i, x] != grown[x]:
                return False
            if not blocking and i > 0 and s[UP, i, x] - saved[UP, i, x] != grown[x]:
                return False
    return True


@njit(cache=True, nogil=True)
def _skip(depth, rounds, turns, s, grown):  # type: ignore[no-untyped-def]
    for i in range(depth):
        for x in range(LANES):
            for r in range(5):
                s[r, i, x] += turns * grown[x]
            if rounds & 1:
                s[NEXT, i, x], s[OTHER, i, x] = s[OTHER, i, x], s[NEXT, i, x]
