"""What of a stage's gradient collectives remains after the last backward: overlap windows and buckets.

Gradients of a chunk are complete with the backward of its last micro-batch. They are reduced bucket by bucket
beside that backward; interleaved (Megatron-Core buckets the first chunk alone, `disable_bucketing` in
megatron/training/training.py), the chunks whose backward comes earlier are reduced whole beside the backwards
that follow, one of every stage's micro-batches for each chunk still to come. Weights are gathered before the
next forward in the mirrored order.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from twin.core.job import JobSpec
from twin.core.plan import Plan

Float = NDArray[np.float64]

BUCKETS = 8
"""Parts in which a chunk's gradients are reduced where no size is given; the last can overlap nothing."""


def exposed_s(seconds: Sequence[Float], compute: Sequence[Float], stages: int, last: Float | None) -> Float:
    """Seconds (P,) of a stage's collectives that its computation does not hide, at least their last bucket.

    `seconds` and `compute` (v, P): of the collective and of one micro-batch of every chunk, in the order of
    the model; the first chunk's backward is the last. `last` (P,): of the last bucket, None: of `BUCKETS`
    equal ones.
    """
    floor = seconds[0] / BUCKETS if last is None else np.minimum(last, seconds[0])
    left: Float = np.maximum(seconds[0] - compute[0], floor)
    queued, window = seconds[0], np.zeros_like(compute[0])
    for chunk in range(1, len(seconds)):  # its collective starts `window` before the end of the last backward
        queued, window = queued + seconds[chunk], window + stages * compute[chunk - 1]
        left = np.maximum(left, queued - window)
    return left


Collectives = Callable[[Float], tuple[Float, Float]]
"""The two ways of `twin.costs.stage_costs.StageModel.collectives_s` for some parameters."""


def exposed_sync_s(
    groups: Sequence[Sequence[Float]],
    collectives: Sequence[Collectives],
    job: JobSpec,
    sketch: Plan,
    forward: Float,
    backward: Float,
) -> Float:
    """Seconds (P,) after a stage's last backward of gradient reduction over dp, and of gathering weights
    where the optimiser is sharded; parameters, forward and backward by chunk (v, P).

    Parameters of one group are reduced by its own of the `collectives`, one group after the other. Plain
    data parallelism (ZeRO 0) reduces when the backward is done, as Megatron did up to 2021. The
    distributed optimiser reduces each bucket as soon as it is ready and gathers weights beside the next
    forward (Megatron-Core's overlap-grad-reduce and overlap-param-gather). `Switches.overlap_reduction` says
    otherwise. ZeRO 3 gathers and reduces in every micro-batch instead (Rajbhandari et al. 2020, section 7),
    its last bucket remains.
    """
    wholes: list[Float] = [np.sum(parts, axis=0) if len(parts) > 1 else parts[0] for parts in groups]
    if sketch.dp == 1:
        return np.zeros_like(wholes[0])
    ways = [_ways(found(whole), sketch.zero) for found, whole in zip(collectives, wholes, strict=True)]
    reduce, gather = (_total([way[n] for way in ways]) for n in range(2))
    if sketch.zero >= 3:
        return reduce / BUCKETS
    overlap = job.switches.overlap_reduction
    if not (sketch.zero >= 1 if overlap is None else overlap):
        return reduce + gather
    last: Sequence[Float | None] = (None, None)
    if job.switches.bucket_bytes is not None:
        last = collectives[0](np.minimum(wholes[0], job.switches.bucket_bytes / job.gradient_bytes))
        last = (np.minimum(*last), None) if sketch.zero == 0 else last
    stages = sum(share.pp for share in sketch.shares)
    remaining = [
        exposed_s(_by_chunk(groups, wholes, [way[n] for way in ways]), list(beside), stages, last[n])
        for n, beside in enumerate((backward, forward))
    ]
    total: Float = remaining[0] + remaining[1]
    return total


def _ways(found: tuple[Float, Float], zero: int) -> tuple[Float, Float]:
    """Seconds of reducing and of gathering; ZeRO 0 takes the faster of its two all-reduces."""
    return (np.minimum(*found), np.zeros_like(found[0])) if zero == 0 else found


def _total(seconds: Sequence[Float]) -> Float:
    return sum(seconds[1:], seconds[0])


def _by_chunk(
    groups: Sequence[Sequence[Float]], wholes: Sequence[Float], seconds: Sequence[Float]
) -> list[Float]:
    """Seconds of all groups for each chunk: those of a group by the chunk's share of its parameters."""
    return [
        _total([
            each * (part / np.maximum(whole, 1.0))
            for part, whole, each in zip(parts, wholes, seconds, strict=True)
        ])
        for parts in zip(*groups, strict=True)
    ]  # fmt: skip
