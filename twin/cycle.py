"""Why an iteration takes as long as it does: the cycle of the pipeline that sets its pace, by name.

Steady 1F1B is a max-plus linear system. Its operations repeat every P = max over cycles of (time round the
cycle) / (micro-batches in it). Every simple cycle goes downstream from stage i to stage j and back, so
there are S(S+1)/2.

Overlapped (spec 3.4, form 3):  P = max_{i<=j} [ sum_{i..j} t + sum_{b in [i,j)} (Lf_b + Lb_b) ] / (w_i -
w_j + 1) with t = tf + tb, Lf and Lb occupancy plus latency downstream and upstream, w the warm-up depths
(w_i - w_j = j - i by default). A link that is busy longer than that is a cycle of its own: P >= of_b, ob_b.

Blocking adds what the turning stages wait for their own messages: stage j sends its forward on before it
can start the backward (+ Lf_j unless last), stage i its backward before the next forward (+ Lb_{i-1} unless
first).

GPipe has one cycle per phase: P = max_i f_i + max_i g_i with f_i = max(tf_i, of_i), or tf_i + Lf_i when
blocking.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Ints = Sequence[int]


@dataclass(frozen=True, slots=True)
class Cycle:
    """The binding cycle: pace in nanoseconds per micro-batch, first and last stage, and what it consists
    of."""

    period_ns: Fraction
    first: int
    last: int
    kind: str  # stage, stages, link forward, link backward, phases

    def __str__(self) -> str:
        if self.kind == "phases":
            return f"forward paced by stage {self.first}, backward by stage {self.last}"
        if self.kind.startswith("link"):
            return f"link {self.first}-{self.last} {self.kind.removeprefix('link ')}"
        return (
            f"stage {self.first}" if self.first == self.last else f"stages {self.first}-{self.last} and back"
        )


def _heavier(best: Cycle | None, other: Cycle) -> Cycle:
    return other if best is None or other.period_ns > best.period_ns else best


def one_f_one_b(
    tf: Ints, tb: Ints, of: Ints, lf: Ints, ob: Ints, lb: Ints, warmup: Ints, *, blocking: bool
) -> Cycle:
    """The binding cycle of steady 1F1B; integer nanoseconds as in `twin.kernel`, one plan."""
    stages, best = len(tf), None
    down = [o + latency for o, latency in zip(of, lf, strict=True)]
    up = [o + latency for o, latency in zip(ob, lb, strict=True)]
    for i in range(stages):
        length = 0
        for j in range(i, stages):
            length += tf[j] + tb[j] + (down[j - 1] + up[j - 1] if j > i else 0)
            turns = (down[j] if j < stages - 1 else 0) + (up[i - 1] if i > 0 else 0) if blocking else 0
            period = Fraction(length + turns, warmup[i] - warmup[j] + 1)
            best = _heavier(best, Cycle(period, i, j, "stage" if i == j else "stages"))
    if not blocking:
        for b in range(stages - 1):
            best = _heavier(best, Cycle(Fraction(of[b]), b, b + 1, "link forward"))
            best = _heavier(best, Cycle(Fraction(ob[b]), b, b + 1, "link backward"))
    assert best is not None
    return best


def gpipe(tf: Ints, tb: Ints, of: Ints, lf: Ints, ob: Ints, lb: Ints, *, blocking: bool) -> Cycle:
    """Pace of GPipe: the slowest forward step and the slowest backward step; names their stages."""
    last = len(tf) - 1

    def step(own: int, occupancy: int, latency: int) -> int:
        return own + occupancy + latency if blocking else max(own, occupancy)

    forward = [step(t, *((of[i], lf[i]) if i < last else (0, 0))) for i, t in enumerate(tf)]
    backward = [step(t, *((ob[i - 1], lb[i - 1]) if i > 0 else (0, 0))) for i, t in enumerate(tb)]
    period = Fraction(max(forward) + max(backward))
    return Cycle(period, forward.index(max(forward)), backward.index(max(backward)), "phases")


def iteration_ns(
    cycle: Cycle, tf: Ints, tb: Ints, of: Ints, lf: Ints, ob: Ints, lb: Ints, micro_batches: int
) -> Fraction:
    """Closed form T = sum t_i + sum L_b + (m - 1) P: one micro-batch through the pipe and back, then the
    pace.

    Exact for equal stages without delays, close otherwise: the pace holds in the steady part only.
    """
    once = sum(tf) + sum(tb) + sum(of) + sum(lf) + sum(ob) + sum(lb)
    return once + (micro_batches - 1) * cycle.period_ns


@dataclass(frozen=True, slots=True)
class Additive:
    """The design documents' T = T_compute + T_comm + T_bubble (phase 1, section 3.1), reported as such."""

    compute_ns: int
    comm_ns: int
    bubble_ns: int

    @property
    def total_ns(self) -> int:
        """Sum of the three."""
        return self.compute_ns + self.comm_ns + self.bubble_ns


def additive(tf: Ints, tb: Ints, of: Ints, lf: Ints, ob: Ints, lb: Ints, micro_batches: int) -> Additive:
    """Slowest stage over all micro-batches, each boundary crossed once each way, (S - 1) slowest
    micro-batches."""
    slowest = max(f + b for f, b in zip(tf, tb, strict=True))
    comm = sum(of) + sum(lf) + sum(ob) + sum(lb)
    return Additive(micro_batches * slowest, comm, (len(tf) - 1) * slowest)
