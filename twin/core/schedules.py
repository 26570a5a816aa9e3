"""Properties of schedules of a pipeline: chunks, split backwards, the way through the stages.

A micro-batch passes the parts of the model in order. With one part a stage that is the order of the stages.
Interleaved, stages hold v chunks and the way leads from the last stage back to the first. ZB-V has two chunks
a stage in the shape of a V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): down the stages
with the first chunk and up again with the second, so that the last stage turns round at once and the first
one holds the embedding and the head.
"""

from collections.abc import Sequence

CHUNKED = ("interleaved", "zb-v")
"""Schedules whose stages hold two or more chunks."""
SPLIT = ("crosspipe", "zb-h1", "zb-v")
"""Schedules that run the weight gradient as an operation of its own."""
ZERO_BUBBLE = ("zb-h1", "zb-v")
"""Schedules of Qi et al. 2023, "Zero Bubble Pipeline Parallelism"."""


def default_chunks(schedule: str) -> int:
    """Chunks of a schedule where none are given."""
    return 2 if schedule in CHUNKED else 1


def chunk_fault(schedule: str, chunks: int) -> str | None:
    """Fault of that many chunks a stage; None: none."""
    if schedule == "zb-v":
        return None if chunks == 2 else f"{chunks} with zb-v: it has 2"
    if (schedule == "interleaved") == (chunks > 1):
        return None
    return f"{chunks} with {schedule}: interleaved has 2 or more, zb-v 2, the others 1"


def choice_fault(schedule: str, allowed: Sequence[str]) -> str | None:
    """Fault of these schedules to choose from; None: none. Without any there is no choice."""
    for name in allowed:
        if name in CHUNKED:
            return f"plans cannot switch to {name}, which keeps other layers in a stage; set schedule alone"
    if allowed and schedule not in allowed:
        return f"{schedule}, which plans begin with, is not one of {', '.join(allowed)}"
    return None


def turns(schedule: str) -> bool:
    """True where the last stage passes a micro-batch on to itself, and the way leads up the stages again."""
    return schedule == "zb-v"


def returns(schedule: str, chunks: int) -> bool:
    """True where the last stage sends micro-batches to the first."""
    return chunks > 1 and not turns(schedule)


def way(stages: int, chunks: int, schedule: str) -> tuple[int, ...]:
    """Parts (v S,) in the order in which a micro-batch passes them; part c S + i is chunk c of stage i."""
    there = tuple(range(stages))
    if turns(schedule):
        return (*there, *(stages + i for i in reversed(there)))
    return tuple(range(stages * chunks))
