"""Iteration time of pipelines in integer nanoseconds: the referee's recurrences, compiled, over many plans
at once.

Semantics (spec 3.4), identical to `twin.referee`. A stage runs its operations in a fixed order. GPipe: all
forwards, then all backwards. 1F1B: `warmup[i]` forwards, then forward and backward in turn, then the
remaining backwards. An operation starts when its stage is free and its message has arrived. A message
starts when its operation ended and the direction of the link is free, occupies it for `occupancy`, and
arrives `latency` after that. Overlapped: the stage goes on at once. Blocking: it computes again only when
its message has arrived. T = max over stages of (end of the last backward + tail).

One pass suffices. Warm-up depths never grow along the pipeline, so in round j the forward `warmup[i] + j`
needs only forwards of this round or before (sweep downstream), and backward j only backwards of this round
(sweep upstream). Plans are lanes of the innermost loops, which therefore become vector instructions.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from twin.pipeline import Pipeline

Int = NDArray[np.int64]

DEAD = int(np.iinfo(np.int64).max)
"""Iteration time of a plan that never finishes: a used link has no bandwidth."""
LONGEST_NS = 10**14
"""A single operation longer than this (28 hours) counts as never ending; it keeps sums inside 64 bits."""
LANES = 32


@njit(cache=True, nogil=True)
def _forward(i, slot, n, last, blocking, tf, of, lf, free, link, arrival):  # type: ignore[no-untyped-def]
    """Run one forward on stage i in n lanes; its message waits in slot `slot` of the next stage."""
    if i == last:
        for x in range(n):
            free[i, x] = max(free[i, x], arrival[i, slot, x]) + tf[i, x]
    elif blocking:
        for x in range(n):
            arrived = max(free[i, x], arrival[i, slot, x]) + tf[i, x] + of[i, x] + lf[i, x]
            arrival[i + 1, slot, x] = arrived
            free[i, x] = arrived
    else:
        for x in range(n):
            end = max(free[i, x], arrival[i, slot, x]) + tf[i, x]
            link[i, x] = max(end, link[i, x]) + of[i, x]
            arrival[i + 1, slot, x] = link[i, x] + lf[i, x]
            free[i, x] = end


@njit(cache=True, nogil=True)
def _backward(i, slot, n, blocking, tb, ob, lb, free, link, arrival):  # type: ignore[no-untyped-def]
    """Run one backward on stage i in n lanes; `arrival[i]` holds gradients from stage i + 1."""
    if i == 0:
        for x in range(n):
            free[i, x] = max(free[i, x], arrival[i, slot, x]) + tb[i, x]
    elif blocking:
        for x in range(n):
            arrived = max(free[i, x], arrival[i, slot, x]) + tb[i, x] + ob[i - 1, x] + lb[i - 1, x]
            arrival[i - 1, slot, x] = arrived
            free[i, x] = arrived
    else:
        for x in range(n):
            end = max(free[i, x], arrival[i, slot, x]) + tb[i, x]
            link[i, x] = max(end, link[i, x]) + ob[i - 1, x]
            arrival[i - 1, slot, x] = link[i, x] + lb[i - 1, x]
            free[i, x] = end


@njit(cache=True, nogil=True)
def _finish(i, slot, n, tb, tail, free, arrival, total):  # type: ignore[no-untyped-def]
    """Before the last backward of stage i: the time at which it and what follows it will have ended."""
    for x in range(n):
        total[x] = max(total[x], max(free[i, x], arrival[i, slot, x]) + tb[i, x] + tail[i, x])


@njit(cache=True, nogil=True)
def _copy(source, first, n, lanes):  # type: ignore[no-untyped-def]
    """Columns first .. first + n of `source`, or its only column for all."""
    for i in range(source.shape[0]):
        for x in range(n):
            lanes[i, x] = source[i, first + x] if source.shape[1] > 1 else source[i, 0]


@njit(cache=True, nogil=True)
def _run(rows, warmup, m, gpipe, blocking, width, totals):  # type: ignore[no-untyped-def]
    """All plans, `width` at a time; `rows` is (tf, tb, of, lf, ob, lb, tail)."""
    stages = rows[0].shape[0]
    last = stages - 1
    slots = m if gpipe else warmup[0] + 1  # no stage ever has more messages waiting
    lanes = np.empty((len(rows), stages, width), np.int64)
    tf, tb, of, lf, ob, lb, tail = lanes[0], lanes[1], lanes[2], lanes[3], lanes[4], lanes[5], lanes[6]
    clocks = np.empty((3, stages, width), np.int64)
    free, down, up = clocks[0], clocks[1], clocks[2]
    activations = np.zeros((stages, slots, width), np.int64)
    gradients = np.zeros((stages, slots, width), np.int64)
    total = np.empty(width, np.int64)
    for first in range(0, len(totals), width):
        n = min(width, len(totals) - first)
        for r in range(len(rows)):
            _copy(rows[r], first, n, lanes[r])
        clocks[:] = 0
        total[:] = 0
        for i in range(stages):
            for k in range(m if gpipe else warmup[i]):
                _forward(i, k % slots, n, last, blocking, tf, of, lf, free, down, activations)
        for j in range(m):
            for i in range(stages):
                k = warmup[i] + j
                if k < m and not gpipe:
                    _forward(i, k % slots, n, last, blocking, tf, of, lf, free, down, activations)
            for i in range(last, -1, -1):
                if j == m - 1:
                    _finish(i, j % slots, n, tb, tail, free, gradients, total)
                _backward(i, j % slots, n, blocking, tb, ob, lb, free, up, gradients)
        totals[first : first + n] = total[:n]


def iteration_ns(pipeline: Pipeline) -> Int:
    """Iteration time (P,) of each plan of `pipeline`, nanoseconds."""
    totals = np.empty(pipeline.plans, np.int64)
    one = pipeline
    rows = (one.tf, one.tb, one.of, one.lf, one.ob, one.lb, one.tail)
    contiguous = tuple(np.ascontiguousarray(row, dtype=np.int64) for row in rows)
    width, gpipe = min(LANES, one.plans), one.schedule == "gpipe"
    _run(contiguous, one.warmup, one.micro_batches, gpipe, one.blocking, width, totals)
    return totals
