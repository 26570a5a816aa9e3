"""Iteration time of pipelines whose stages run any given order of operations: the kernel of the schedules
that `twin.pipeline.kernel` has no recurrences for.

Semantics of `twin.pipeline.reference_simulator`: an operation starts when its stage is
free and its message has arrived; what it sends queues for its direction of the link, in the order in which
operations ended, at the same instant in the order of their stages. Operations are executed as they end, so
that order is the order of execution. One plan after the other; cost per operation grows with S.
"""

from typing import Any

import numpy as np

from ingest.core.compiled import njit
from twin.pipeline import operation_order
from twin.pipeline.crosspipe_schedule import one_plan, place
from twin.pipeline.pipeline import Durations, Int, Pipeline, Rules

NEVER = int(np.iinfo(np.int64).max)
"""End of an operation whose message has not been sent yet."""


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _run(ops: Any, durations: Durations, forward: Any, gradient: Any, rules: Rules) -> int:
    """Iteration time of one pipeline in which stage i runs `ops[i]` (n,); -1: the order waits for itself.

    `forward` and `gradient` (v S, m): durations of each micro-batch.
    """
    tw, boundaries = durations.weight, durations.boundaries
    m, chunks, shared = rules.micro_batches, rules.chunks, rules.shared
    stages, count = ops.shape
    virtual, wrap = stages * chunks, boundaries.shape[1] - 1
    free = np.zeros(stages, np.int64)
    position = np.zeros(stages, np.int64)
    ends = np.full(stages, NEVER, np.int64)
    wire = np.zeros((2, boundaries.shape[1]), np.int64)
    arrival = np.full((2, virtual, m), NEVER, np.int64)  # activations, gradients
    arrival[0, 0] = 0
    arrival[1, virtual - 1] = 0
    total = 0
    last = -1  # the stage that ran, and the one that it sent to, may start something else now
    other = -1
    for step in range(stages * count + 1):
        for i in range(stages):
            if (step == 0 or i in (last, other)) and position[i] < count:
                kind, which = ops[i, position[i]] // (chunks * m), ops[i, position[i]] % (chunks * m)
                v = which // m * stages + i
                available = free[i] if kind == 2 else arrival[kind, v, which % m]
                k = which % m
                duration = forward[v, k] if kind == 0 else gradient[v, k] if kind == 1 else tw[v]
                ends[i] = NEVER if available == NEVER else max(free[i], available) + duration
        if step == stages * count:
            break
        i = int(np.argmin(ends))
        end = ends[i]
        if end == NEVER:
            return -1
        kind, which = ops[i, position[i]] // (chunks * m), ops[i, position[i]] % (chunks * m)
        v = which // m * stages + i
        free[i], ends[i], last, other = end, NEVER, i, -1
        position[i] += 1
        if position[i] == count:
            total = max(total, end + durations.tail[i])
        if kind == 2 or v == (virtual - 1 if kind == 0 else 0):
            continue
        boundary = i if kind == 0 else (i - 1 if i > 0 else wrap)
        way, line = kind, boundary
        if boundary == wrap and shared >= 0:
            way, line = 1 - kind, shared
        wire[way, line] = max(end, wire[way, line]) + boundaries[2 * kind, boundary]
        target = v + 1 if kind == 0 else v - 1
        arrived = wire[way, line] + boundaries[2 * kind + 1, boundary]
        arrival[kind, target, which % m] = arrived
        other = target % stages
        if rules.blocking:
            free[i] = arrived
    return int(total)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _run_all(ops: Any, durations: Durations, rules: Rules, totals: Any) -> None:
    """Iteration times of all plans into `totals` (P,); without operations every plan gets the order that
    CrossPipe makes for it."""
    m = rules.micro_batches
    for p in range(len(totals)):
        plan = one_plan(durations, p)
        forward, gradient = np.repeat(plan.forward, m), np.repeat(plan.gradient, m)
        each = forward.reshape(-1, m), gradient.reshape(-1, m)
        totals[p] = _run(ops if ops.size else place(plan, rules), plan, each[0], each[1], rules)


def iteration_ns(pipeline: Pipeline) -> Int:
    """Iteration time (P,) of each plan of `pipeline`, nanoseconds."""
    totals = np.empty(pipeline.plans, np.int64)
    order_by_plan = pipeline.order is None and pipeline.schedule == "crosspipe"
    ops = np.empty((0, 0), np.int64) if order_by_plan else np.ascontiguousarray(operation_order.of(pipeline))
    _run_all(ops, pipeline.durations, pipeline.rules, totals)
    assert np.all(totals >= 0), "the order waits for itself"
    return totals


def unequal_ns(pipeline: Pipeline, forward: Int, backward: Int) -> int:
    """Iteration time of one pipeline whose micro-batches take `forward` and `backward` (v S, m) nanoseconds,
    in place of `tf` and `tb`; the order of operations is that of equal ones."""
    assert pipeline.tw is None, "weight gradients have one duration"
    durations = one_plan(pipeline.durations, 0)
    ops = np.ascontiguousarray(operation_order.of(pipeline))
    total = _run(ops, durations, *map(np.ascontiguousarray, (forward, backward)), pipeline.rules)
    assert total >= 0, "the order waits for itself"
    return int(total)
