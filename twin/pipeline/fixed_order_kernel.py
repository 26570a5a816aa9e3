"""Iteration time of a pipeline whose stages run any given order of operations: the kernel of the schedules
that `twin.kernel` has no recurrences for.

Semantics (spec 3.4), identical to `twin.referee`: an operation starts when its stage is free and its message
has arrived; what it sends queues for its direction of the link, in the order in which operations ended, at
the same instant in the order of their stages. Operations are executed as they end, so that order is the
order of execution. One plan after the other; cost per operation grows with S.
"""

from typing import Any

import numpy as np
from numba import njit

from twin.pipeline import crosspipe_schedule as crosspipe, operation_order as orders
from twin.pipeline.crosspipe_schedule import place
from twin.pipeline.pipeline import Int, Pipeline

NEVER = int(np.iinfo(np.int64).max)
"""When an operation ends whose message has not been sent yet."""


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _run(
    ops: Any, tf: Any, td: Any, tw: Any, joints: Any, tail: Any, m: int, chunks: int, shared: int,
    blocking: bool,
) -> int:  # fmt: skip
    """Iteration time of a plan; `joints` is (of, lf, ob, lb) by boundary. -1: the order waits for itself."""
    stages, count = ops.shape
    virtual, wrap = stages * chunks, joints.shape[1] - 1
    free = np.zeros(stages, np.int64)
    at = np.zeros(stages, np.int64)
    ends = np.full(stages, NEVER, np.int64)
    wire = np.zeros((2, joints.shape[1]), np.int64)
    arrival = np.full((2, virtual, m), NEVER, np.int64)  # activations, gradients
    arrival[0, 0] = 0
    arrival[1, virtual - 1] = 0
    total = 0
    last = -1  # the stage that ran, and the one that it sent to, may start something else now
    other = -1
    for step in range(stages * count + 1):
        for i in range(stages):
            if (step == 0 or i in (last, other)) and at[i] < count:
                kind, which = ops[i, at[i]] // (chunks * m), ops[i, at[i]] % (chunks * m)
                v = which // m * stages + i
                came = free[i] if kind == 2 else arrival[kind, v, which % m]
                lasts = tf[v] if kind == 0 else td[v] if kind == 1 else tw[v]
                ends[i] = NEVER if came == NEVER else max(free[i], came) + lasts
        if step == stages * count:
            break
        i = int(np.argmin(ends))
        end = ends[i]
        if end == NEVER:
            return -1
        kind, which = ops[i, at[i]] // (chunks * m), ops[i, at[i]] % (chunks * m)
        v = which // m * stages + i
        free[i], ends[i], last, other = end, NEVER, i, -1
        at[i] += 1
        if at[i] == count:
            total = max(total, end + tail[i])
        if kind == 2 or v == (virtual - 1 if kind == 0 else 0):
            continue
        joint = i if kind == 0 else (i - 1 if i > 0 else wrap)
        way, line = kind, joint
        if joint == wrap and shared >= 0:
            way, line = 1 - kind, shared
        wire[way, line] = max(end, wire[way, line]) + joints[2 * kind, joint]
        target = v + 1 if kind == 0 else v - 1
        arrived = wire[way, line] + joints[2 * kind + 1, joint]
        arrival[kind, target, which % m] = arrived
        other = target % stages
        if blocking:
            free[i] = arrived
    return int(total)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _run_all(
    ops: Any, tf: Any, td: Any, tw: Any, joints: Any, tail: Any, m: int, chunks: int, shared: int,
    blocking: bool, most: int, totals: Any,
) -> None:  # fmt: skip
    """Iteration times of all plans into `totals`; the last axis of the rows is the plan, no operations:
    every plan gets the order that CrossPipe makes for it."""
    for p in range(len(totals)):
        f, d, w = tf[:, p].copy(), td[:, p].copy(), tw[:, p].copy()
        between = joints[:, :, p].copy()
        order = ops if ops.size else place(f, d, w, between, m, most, blocking)
        totals[p] = _run(order, f, d, w, between, tail[:, p].copy(), m, chunks, shared, blocking)


def iteration_ns(pipeline: Pipeline) -> Int:
    """Iteration time (P,) of each plan of `pipeline`, nanoseconds."""
    one, totals = pipeline, np.empty(pipeline.plans, np.int64)
    made_for_each = one.order is None and one.schedule == "crosspipe"
    ops = np.empty((0, 0), np.int64) if made_for_each else np.ascontiguousarray(orders.of(one))
    weight = np.zeros_like(one.tf) if one.tw is None else one.tw
    rows = [np.ascontiguousarray(row) for row in (one.tf, one.tb - weight, weight)]
    joints = np.empty((4, len(one.of), one.plans), np.int64)
    for n, row in enumerate((one.of, one.lf, one.ob, one.lb)):
        joints[n] = row
    _run_all(
        ops, *rows, joints, np.ascontiguousarray(one.tail), one.micro_batches, one.chunks, one.shared,
        one.blocking, crosspipe.budget(one), totals,
    )  # fmt: skip
    assert np.all(totals >= 0), "the order waits for itself"
    return totals
