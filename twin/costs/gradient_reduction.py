"""What of a stage's gradient collectives remains after the last backward: overlap windows and buckets.

Gradients of a chunk are complete with the backward of its last micro-batch. They are reduced bucket by bucket
beside that backward; interleaved (Megatron-Core buckets the first chunk alone, `disable_bucketing` in
megatron/training/training.py), the chunks whose backward comes earlier are reduced whole beside the backwards
that follow, one of every stage's micro-batches for each chunk still to come. Weights are gathered before the
next forward in the mirrored order.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
