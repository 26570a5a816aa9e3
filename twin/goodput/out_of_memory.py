"""Jobs whose batch did not fit: the error of predicted peaks as it was measured, and what a job tries next.

A job starts in the way with the most goodput whose predicted peak fits with a margin. What it needs in truth
is the predicted peak times a ratio that nobody knows before its first iteration; where that is more than the
GPU has it fails, and starts again in its allocation in the fastest way that is predicted to need at least
`LEAST_STEP` less: a smaller micro-batch, or more recomputation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twin.costs.memory import WORKSPACE_BYTES
from twin.goodput.batch_choice import BatchChoice
from twin.goodput.throughput_model import Values

PEAK_RATIOS = (
    1.0034, 1.0060, 1.0073, 1.0091, 1.0118, 1.0279, 1.0351, 1.0385, 1.0509, 1.0513, 1.0533, 1.0611, 1.0639,
    1.0771, 1.0870, 1.0904, 1.1104,
)  # fmt: skip
"""Measured over predicted bytes of the allocator: the measured peaks of docs/measured/fidelity.md above
`LEAST_PEAK_GIB`, ascending. Smaller peaks are those of one or two layers; what they miss is less than the
workspace that is set aside on every GPU."""
LEAST_PEAK_GIB = 16
BANDWIDTH = 0.0168
"""Standard deviation of the normal kernel around each ratio, by Silverman's rule (Density Estimation, 1986,
equation 3.31): there are few ratios, and the largest to come is larger than the largest so far."""
RUN_MARGIN = 0.12
"""Share of a predicted peak that stays free in a run of many jobs: with the margin of `twin.costs.memory`,
under which every measured peak fits, still 0.8 % of a thousand jobs fail (docs/measured/goodput.md)."""
LEAST_STEP = 0.1
"""Share by which the predicted peak of the next way lies below that of the one that failed."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The ways that ran out of memory, in order, and the one that runs; None where nothing smaller is left.

    `ratio`: needed over predicted bytes of the allocator.
    """

    ratio: float
    failed: tuple[BatchChoice, ...]
    way: BatchChoice | None

    def needed_bytes(self, way: BatchChoice) -> int:
        """Returns what a way needs in truth on its fullest GPU."""
        return round((way.peak_bytes - WORKSPACE_BYTES) * self.ratio) + WORKSPACE_BYTES

    @property
    def slower(self) -> float:
        """Time of an iteration over that of the way that was tried first."""
        if self.way is None or not self.failed:
            return 1.0
        return self.way.iteration_s / self.failed[0].iteration_s


def ratios(random: np.random.Generator, jobs: int) -> Values:
    """Returns needed over predicted bytes of jobs (n,): measured ratios, each with its kernel."""
    drawn: Values = random.choice(np.array(PEAK_RATIOS), jobs) + BANDWIDTH * random.standard_normal(jobs)
    return drawn


def first_way(ways: Sequence[BatchChoice], gpu_bytes: int, margin: float = RUN_MARGIN) -> BatchChoice | None:
    """Returns the way with the most goodput whose predicted peak fits with a margin; None where none does."""
    room = (gpu_bytes - WORKSPACE_BYTES) / (1 + margin) + WORKSPACE_BYTES
    return max((one for one in ways if one.peak_bytes <= room), key=_worth, default=None)


def launched(ways: Sequence[BatchChoice], first: BatchChoice, ratio: float, gpu_bytes: int) -> Launch:
    """Returns what comes of a job that begins in the way `first` and needs `ratio` of what is predicted."""
    failed, way = list[BatchChoice](), first
    while Launch(ratio, (), None).needed_bytes(way) > gpu_bytes:
        failed.append(way)
        most = WORKSPACE_BYTES + (1 - LEAST_STEP) * (way.peak_bytes - WORKSPACE_BYTES)
        smaller = max((one for one in ways if one.peak_bytes <= most), key=_worth, default=None)
        if smaller is None:
            return Launch(ratio, tuple(failed), None)
        way = smaller
    return Launch(ratio, tuple(failed), way)


def _worth(one: BatchChoice) -> tuple[float, int]:
    return one.goodput, -one.peak_bytes
