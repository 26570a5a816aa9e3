"""Layers of the stages of a share.

Blocks as evenly as can be, the remainder to the last stages; the embedding joins the first stage of the
model and the head its last one, on top of their blocks, as Megatron-LM splits (num-layers / pipeline size
blocks a stage, embedding and loss attached). A share with fewer blocks than stages splits embedding and
head as if they were blocks, so that no stage is empty.
"""

from itertools import pairwise
from typing import Any

from ingest.core.compiled import njit


def stage_start(stage: Any, stages: Any, layers: Any, embedding: Any, head: Any) -> Any:
    """Layers of a share that lie before its stage `stage`, 0 <= stage <= stages; at `stages` all of them.

    `embedding` and `head`: 1 where the share's layers begin with the embedding, or end with the head, else 0.
    Integers or arrays with one element a share; plain arithmetic, for compiled callers too.
    """
    blocks = layers - embedding - head
    attached = blocks >= stages
    even = layers - attached * embedding - attached * head
    base, rest = even // stages, even % stages
    more = stage - stages + rest
    dealt = stage * base + more * (more > 0)
    return dealt + attached * embedding * (stage > 0) + attached * head * (stage == stages)


stage_start_compiled = njit(cache=True, error_model="numpy")(stage_start)
"""`stage_start` for compiled callers."""


def stage_layers(stages: int, layers: int, embedding: bool, head: bool) -> tuple[int, ...]:
    """Layers of each stage of one share (S,)."""
    starts = [int(stage_start(stage, stages, layers, embedding, head)) for stage in range(stages + 1)]
    return tuple(b - a for a, b in pairwise(starts))
