"""Iteration time of pipelines in integer nanoseconds: compiled recurrences over many plans at once.

Semantics of `twin.pipeline.reference_simulator`. A stage runs its operations in a fixed
order. GPipe: all forwards, then all backwards. 1F1B: `warmup[i]` forwards, then forward and backward in turn,
then the remaining backwards. An operation starts when its stage is free and its message has arrived. A
message starts when its operation ended and the direction of the link is free, occupies it for `occupancy`,
and arrives `latency` after that. Overlapped: the stage goes on at once. Blocking: it computes again only when
its message has arrived. Rendezvous: the stage goes on at once, but the message starts only when its receiver
has ended all that it does before and waits for it. T = max over stages of (end of the last backward + tail).

One pass suffices. Warm-up depths never grow along the pipeline, so in round j the forward `warmup[i] + j`
needs only forwards of this round or before (sweep downstream), and backward j only backwards of this round
(sweep upstream). Plans are lanes of the innermost loops, which therefore become vector instructions.
Standard depths allow for more (`twin.pipeline.round_recurrence`); the recurrences here are those of 1F1B with
extra warm-up.
"""

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.pipeline import fixed_order_kernel, round_recurrence
from twin.pipeline.pipeline import BLOCKING, OVERLAPPED, RENDEZVOUS, Pipeline, warmup_depths

Int = NDArray[np.int64]

DEAD = int(np.iinfo(np.int64).max)
"""Iteration time of a plan that never finishes: a used link has no bandwidth."""
LONGEST_NS = 10**14
"""A single operation longer than this (28 hours) counts as never ending; it keeps sums inside 64 bits."""
LANES = 32
"""Plans that run side by side; a power of two that compilers turn into full vector registers."""
TF, TB, OF, LF, OB, LB, TAIL = range(7)  # first axis of `t` below


@njit(inline="always")
def _forward(i, slot, last, blocking, t, free, link, arrival):  # type: ignore[no-untyped-def]
    """Run one forward on stage i; its message waits in slot `slot` of the next stage."""
    if i == last:
        for x in range(LANES):
            free[i, x] = max(free[i, x], arrival[i, slot, x]) + t[TF, i, x]
    elif blocking:
        for x in range(LANES):
            arrived = max(free[i, x], arrival[i, slot, x]) + t[OF, i, x]
            arrival[i + 1, slot, x] = arrived
            free[i, x] = arrived
    else:
        for x in range(LANES):
            end = max(free[i, x], arrival[i, slot, x]) + t[TF, i, x]
            sent = max(end, link[i, x]) + t[OF, i, x]
            link[i, x] = sent
            arrival[i + 1, slot, x] = sent + t[LF, i, x]
            free[i, x] = end


@njit(inline="always")
def _backward(i, slot, blocking, t, free, link, arrival):  # type: ignore[no-untyped-def]
    """Run one backward on stage i; `arrival[i]` holds gradients from stage i + 1."""
    if i == 0:
        for x in range(LANES):
            free[i, x] = max(free[i, x], arrival[i, slot, x]) + t[TB, i, x]
    elif blocking:
        for x in range(LANES):
            arrived = max(free[i, x], arrival[i, slot, x]) + t[OB, i, x]
            arrival[i - 1, slot, x] = arrived
            free[i, x] = arrived
    else:
        for x in range(LANES):
            end = max(free[i, x], arrival[i, slot, x]) + t[TB, i, x]
            sent = max(end, link[i, x]) + t[OB, i, x]
            link[i, x] = sent
            arrival[i - 1, slot, x] = sent + t[LB, i, x]
            free[i, x] = end


@njit(inline="always")
def _load(rows, first, n, t):  # type: ignore[no-untyped-def]
    """Fill the lanes with n plans; what stage i sends upstream is stored with stage i, not with its
    boundary."""
    for r in range(len(rows)):
        row = rows[r]
        shift = 1 if r in (OB, LB) else 0
        for i in range(row.shape[0]):
            for x in range(n):
                t[r, i + shift, x] = row[i, first + x] if row.shape[1] > 1 else row[i, 0]


@njit(inline="always")
def _receive(t):  # type: ignore[no-untyped-def]
    """Fold the messages that a stage receives into its operations; nobody waits for a send."""
    last = t.shape[1] - 1
    for i in range(last + 1):
        for x in range(LANES):
            t[TF, i, x] += t[OF, i - 1, x] + t[LF, i - 1, x] if i > 0 else 0
            t[TB, i, x] += t[OB, i + 1, x] + t[LB, i + 1, x] if i < last else 0
    t[OF : LB + 1] = 0


@njit(inline="always")
def _fold(t):  # type: ignore[no-untyped-def]
    """Fold computing, sending and latency of a stage that waits for its sends into one duration."""
    for i in range(t.shape[1]):
        for x in range(LANES):
            t[OF, i, x] += t[TF, i, x] + t[LF, i, x]
            t[OB, i, x] += t[TB, i, x] + t[LB, i, x]


