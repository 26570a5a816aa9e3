"""CrossPipe's greedy schedule: an order of operations made for given latencies.

After CrossPipe (USENIX ATC 2025; CrossUD: one block per micro-batch). The backward is two blocks: the input
gradient D, which the stage before waits for, and the weight gradient W, which no stage waits for. Blocks
are placed one by one in the order of their start: the stage that can start earliest starts one of its ready
blocks. Warming up that is a forward F; in the steady part F and D in turn; when all forwards are done, D. W
fills what would be idle: it is taken when nothing else is ready, or when F and D are held up because the
stage stores all the activations that its budget allows. An activation counts from its F to the end of its
W. The budget is the most that any stage of 1F1B stores, min(m, S) micro-batches, deeper by the plan's extra
warm-up; a GPU has the same memory at every stage.
"""

from typing import Any

import numpy as np

from ingest.core.compiled import njit
from twin.pipeline.pipeline import BLOCKING, Durations, Int, Pipeline, Rules

NEVER = int(np.iinfo(np.int64).max)
"""Start of an operation that cannot start yet."""


def order(pipeline: Pipeline, plan: int = 0) -> Int:
    """Operations (S, 3 m) of every stage of plan `plan`, as `twin.pipeline.operation_order` codes them."""
    assert pipeline.tw is not None and pipeline.chunks == 1, "weight gradients are blocks of their own"
    one = placed_by(pipeline)
    made: Int = place(one_plan(one.durations, plan), one.rules)
    return made


def placed_by(pipeline: Pipeline) -> Pipeline:
    """The durations that blocks are placed by: under rendezvous a block begins with the message it is for."""
    return pipeline.received() if pipeline.p2p == "rendezvous" else pipeline


@njit(cache=True, nogil=True)
def one_plan(all_plans: Durations, p: int) -> Durations:
    """The durations of plan `p`, contiguous."""
    return Durations(
        all_plans.forward[:, p].copy(),
        all_plans.gradient[:, p].copy(),
        all_plans.weight[:, p].copy(),
        all_plans.boundaries[:, :, p].copy(),
        all_plans.tail[:, p].copy(),
    )


@njit(cache=True, nogil=True)
def place(durations: Durations, rules: Rules) -> Any:
    """Operations (S, 3 m) of one pipeline without chunks, every block placed greedily."""
    tf, td, tw, boundaries = durations.forward, durations.gradient, durations.weight, durations.boundaries
    m, stages = rules.micro_batches, len(tf)
    made = np.empty((stages, 3 * m), np.int64)
    done = np.zeros((stages, 3), np.int64)  # forwards, input gradients, weight gradients
    placed = np.zeros(stages, np.int64)
    free = np.zeros(stages, np.int64)
    turn = np.zeros(stages, np.int64)  # 1: an input gradient comes next where both are ready
    down = np.zeros(stages, np.int64)
    up = np.zeros(stages, np.int64)
    arrival = np.full((stages, 2, m), NEVER, np.int64)
    arrival[0, 0] = 0
    arrival[stages - 1, 1] = 0
    for _ in range(3 * m * stages):
        best = NEVER
        stage = kind = -1
        for i in range(stages):
            f, d, w = done[i, 0], done[i, 1], done[i, 2]
            forward = max(free[i], arrival[i, 0, f]) if f < m and f - w < rules.budget else NEVER
            gradient = max(free[i], arrival[i, 1, d]) if d < f else NEVER
            earliest = min(forward, gradient, free[i] if w < d else NEVER)
            if earliest >= best:
                continue
            best, stage = earliest, i
            if forward == earliest and gradient == earliest:
                kind = turn[i]
            else:
                kind = 0 if forward == earliest else 1 if gradient == earliest else 2
        assert stage >= 0
        k = done[stage, kind]
        made[stage, placed[stage]] = kind * m + k
        placed[stage] += 1
        done[stage, kind] += 1
        if kind < 2:
            turn[stage] = 1 - kind
        end = best + (tf[stage] if kind == 0 else td[stage] if kind == 1 else tw[stage])
        free[stage] = end
        if kind == 0 and stage < stages - 1:
            down[stage] = max(end, down[stage]) + boundaries[0, stage]
            arrived = down[stage] + boundaries[1, stage]
            arrival[stage + 1, 0, k] = arrived
            if rules.mode == BLOCKING:
                free[stage] = arrived
        elif kind == 1 and stage > 0:
            up[stage] = max(end, up[stage]) + boundaries[2, stage - 1]
            arrived = up[stage] + boundaries[3, stage - 1]
            arrival[stage - 1, 1, k] = arrived
            if rules.mode == BLOCKING:
                free[stage] = arrived
    return made
