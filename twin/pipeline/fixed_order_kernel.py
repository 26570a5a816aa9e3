"""Iteration time of pipelines whose stages run any given order of operations: the kernel of the schedules
that `twin.pipeline.kernel` has no recurrences for.

Semantics of `twin.pipeline.reference_simulator`: an operation starts when its stage is
free and its message has arrived; what it sends queues for its direction of the link, in the order in which
operations ended, at the same instant in the order of their stages. Operations are executed as they end, so
that order is the order of execution. Under rendezvous a message queues when both its sender and its receiver
have ended what they do before, which is the end of an operation, too. One plan after the other; cost per
operation grows with S.
"""

from typing import Any

import numpy as np

from ingest.core.compiled import njit
from twin.pipeline import operation_order
from twin.pipeline.crosspipe_schedule import one_plan, place, placed_by
from twin.pipeline.pipeline import BLOCKING, RENDEZVOUS, Durations, Int, Pipeline, Rules

NEVER = int(np.iinfo(np.int64).max)
"""End of an operation whose message has not been sent yet."""


@njit(cache=True, nogil=True)
def _run(ops: Any, durations: Durations, forward: Any, gradient: Any, rules: Rules) -> int:
    """Iteration time of one pipeline in which stage i runs `ops[i]` (n,); -1: the order waits for itself.

    `forward` and `gradient` (v S, m): durations of each micro-batch.
    """
    tw, boundaries = durations.weight, durations.boundaries
    m, chunks = rules.micro_batches, rules.chunks
    stages, count = ops.shape
    parts = stages * chunks
    free = np.zeros(stages, np.int64)
    position = np.zeros(stages, np.int64)
    ends = np.full(stages, NEVER, np.int64)
    wire = np.zeros((2, boundaries.shape[1]), np.int64)
    arrival = np.full((2, parts, m), NEVER, np.int64)  # activations, gradients; under rendezvous when sent
    arrival[0, 0] = 0
    arrival[1, parts - 1] = 0
    total = 0
    last = -1  # the stage that ran, and the one that it sent to, may start something else now
    other = -1
    for step in range(stages * count + 1):
        for i in range(stages):
            if (step == 0 or i in (last, other)) and position[i] < count and ends[i] == NEVER:
                kind, which = ops[i, position[i]] // (chunks * m), ops[i, position[i]] % (chunks * m)
                v = which // m * stages + i
                n = _place_on_way(v, stages, rules.turns)
                available = free[i] if kind == 2 else arrival[kind, n, which % m]
                if available == NEVER:
                    continue
                start = max(free[i], available)
                if rules.mode == RENDEZVOUS and kind < 2 and n != (0 if kind == 0 else parts - 1):
                    start = _carry(
                        start, kind, n - 1 if kind == 0 else n + 1, wire, boundaries, stages, rules
                    )
                k = which % m
                ends[i] = start + (forward[v, k] if kind == 0 else gradient[v, k] if kind == 1 else tw[v])
        if step == stages * count:
            break
        i = int(np.argmin(ends))
        end = ends[i]
        if end == NEVER:
            return -1
        kind, which = ops[i, position[i]] // (chunks * m), ops[i, position[i]] % (chunks * m)
        n = _place_on_way(which // m * stages + i, stages, rules.turns)
        free[i], ends[i], last, other = end, NEVER, i, -1
        position[i] += 1
        if position[i] == count:
            total = max(total, end + durations.tail[i])
        if kind == 2 or n == (parts - 1 if kind == 0 else 0):
            continue
        target = n + 1 if kind == 0 else n - 1
        arrived = end
        if rules.mode != RENDEZVOUS:
            arrived = _carry(end, kind, n, wire, boundaries, stages, rules)
        arrival[kind, target, which % m] = arrived
        other = _stage_on_way(target, stages, rules.turns)
        if rules.mode == BLOCKING:
            free[i] = arrived
    return int(total)


@njit(inner=True, cache=True, nogil=True)
def _place_on_way(part: int, stages: int, turns: bool) -> int:
    """How many parts a micro-batch passes before this one."""
    return 3 * stages - 1 - part if turns and part >= stages else part


@njit(inner=True, cache=True, nogil=True)
def _stage_on_way(n: int, stages: int, turns: bool) -> int:
    """Stage of the n-th part on the way."""
    return min(n, 2 * stages - 1 - n) if turns else n % stages


@njit(inner=True, cache=True, nogil=True)
def _carry(ready: int, kind: int, n: int, wire: Any, boundaries: Any, stages: int, rules: Rules) -> int:
    """Arrival of what the n-th part on the way sends on, or back if a gradient; `ready` to go at once."""
    way, wrap = kind, boundaries.shape[1] - 1
    boundary = n % stages if kind == 0 else (n - 1) % stages
    if rules.turns:
        source = _stage_on_way(n, stages, True)
        target = _stage_on_way(n + 1 if kind == 0 else n - 1, stages, True)
        if source == target:
            return ready
        way, boundary = 0 if target > source else 1, min(source, target)
    row, line = 2 * way, boundary
    if boundary == wrap and rules.shared >= 0:
        way, line = 1 - kind, rules.shared
    wire[way, line] = max(ready, wire[way, line]) + boundaries[row, boundary]
    return int(wire[way, line] + boundaries[row + 1, boundary])


@njit(cache=True, nogil=True)
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
    if pipeline.order is None and pipeline.schedule == "crosspipe":
        one, ops = placed_by(pipeline), np.empty((0, 0), np.int64)
    else:
        one, ops = pipeline, np.ascontiguousarray(operation_order.of(pipeline))
    _run_all(ops, one.durations, one.rules, totals)
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
