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


def exposed_sync_s(
    parameters: Sequence[Float],
    collectives: Callable[[Float], tuple[Float, Float]],
    job: JobSpec,
    sketch: Plan,
    forward: Float,
    backward: Float,
) -> Float:
    """Seconds (P,) after a stage's last backward of gradient reduction over dp, and of gathering weights
    where the optimiser is sharded; parameters, forward and backward by chunk (v, P).

    `collectives` gives the two ways of `twin.costs.stage_costs.StageModel.collectives_s` for some parameters.
    Plain data parallelism (ZeRO 0) reduces when the backward is done, as Megatron did up to 2021. The
    distributed optimiser reduces each bucket as soon as it is ready and gathers weights beside the next
    forward (Megatron-Core's overlap-grad-reduce and overlap-param-gather). `Switches.overlap_reduction` says
    otherwise. ZeRO 3 gathers and reduces in every micro-batch instead (Rajbhandari et al. 2020, section 7),
    its last bucket remains.
    """
    whole: Float = np.sum(parameters, axis=0) if len(parameters) > 1 else parameters[0]
    if sketch.dp == 1:
        return np.zeros_like(whole)
    reduce, gather = ways = collectives(whole)
    if sketch.zero >= 3:
        return reduce / BUCKETS
    if sketch.zero == 0:
        reduce, gather = np.minimum(*ways), np.zeros_like(whole)
    overlap = job.switches.overlap_reduction
    if not (sketch.zero >= 1 if overlap is None else overlap):
        return reduce + gather
    last: Sequence[Float | None] = (None, None)
    if job.switches.bucket_bytes is not None:
        last = collectives(np.minimum(whole, job.switches.bucket_bytes / job.gradient_bytes))
        last = (np.minimum(*last), None) if sketch.zero == 0 else last
    shares = [part / np.maximum(whole, 1.0) for part in parameters]
    stages = sum(share.pp for share in sketch.shares)
    remaining = [
        exposed_s([each * share for share in shares], list(beside), stages, bucket_s)
        for each, beside, bucket_s in ((reduce, backward, last[0]), (gather, forward, last[1]))
    ]
    total: Float = remaining[0] + remaining[1]
    return total
