"""A placement as data: how nodes are scored, and how a job of several GPUs is cut over nodes."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Score = Literal[
    "first", "leftover-least", "leftover-most", "dot-least", "dot-most", "affinity", "packing", "fragments",
    "random",
]  # fmt: skip
"""What a node is scored by; the formulas are in `scores.py`."""
SCORES: tuple[Score, ...] = get_args(Score)
Gang = Literal["consolidated", "scattered", "rack", "rack-first"]
"""consolidated: a job takes as few nodes as its size allows: one, or whole nodes of one model and the rest
on one more. scattered: its GPUs are placed one by one, on nodes of one model. rack: consolidated in one rack,
for which it waits, unless it is larger than any. rack-first: consolidated in one rack if one has room now,
else wherever there is room."""
GANGS: tuple[Gang, ...] = get_args(Gang)
CONSOLIDATED, SCATTERED, RACK, RACK_FIRST = range(len(GANGS))
"""The same as numbers, for compiled code."""


@dataclass(frozen=True, slots=True)
class PlacementRecipe:
    """One placement: its name, the score of nodes, how gangs are cut, what it is and who published it.

    Of nodes with the same score the first one of the cluster is taken; of GPUs of a node that can be shared
    the fullest that has room, and of those alike the first."""

    name: str
    score: Score
    summary: str
    source: str
    gang: Gang = "consolidated"
