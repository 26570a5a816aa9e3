"""Iteration times of a pipeline with one of its resources free: what that resource costs, exactly.

Every function asks the kernel again with durations of zero in place of those of the resource; nothing is
apportioned.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twin.pipeline import kernel
from twin.pipeline.pipeline import Pipeline, warmup_depths

Int = NDArray[np.int64]


def without_compute(timing: Pipeline) -> Int:
    """Iteration times (S + 1,) without the computation of each stage, then without that of all of them."""
    stages, lanes = timing.stages, timing.stages + 1
    kept = np.ones((stages, lanes), np.int64)
    np.fill_diagonal(kept, 0)
    kept[:, -1] = 0
    of_parts = np.tile(kept, (timing.chunks, 1))
    repeated = _repeated(timing, lanes)
    weight = repeated.tw
    return kernel.iteration_ns(
        replace(
            repeated, tf=repeated.tf * of_parts, tb=repeated.tb * of_parts,
            tw=None if weight is None else weight * of_parts,
        )
    )  # fmt: skip


def without_bubble(timing: Pipeline) -> int:
    """Iteration time of a pipeline that never fills or drains: what m further micro-batches take in the
    middle of a long train, and the tail of the last stage to end.

    Stages that wait for a slower one, or for a message, still do: that is the other's compute or link.
    """
    m = timing.micro_batches
    before = m * max(2, -(-2 * timing.stages // m))
    steady = replace(timing, tail=np.zeros_like(timing.tail))
    spent = _longer(steady, before + m) - _longer(steady, before)
    whole = int(kernel.iteration_ns(timing)[0])
    return max(0, min(whole, spent + int(timing.tail.max())))


def without_tail(timing: Pipeline, part: Int) -> int:
    """Iteration time without `part` (S, 1) of what follows the last backward of each stage."""
    return int(kernel.iteration_ns(replace(timing, tail=np.maximum(timing.tail - part, 0)))[0])


def _longer(timing: Pipeline, micro_batches: int) -> int:
    """Iteration time with another number of micro-batches; standard warm-up depths stay standard."""
    warmup = timing.warmup
    if np.array_equal(warmup, warmup_depths(timing.stages, timing.micro_batches)):
        warmup = warmup_depths(timing.stages, micro_batches)
    return int(kernel.iteration_ns(replace(timing, micro_batches=micro_batches, warmup=warmup))[0])


def _repeated(timing: Pipeline, lanes: int) -> Pipeline:
    """The same pipeline in each of `lanes` lanes."""

    def rows(values: Int) -> Int:
        return np.repeat(values[:, :1], lanes, axis=1)

    return replace(
        timing, tf=rows(timing.tf), tb=rows(timing.tb), of=rows(timing.of), lf=rows(timing.lf),
        ob=rows(timing.ob), lb=rows(timing.lb), tail=rows(timing.tail),
        tw=None if timing.tw is None else rows(timing.tw),
    )  # fmt: skip
