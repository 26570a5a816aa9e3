"""The durations of pipelines in integer nanoseconds: the input of kernels, reference simulator and closed
forms."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twin.core import schedules
from twin.core.plan import PointToPoint, Schedule

Int = NDArray[np.int64]

OVERLAPPED, BLOCKING, RENDEZVOUS = range(3)
"""Point-to-point modes as compiled code takes them: who waits while a message is on its way, nobody, its
sender or its receiver."""
MODES: dict[PointToPoint, int] = {"overlapped": OVERLAPPED, "blocking": BLOCKING, "rendezvous": RENDEZVOUS}


class Durations(NamedTuple):
    """Durations of P pipelines of S stages with v chunks and B boundaries, as compiled code takes them, ns.

    Contiguous arrays; without the last axis those of one pipeline.
    """

    forward: Any  # (v S, P)
    gradient: Any  # (v S, P) of the input: the backward less `weight`
    weight: Any  # (v S, P) weight gradient; 0 where it is part of `gradient`
    boundaries: Any  # (4, B, P) occupancy and latency downstream, then upstream
    tail: Any  # (S, P) what follows a stage's last backward


class Rules(NamedTuple):
    """Parameters that P pipelines share, as compiled code takes them."""

    micro_batches: int
    chunks: int
    shared: int  # `Pipeline.shared`
    mode: int  # `OVERLAPPED`, `BLOCKING` or `RENDEZVOUS`
    budget: int  # micro-batches whose activations a stage may hold at once
    turns: bool  # `Pipeline.turns`


class Hop(NamedTuple):
    """Way of the result of an operation to the next one."""

    target: int  # part of the model
    boundary: int | None  # that the message crosses; None: the stage passes it on to itself
    downstream: bool


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """P pipelines of S stages that differ in durations only; nanoseconds.

    `tf`, `tb`, `tail` (S, P): forward and backward of one micro-batch, and what follows the last backward.
    `of`, `lf` (S - 1, P) or (S - 1, 1): occupancy and latency of boundary b downstream; `ob`, `lb` the same
    upstream. `warmup` (S,): forwards before the first backward in 1F1B, never growing along the pipeline.

    Interleaved, every stage holds `chunks` v parts of the model: `tf` and `tb` are (v S, P), chunk after
    chunk, and boundary S - 1 joins the last stage to the first (S rows). `shared` names the boundary whose
    link it shares, each direction with the other one's reverse, as between two domains; -1: it has its own.

    ZB-V's two chunks need no such boundary: the way leads down the stages and up again, forwards of the
    second chunk upstream and their gradients downstream, and the last stage turns round without a message.

    `tw`, as `tb`: the part of `tb` that is the weight gradient, where the schedule runs it on its own.
    `order` (S, n): operations as `twin.pipeline.operation_order` codes them, instead of those that the
    schedule would choose.
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
    chunks: int = 1
    shared: int = -1
    tw: Int | None = None
    order: Int | None = None

    def __post_init__(self) -> None:
        stages, plans = self.tail.shape
        assert self.tf.shape == self.tb.shape == (stages * self.chunks, plans)
        joints = boundary_count(stages, self.chunks, self.schedule)
        for boundary in (self.of, self.lf, self.ob, self.lb):
            assert boundary.shape in ((joints, plans), (joints, 1))
        assert self.tw is None or (self.tw.shape == self.tb.shape and bool(np.all(self.tw <= self.tb)))
        assert self.warmup.shape == (stages,) and np.all(np.diff(self.warmup) <= 0)
        assert self.warmup[-1] >= 0 and self.warmup[0] <= self.micro_batches

    @classmethod
    def single(
        cls, tf: Sequence[int], tb: Sequence[int], of: Sequence[int], lf: Sequence[int], ob: Sequence[int],
        lb: Sequence[int], tail: Sequence[int], *, micro_batches: int, schedule: Schedule = "1f1b",
        p2p: PointToPoint = "blocking", warmup: ArrayLike | None = None, chunks: int = 1, shared: int = -1,
        tw: Sequence[int] | None = None,
    ) -> "Pipeline":  # fmt: skip
        """One pipeline from plain lists; the default warm-up is the standard one."""

        def column(row: Sequence[int]) -> Int:
            return np.array(row, dtype=np.int64).reshape(-1, 1)

        depths = warmup_depths(len(tail), micro_batches) if warmup is None else np.asarray(warmup, np.int64)
        return cls(
            column(tf), column(tb), column(of), column(lf), column(ob), column(lb), column(tail),
            depths, micro_batches, schedule, p2p, chunks, shared, None if tw is None else column(tw),
        )  # fmt: skip

    @property
    def stages(self) -> int:
        """Number of stages S."""
        return int(self.tail.shape[0])

    @property
    def plans(self) -> int:
        """Number of pipelines P."""
        return int(self.tail.shape[1])

    @property
    def mode(self) -> int:
        """Point-to-point mode as compiled code takes it."""
        return MODES[self.p2p]

    @property
    def turns(self) -> bool:
        """True where the way of a micro-batch leads down the stages and up again."""
        return schedules.turns(self.schedule)

    @property
    def way(self) -> tuple[int, ...]:
        """Parts in the order in which a micro-batch passes them; part c S + i is chunk c of stage i."""
        return schedules.way(self.stages, self.chunks, self.schedule)

    def hop(self, part: int, *, forward: bool) -> Hop | None:
        """Way of the activation, or else of the gradient, from a part; None at the end."""
        at = self.way.index(part) + (1 if forward else -1)
        if not 0 <= at < len(self.way):
            return None
        target = self.way[at]
        if not self.turns:
            return Hop(target, min(part, target) % self.stages, forward)
        source, goal = part % self.stages, target % self.stages
        return Hop(target, None if source == goal else min(source, goal), goal > source)

    @property
    def busy_ns(self) -> Int:
        """Nanoseconds of forward and backward work per stage (S, P) in one iteration."""
        once = self.tf + self.tb
        if self.chunks > 1:
            once = once.reshape(self.chunks, self.stages, self.plans).sum(axis=0)
        return self.micro_batches * once

    @property
    def durations(self) -> Durations:
        """Durations of all plans."""
        weight = np.zeros_like(self.tf) if self.tw is None else self.tw
        forward, gradient, tail = map(np.ascontiguousarray, (self.tf, self.tb - weight, self.tail))
        boundaries = np.empty((4, len(self.of), self.plans), np.int64)
        for n, row in enumerate((self.of, self.lf, self.ob, self.lb)):
            boundaries[n] = row
        return Durations(forward, gradient, np.ascontiguousarray(weight), boundaries, tail)

    @property
    def rules(self) -> Rules:
        """Parameters that all plans share."""
        return Rules(
            self.micro_batches, self.chunks, self.shared, self.mode, int(self.warmup[0]) + 1, self.turns
        )

    def received(self) -> "Pipeline":
        """The same pipeline under rendezvous, with every message as a part of the operation that it is for.

        Exact for pipelines without chunks: no two messages meet on a link, as a stage waits for one at a
        time.
        """
        assert self.p2p == "rendezvous" and self.chunks == 1
        nothing, tf, tb = np.zeros_like(self.of), self.tf.copy(), self.tb.copy()
        tf[1:] += self.of + self.lf
        tb[:-1] += self.ob + self.lb
        return replace(self, tf=tf, tb=tb, of=nothing, lf=nothing, ob=nothing, lb=nothing, p2p="overlapped")

    def column(self, plan: int) -> "Pipeline":
        """Pipeline `plan` alone, P = 1."""

        def one(row: Int) -> Int:
            return row[:, [plan if row.shape[1] > 1 else 0]]

        return replace(
            self, tf=one(self.tf), tb=one(self.tb), of=one(self.of), lf=one(self.lf), ob=one(self.ob),
            lb=one(self.lb), tail=one(self.tail), tw=None if self.tw is None else one(self.tw),
        )  # fmt: skip


def boundary_count(stages: int, chunks: int, schedule: Schedule = "interleaved") -> int:
    """Boundaries between stages: one more, from the last back to the first, where chunks interleave."""
    return stages if schedules.returns(schedule, chunks) else stages - 1


def warmup_depths(stages: int, micro_batches: int, extra: ArrayLike = 0) -> Int:
    """Forwards each stage runs before its first backward in 1F1B: min(m, S - 1 - i + extra of stage i) (S,).

    `extra` is a scalar or (S,), never growing along the pipeline.
    """
    depth = stages - 1 - np.arange(stages, dtype=np.int64) + np.asarray(extra, dtype=np.int64)
    return np.minimum(depth, micro_batches)
