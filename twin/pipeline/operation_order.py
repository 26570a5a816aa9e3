"""The order in which every stage runs its operations, for each schedule.

An operation is (kind, chunk, micro-batch), coded as one integer: kind * v m + chunk * m + micro-batch, with v
chunks a stage and m micro-batches. Kernel and reference simulator execute this order; a schedule is nothing
else. Where the weight gradient is an operation of its own, `BACKWARD` is the input gradient alone.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from twin.core.schedules import ZERO_BUBBLE
from twin.pipeline import crosspipe_schedule, zero_bubble_order
from twin.pipeline.pipeline import Int, Pipeline
from twin.pipeline.zero_bubble_order import BACKWARD, FORWARD, WEIGHT, Operation

__all__ = ["BACKWARD", "FORWARD", "KINDS", "WEIGHT", "Operation", "of", "operations"]

KINDS = ("forward", "backward", "weight")
"""Names of the kinds."""


def of(pipeline: Pipeline, plan: int = 0) -> Int:
    """Operations (S, n) of every stage of plan `plan`, coded."""
    if pipeline.order is not None:
        return pipeline.order
    if pipeline.schedule == "crosspipe":
        return crosspipe_schedule.order(pipeline, plan)
    return np.array([_encoded(pipeline, _stage(pipeline, i)) for i in range(pipeline.stages)], np.int64)


def operations(pipeline: Pipeline, plan: int = 0) -> list[list[Operation]]:
    """Operations of every stage of plan `plan`."""
    m, v = pipeline.micro_batches, pipeline.chunks
    return [
        [(code // (v * m), code // m % v, code % m) for code in row] for row in of(pipeline, plan).tolist()
    ]


def _encoded(pipeline: Pipeline, run: Iterable[Operation]) -> list[int]:
    m, v = pipeline.micro_batches, pipeline.chunks
    return [(kind * v + chunk) * m + k for kind, chunk, k in run]


def _stage(pipeline: Pipeline, stage: int) -> Iterable[Operation]:
    m = pipeline.micro_batches
    if pipeline.schedule in ZERO_BUBBLE:
        return zero_bubble_order.order(pipeline.schedule, pipeline.stages, m, stage)
    if pipeline.schedule == "interleaved":
        forwards = list(_round_robin(pipeline.stages, pipeline.chunks, m))
        warmup = interleaved_warmup(pipeline.stages, pipeline.chunks, m, stage)
    else:
        forwards = [(0, k) for k in range(m)]
        warmup = m if pipeline.schedule == "gpipe" else int(pipeline.warmup[stage])
    return _in_turn(forwards, warmup, pipeline.chunks)


def _in_turn(forwards: list[tuple[int, int]], warmup: int, chunks: int) -> Iterator[Operation]:
    """`warmup` forwards, then forward and backward in turn, then the remaining backwards, which meet the
    chunks in the opposite order."""
    yield from ((FORWARD, *which) for which in forwards[:warmup])
    for j, (chunk, k) in enumerate(forwards):
        if warmup + j < len(forwards):
            yield (FORWARD, *forwards[warmup + j])
        yield (BACKWARD, chunks - 1 - chunk, k)


def _round_robin(stages: int, chunks: int, micro_batches: int) -> Iterator[tuple[int, int]]:
    """(chunk, micro-batch) in the order of forwards: S micro-batches through one chunk, the same through the
    next, then the next S (Narayanan et al., SC 2021, section 2.2)."""
    for group in range(0, micro_batches, stages):
        for chunk in range(chunks):
            yield from ((chunk, k) for k in range(group, min(group + stages, micro_batches)))


def interleaved_warmup(stages: int, chunks: int, micro_batches: int, stage: int) -> int:
    """Forwards of stage i before its first backward: 2 (S - i - 1) + (v - 1) S, at most v m (Megatron-LM,
    core/pipeline_parallel/schedules.py)."""
    return min(chunks * micro_batches, 2 * (stages - stage - 1) + (chunks - 1) * stages)
