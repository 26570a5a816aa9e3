"""The recurrences of GPipe and standard 1F1B, compiled: pipelines of one length side by side, round by round.

`twin.pipeline.kernel` states the semantics. In standard 1F1B exactly one activation waits before each stage
when a round begins, so that all forwards of a round are independent of each other: one sweep over contiguous
memory, lanes and stages alike. Backwards are a chain over the stages, with the lanes side by side.

A steady pipeline repeats itself. Once all that one round hands to the next has shifted by one constant within
the last c rounds, so will it within every c rounds that follow (the recurrences commute with adding a
constant), and those are skipped. Times are integers, so nothing is lost by it.

`np.int64(0)` stands where 0 would do: a literal is a type of its own, for which numba compiles once more.
"""

import numpy as np

from ingest.core.compiled import njit

LANES = 8
"""Pipelines that run side by side: 64-bit integers in a vector register of 512 bits."""
TF, TB, OF, LF, OB, LB, TAIL = range(7)
"""First axis of `t` (7, S * LANES): durations of a stage, of the boundary behind it, of the one before it,
and what follows the last backward. The last stage comes first; the lanes of a stage stand together."""
FREE, WAIT, DOWN, UP, BACK = range(5)
"""First axis of `s` (5, (S + 1) * LANES): when a stage is free, when what it sent downstream arrives, when
its links are free, and when what it sent upstream arrives."""


@njit(inner=True, cache=True, nogil=True)
def fold(depth, lane, t):  # type: ignore[no-untyped-def]
    """Fold computing, sending and latency of a blocking stage into one duration."""
    for f in range(lane, depth * LANES, LANES):
        # The iteration ends with the last backward, not when its gradient has been sent. `FREE` of a folded
        # stage includes the send, so the tail gives it back.
        t[TAIL, f] -= t[OB, f] + t[LB, f]
        t[OF, f] += t[TF, f] + t[LF, f]
        t[OB, f] += t[TB, f] + t[LB, f]


@njit(inner=True, cache=True, nogil=True)
def receive(depth, lane, t):  # type: ignore[no-untyped-def]
    """Fold computing and receiving of a stage under rendezvous into one duration.

    A message then starts when its sender has it and its receiver waits for it, so that it is a part of the
    operation that it is for: the same recurrences as those of blocking stages, whose messages are parts of
    the operations that send them.
    """
    first = (depth - 1) * LANES + lane
    for f in range(lane, first, LANES):
        t[OF, f] = t[TF, f] + t[OF, f + LANES] + t[LF, f + LANES]
    t[OF, first] = t[TF, first]
    for f in range(first, lane, -LANES):
        t[OB, f] = t[TB, f] + t[OB, f - LANES] + t[LB, f - LANES]
    t[OB, lane] = t[TB, lane]


@njit(cache=True, nogil=True)
def run(depth, m, gpipe, folded, t, s, saved, total):  # type: ignore[no-untyped-def]
    """Iteration times (LANES,) of pipelines of `depth` stages with `m` micro-batches into `total`.

    `t` as above; `folded`: by `fold` or `receive`, so that stages do one thing at a time. `s` and `saved`, of
    one shape, need not be cleared.
    """
    size = depth * LANES
    s[:, : size + LANES] = 0
    if folded:
        _folded(depth, m, gpipe, t, s, saved)
    else:
        _overlapped(depth, m, gpipe, t, s, saved)
    total[:] = 0
    for f in range(size):
        total[f % LANES] = max(total[f % LANES], s[FREE, f] + t[TAIL, f])


