"""The timing of pipelines in integer nanoseconds: what kernel, referee and cycle form all read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twin.plan import PointToPoint, Schedule

Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """P pipelines of S stages that differ in durations only; nanoseconds.

    `tf`, `tb`, `tail` (S, P): forward and backward of one micro-batch, and what follows the last backward.
    `of`, `lf` (S - 1, P) or (S - 1, 1): occupancy and latency of boundary b downstream; `ob`, `lb` the same
    upstream. `warmup` (S,): forwards before the first backward in 1F1B, never growing along the pipeline.
    """

    tf: Int
    tb: Int
    of: Int
    lf: Int
    ob: Int
    lb: Int
    tail: Int
    warmup: Int
    micro_batches: int
    schedule: Schedule
    p2p: PointToPoint

    def __post_init__(self) -> None:
        stages, plans = self.tf.shape
        assert self.tb.shape == self.tail.shape == (stages, plans)
        for boundary in (self.of, self.lf, self.ob, self.lb):
            assert boundary.shape in ((stages - 1, plans), (stages - 1, 1))
        assert self.warmup.shape == (stages,) and np.all(np.diff(self.warmup) <= 0)
        assert self.warmup[-1] >= 0 and self.warmup[0] <= self.micro_batches

    @classmethod
    def single(
        cls, tf: Sequence[int], tb: Sequence[int], of: Sequence[int], lf: Sequence[int], ob: Sequence[int],
        lb: Sequence[int], tail: Sequence[int], *, micro_batches: int, schedule: Schedule = "1f1b",
        p2p: PointToPoint = "blocking", warmup: ArrayLike | None = None,
    ) -> "Pipeline":  # fmt: skip
        """One pipeline from plain lists; the default warm-up is the standard one."""

        def column(row: Sequence[int]) -> Int:
            return np.array(row, dtype=np.int64).reshape(-1, 1)

        depths = warmup_depths(len(tf), micro_batches) if warmup is None else np.asarray(warmup, np.int64)
        return cls(
            column(tf), column(tb), column(of), column(lf), column(ob), column(lb), column(tail),
            depths, micro_batches, schedule, p2p,
        )  # fmt: skip

    @property
    def stages(self) -> int:
        """S."""
        return int(self.tf.shape[0])

    @property
    def plans(self) -> int:
        """P."""
        return int(self.tf.shape[1])

    @property
    def blocking(self) -> bool:
        """Whether a stage waits for the arrival of what it sent."""
        return self.p2p == "blocking"

    @property
    def busy_ns(self) -> Int:
        """Nanoseconds of forward and backward work per stage (S, P) in one iteration."""
        return self.micro_batches * (self.tf + self.tb)

    def column(self, plan: int) -> "Pipeline":
        """Pipeline `plan` alone, P = 1."""

        def one(row: Int) -> Int:
            return row[:, [plan if row.shape[1] > 1 else 0]]

        return replace(
            self, tf=one(self.tf), tb=one(self.tb), of=one(self.of), lf=one(self.lf), ob=one(self.ob),
            lb=one(self.lb), tail=one(self.tail),
        )  # fmt: skip


def warmup_depths(stages: int, micro_batches: int, extra: ArrayLike = 0) -> Int:
    """Forwards each stage runs before its first backward in 1F1B: min(m, S - 1 - i + extra of stage i) (S,).

    `extra` is a scalar or (S,), never growing along the pipeline.
    """
    depth = stages - 1 - np.arange(stages, dtype=np.int64) + np.asarray(extra, dtype=np.int64)
    return np.minimum(depth, micro_batches)
