"""How a share deals its layers out to its stages: the one home of the rule.

Blocks as evenly as can be, the remainder to the last stages; the embedding joins the first stage of the model
and the head its last one, on top of their blocks, as Megatron-LM splits (num-layers / pipeline size blocks a
stage, embedding and loss attached). A share that has fewer blocks than stages deals out embedding and head as
if they were blocks, so that every stage has something.
"""

from itertools import pairwise
from typing import Any

from numba import njit


def stage_start(stage: Any, stages: Any, layers: Any, embedding: Any, head: Any) -> Any:
    """Layers of a share that lie before its stage `stage`, 0 <= stage <= stages; the last is all of them.

    `embedding` and `head` say whether (0 or 1) the share's layers begin with the one or end with the other.
    Integers or arrays of them, one element a share; nothing but arithmetic, so compiled code may call it too.
    """
    blocks = layers - embedding - head
    attached = blocks >= stages
    even = layers - attached * embedding - attached * head
    base, rest = even // stages, even % stages
    more = stage - stages + rest
    dealt = stage * base + more * (more > 0)
    return dealt + attached * embedding * (stage > 0) + attached * head * (stage == stages)


stage_start_compiled = njit(cache=True, error_model="numpy")(stage_start)
"""The same for callers that are compiled."""


def stage_layers(stages: int, layers: int, embedding: bool, head: bool) -> tuple[int, ...]:
    """Layers of each stage of one share (S,)."""
    starts = [int(stage_start(stage, stages, layers, embedding, head)) for stage in range(stages + 1)]
    return tuple(b - a for a, b in pairwise(starts))