@njit(cache=True, nogil=True)
def _warmed(rows, warmup, m, mode, totals):  # type: ignore[no-untyped-def]
    """1F1B with any warm-up depths: iteration times of all plans into `totals`; `rows` is (tf, tb, of, lf,
    ob, lb, tail)."""
    stages = rows[0].shape[0]
    last = stages - 1
    # A ring of `slots` messages suffices before each stage: it runs ahead of the next one by the difference
    # of their warm-up depths, and one more.
    slots = 1  # messages that wait before a stage, at most
    for i in range(last):
        slots = max(slots, warmup[i] - warmup[i + 1] + 1)
    t = np.zeros((len(rows), stages, LANES), np.int64)
    free = np.empty((stages, LANES), np.int64)
    down = np.empty((stages, LANES), np.int64)
    up = np.empty((stages, LANES), np.int64)
    activations = np.zeros((stages, slots, LANES), np.int64)
    gradients = np.zeros((stages, 1, LANES), np.int64)
    total = np.empty(LANES, np.int64)
    # A stage that waits for its sends, or whose receiver pays for them, does one thing at a time: computing
    # and sending are then one duration (`_fold`).
    held = mode != OVERLAPPED
    for first in range(0, len(totals), LANES):
        n = min(LANES, len(totals) - first)
        _load(rows, first, n, t)
        if mode == RENDEZVOUS:
            _receive(t)
        if held:
            _fold(t)
        free[:] = 0
        down[:] = 0
        up[:] = 0
        total[:] = 0
        for k in range(warmup[0]):
            for i in range(stages):
                if k < warmup[i]:
                    _forward(i, k % slots, last, held, t, free, down, activations)
        for j in range(m):
            for i in range(stages):
                k = warmup[i] + j
                if k < m:
                    _forward(i, k % slots, last, held, t, free, down, activations)
            for i in range(last, -1, -1):
                if j == m - 1:
                    for x in range(LANES):
                        end = max(free[i, x], gradients[i, 0, x]) + t[TB, i, x]
                        total[x] = max(total[x], end + t[TAIL, i, x])
                _backward(i, 0, held, t, free, up, gradients)
        for x in range(n):
            totals[first + x] = total[x]


@njit(cache=True, nogil=True)
def _standard(rows, m, gpipe, mode, totals):  # type: ignore[no-untyped-def]
    """As `_warmed`, with the standard depths, or GPipe."""
    stages, side = rows[0].shape[0], round_recurrence.LANES
    t = np.zeros((len(rows), stages * side), np.int64)
    s = np.empty((5, (stages + 1) * side), np.int64)
    saved, total = np.empty_like(s), np.empty(side, np.int64)
    for first in range(0, len(totals), side):
        for r in range(len(rows)):
            row, shift = rows[r], 1 if r in (OB, LB) else 0
            for i in range(row.shape[0]):
                column = (stages - 1 - i - shift) * side
                for x in range(side):
                    plan = min(first + x, row.shape[1] - 1)  # idle lanes repeat the last plan
                    t[r, column + x] = row[i, plan]
        for x in range(side):  # the last stage sends nothing on, the first one nothing back
            t[OF, x] = t[LF, x] = t[OB, (stages - 1) * side + x] = t[LB, (stages - 1) * side + x] = 0
            if mode == BLOCKING:
                round_recurrence.fold(stages, x, t)
            elif mode == RENDEZVOUS:
                round_recurrence.receive(stages, x, t)
        round_recurrence.run(stages, m, gpipe, mode != OVERLAPPED, t, s, saved, total)
        for x in range(min(side, len(totals) - first)):
            totals[first + x] = total[x]


def iteration_ns(pipeline: Pipeline) -> Int:
    """Iteration time (P,) of each plan of `pipeline`, nanoseconds; of schedules without recurrences here
    `twin.pipeline.fixed_order_kernel` has the kernel."""
    if pipeline.schedule not in ("gpipe", "1f1b") or pipeline.order is not None:
        return fixed_order_kernel.iteration_ns(pipeline)
    totals = np.empty(pipeline.plans, np.int64)
    one = pipeline
    rows = (one.tf, one.tb, one.of, one.lf, one.ob, one.lb, one.tail)
    contiguous = tuple(np.ascontiguousarray(row, dtype=np.int64) for row in rows)
    gpipe, depths = one.schedule == "gpipe", warmup_depths(one.stages, one.micro_batches)
    if gpipe or np.array_equal(one.warmup, depths):
        _standard(contiguous, one.micro_batches, gpipe, one.mode, totals)
    else:
        _warmed(contiguous, one.warmup, one.micro_batches, one.mode, totals)
    return totals
