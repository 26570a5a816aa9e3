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

from twin import orders
from twin.pipeline import Int, Pipeline

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


def iteration_ns(pipeline: Pipeline) -> Int:
    """Iteration time (P,) of each plan of `pipeline`, nanoseconds."""
    totals = np.empty(pipeline.plans, np.int64)
    fixed = None if pipeline.order is None and pipeline.schedule == "crosspipe" else orders.of(pipeline)
    for plan in range(pipeline.plans):
        one = pipeline.column(plan)
        ops = orders.of(one) if fixed is None else fixed
        weight = np.zeros_like(one.tf) if one.tw is None else one.tw
        rows = [np.ascontiguousarray(row[:, 0]) for row in (one.tf, one.tb - weight, weight)]
        joints = np.stack([row[:, 0] for row in (one.of, one.lf, one.ob, one.lb)])
        tail = np.ascontiguousarray(one.tail[:, 0])
        totals[plan] = _run(
            ops, *rows, joints, tail, one.micro_batches, one.chunks, one.shared, one.blocking
        )  # fmt: skip
        assert totals[plan] >= 0, "the order waits for itself"
    return totals