@njit(inner=True, cache=True, nogil=True)
def _folded(depth, m, gpipe, t, s, saved):  # type: ignore[no-untyped-def]
    of, ob, free, wait = t[OF], t[OB], s[FREE], s[WAIT]
    size, ahead = depth * LANES, m if gpipe else min(m, depth - 1)
    for k in range(ahead):  # one micro-batch after the other, from stage to stage
        for i in range(depth - 1, -1 if gpipe else k, -1):
            for f in range(i * LANES, (i + 1) * LANES):
                wait[f] = max(free[f], wait[f + LANES]) + of[f]
                free[f] = wait[f]
    full = 0 if gpipe else min(m - ahead, m - 1)  # rounds in which every stage still has a forward to run
    j, since, look = np.int64(0), np.int64(-1), np.int64(1)
    while j < m:
        going = 0 if gpipe else min(depth, m - j) * LANES
        for f in range(going):
            wait[f] = max(free[f], wait[f + LANES]) + of[f]
        if going == 0:
            for x in range(LANES):
                free[x] += ob[x]
        else:
            for x in range(LANES):
                free[x] = wait[x] + ob[x]
            for f in range(LANES, going):
                free[f] = max(wait[f], free[f - LANES]) + ob[f]
        # Stages nearer to the first have run all their forwards: only backwards remain.
        for f in range(max(going, LANES), size):
            free[f] = max(free[f], free[f - LANES]) + ob[f]
        j += 1
        if j < full:
            since, look, j = _steady(j, since, look, full, np.int64(2), size, s, saved)


@njit(inner=True, cache=True, nogil=True)
def _overlapped(depth, m, gpipe, t, s, saved):  # type: ignore[no-untyped-def]
    free, wait, down, up, back = s[FREE], s[WAIT], s[DOWN], s[UP], s[BACK]
    tf, tb, of, lf, ob, lb = t[TF], t[TB], t[OF], t[LF], t[OB], t[LB]
    size, ahead = depth * LANES, m if gpipe else min(m, depth - 1)
    for k in range(ahead):
        for i in range(depth - 1, -1 if gpipe else k, -1):
            for f in range(i * LANES, (i + 1) * LANES):
                free[f] = max(free[f], wait[f + LANES]) + tf[f]
                down[f] = max(free[f], down[f]) + of[f]
                wait[f] = down[f] + lf[f]
    full = 0 if gpipe else min(m - ahead, m - 1)
    j, since, look = np.int64(0), np.int64(-1), np.int64(1)
    while j < m:
        for f in range(0 if gpipe else min(depth, m - j) * LANES):
            end = max(free[f], wait[f + LANES]) + tf[f]
            sent = max(end, down[f]) + of[f]
            free[f] = end
            down[f] = sent
            wait[f] = sent + lf[f]
        for x in range(LANES):
            free[x] += tb[x]
            up[x] = max(free[x], up[x]) + ob[x]
            back[x] = up[x] + lb[x]
        for f in range(LANES, size):
            end = max(free[f], back[f - LANES]) + tb[f]
            sent = max(end, up[f]) + ob[f]
            free[f] = end
            up[f] = sent
            back[f] = sent + lb[f]
        j += 1
        if j < full:
            since, look, j = _steady(j, since, look, full, np.int64(4), size, s, saved)


@njit(inner=True, cache=True, nogil=True)
def _steady(j, since, look, full, rows, size, s, saved):  # type: ignore[no-untyped-def]
    """Skip repeating rounds. Returns the round that is saved, the next one to save, and the present round."""
    # Brent's cycle detection: the state is saved at rounds 1, 2, 4, ..., and each later round is compared
    # with it. A period of c rounds is found at the latest when the saved round is at least c.
    if since >= 0 and _repeats(rows, size, s, saved):
        turns = (full - j) // (j - since)
        for r in range(rows):
            for f in range(size):
                s[r, f] += turns * (s[r, f] - saved[r, f])
        return -1, full, j + turns * (j - since)
    if j == look:
        saved[:rows, :size] = s[:rows, :size]
        return j, 2 * j, j
    return since, look, j


@njit(inner=True, cache=True, nogil=True)
def _repeats(rows, size, s, saved):  # type: ignore[no-untyped-def]
    """True where each lane has shifted by one constant since it was saved."""
    lead, before = s[FREE], saved[FREE]
    for r in range(rows):
        now, then = s[r], saved[r]
        for first in range(0, size, LANES):
            differs = 0
            for lane in range(LANES):
                # Lanes are compared without a branch, so that the loop over them can become vector
                # instructions.
                differs |= (now[first + lane] - then[first + lane]) ^ (lead[lane] - before[lane])
            if differs:
                return False
    return True
