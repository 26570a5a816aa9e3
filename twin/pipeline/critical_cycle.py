"""The critical cycle of a pipeline: the stages and links that determine its iteration time.

Steady 1F1B is a max-plus linear system. Its operations repeat every P = max over cycles of (time round the
cycle) / (micro-batches in it). Every simple cycle goes downstream from stage i to stage j and back, so
there are S(S+1)/2.

Overlapped:  P = max_{i<=j} [ sum_{i..j} t + sum_{b in [i,j)} (Lf_b + Lb_b) ] / (w_i -
w_j + 1) with t = tf + tb, Lf and Lb occupancy plus latency downstream and upstream, w the warm-up depths
(w_i - w_j = j - i by default). A link that is busy longer than that is a cycle of its own: P >= of_b, ob_b.

Blocking adds the waits of the first and the last stage of the cycle for their own messages: stage j sends its
forward on before it can start the backward (+ Lf_j unless last), stage i its backward before the next forward
(+ Lb_{i-1} unless first).

Rendezvous is the overlapped form of stages whose operations contain the messages that they are for: stage i
its forward's (+ Lf_{i-1} unless first) and its backward's (+ Lb_i unless last).

GPipe has one cycle per phase: P = max_i f_i + max_i g_i with f_i = max(tf_i, of_i), or tf_i + Lf_i when
blocking.

Interleaved, CrossPipe and the zero-bubble schedules have no closed form here: the busiest stage or direction
of a link is named, whose busy time per micro-batch is a lower bound of P.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.pipeline.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Cycle:
    """The critical cycle: nanoseconds per micro-batch, first and last stage, and its kind."""

    period_ns: Fraction
    first: int
    last: int
    kind: str  # stage, stages, link forward, link backward, phases; busiest stage, busiest link ...

    def __str__(self) -> str:
        if self.kind.startswith("busiest"):
            what = replace(self, kind=self.kind.removeprefix("busiest "))
            return f"busiest: {what}"
        if self.kind == "phases":
            return f"forward paced by stage {self.first}, backward by stage {self.last}"
        if self.kind.startswith("link"):
            return f"link {self.first}-{self.last} {self.kind.removeprefix('link ')}"
        return (
            f"stage {self.first}" if self.first == self.last else f"stages {self.first}-{self.last} and back"
        )


def binding(pipeline: Pipeline, plan: int = 0) -> Cycle:
    """The critical cycle of plan `plan`; of schedules without a closed form the busiest stage or link."""
    if pipeline.schedule not in ("gpipe", "1f1b"):
        return _busiest(pipeline.column(plan))
    if pipeline.p2p == "rendezvous":
        pipeline = pipeline.received()
    blocking = pipeline.p2p == "blocking"
    rows = (pipeline.tf, pipeline.tb, pipeline.of, pipeline.lf, pipeline.ob, pipeline.lb)
    one = _Rows(*(_column(row, plan) for row in rows))
    if pipeline.schedule == "gpipe":
        return _gpipe(one, blocking)
    return _one_f_one_b(one, pipeline.warmup.tolist(), blocking)


def iteration_ns(pipeline: Pipeline, plan: int = 0) -> Fraction:
    """Closed form T = sum t_i + sum L_b + (m - 1) P: one micro-batch through the pipe and back, then m - 1
    periods.

    Exact for equal stages without delays, close otherwise: P holds in the steady part only.
    """
    rows = (pipeline.tf, pipeline.tb, pipeline.of, pipeline.lf, pipeline.ob, pipeline.lb)
    once = sum(sum(_column(row, plan)) for row in rows)
    return once + (pipeline.micro_batches - 1) * binding(pipeline, plan).period_ns


class _Rows(NamedTuple):
    """One pipeline in Python integers; names as in `Pipeline`."""

    tf: list[int]
    tb: list[int]
    of: list[int]
    lf: list[int]
    ob: list[int]
    lb: list[int]


def _column(row: NDArray[np.int64], plan: int) -> list[int]:
    return [int(x) for x in row[:, plan if row.shape[1] > 1 else 0]]


def _one_f_one_b(one: _Rows, warmup: list[int], blocking: bool) -> Cycle:
    """Heaviest of the S(S+1)/2 stage cycles and, overlapped, the links' own."""
    stages = len(one.tf)
    down = [o + latency for o, latency in zip(one.of, one.lf, strict=True)]
    up = [o + latency for o, latency in zip(one.ob, one.lb, strict=True)]
    most, micro_batches, ends = 0, 1, (0, 0)
    for i in range(stages):
        length = 0
        for j in range(i, stages):
            length += one.tf[j] + one.tb[j] + (down[j - 1] + up[j - 1] if j > i else 0)
            turns = (down[j] if j < stages - 1 else 0) + (up[i - 1] if i > 0 else 0) if blocking else 0
            within = warmup[i] - warmup[j] + 1
            if (length + turns) * micro_batches > most * within:  # exact, the first of equals
                most, micro_batches, ends = length + turns, within, (i, j)
    found = [Cycle(Fraction(most, micro_batches), *ends, "stage" if ends[0] == ends[1] else "stages")]
    if not blocking:
        for b in range(stages - 1):
            found.append(Cycle(Fraction(one.of[b]), b, b + 1, "link forward"))
            found.append(Cycle(Fraction(one.ob[b]), b, b + 1, "link backward"))
    return max(found, key=lambda cycle: cycle.period_ns)  # the first of equals


def _gpipe(one: _Rows, blocking: bool) -> Cycle:
    """The slowest forward step and the slowest backward step, and their stages."""
    last = len(one.tf) - 1

    def step(own: int, occupancy: int, latency: int) -> int:
        return own + occupancy + latency if blocking else max(own, occupancy)

    forward = [step(t, *((one.of[i], one.lf[i]) if i < last else (0, 0))) for i, t in enumerate(one.tf)]
    backward = [step(t, *((one.ob[i - 1], one.lb[i - 1]) if i > 0 else (0, 0))) for i, t in enumerate(one.tb)]
    period = Fraction(max(forward) + max(backward))
    return Cycle(period, forward.index(max(forward)), backward.index(max(backward)), "phases")


def _busiest(one: Pipeline) -> Cycle:
    """The stage, or the direction of a link, that is busy longest in an iteration."""
    m, stages = one.micro_batches, one.stages
    found = [
        Cycle(Fraction(busy, m), i, i, "busiest stage") for i, busy in enumerate(one.busy_ns[:, 0].tolist())
    ]
    for row, way in ((one.of, "forward"), (one.ob, "backward")):
        for b, occupied in enumerate(row[:, 0].tolist()):
            times = one.chunks - (b == stages - 1)  # the way back to the first stage is taken once less
            ends = b, (b + 1) % stages
            found.append(Cycle(Fraction(occupied * times), *ends, f"busiest link {way}"))
    return max(found, key=lambda cycle: cycle.period_ns)
