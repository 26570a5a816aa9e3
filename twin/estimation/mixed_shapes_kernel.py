"""Exact iteration times of many different plans, each under a handful of link states, in one compiled pass.

`twin.pipeline.kernel` runs many plans of one shape. Here every plan may have other numbers of stages and
micro-batches: those with equally many share the lanes of `twin.pipeline.round_recurrence`, whatever their
link states. A test holds the two equal to the nanosecond.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from twin.costs.boundary_terms import ends_ns_compiled, terms_compiled
from twin.pipeline.kernel import DEAD, LONGEST_NS
from twin.pipeline.pipeline import BLOCKING, OVERLAPPED, RENDEZVOUS
from twin.pipeline.round_recurrence import LANES, LB, LF, OB, OF, TAIL, TB, TF, fold, receive, run

Int = NDArray[np.int64]
Float = NDArray[np.float64]


class Lines(NamedTuple):
    """Stage times of P plans in ns, links between domains aside; padded to S stages, the most of any plan."""

    stages: Int  # (P,)
    micro_batches: Int  # (P,)
    forward: Int  # (P, S)
    backward: Int  # (P, S)
    tail: Int  # (P, S)
    source: Int  # (P, S - 1) domain before the boundary, -1 inside a domain
    target: Int  # (P, S - 1)
    occupancy: Int  # (P, S - 1) of boundaries inside a domain
    latency: Int  # (P, S - 1)
    message_bytes: Float  # (P,)
    tied_bytes: Float  # (P,) one step of the exchange for a tied embedding between the domains at both ends

    def take(self, chosen: NDArray[Any]) -> "Lines":
        """The plans `chosen`, numbers or a mask."""
        return Lines._make(column[chosen] for column in self)


class Room(NamedTuple):
    """Working arrays of `twin.pipeline.round_recurrence.run` for pipelines of up to S stages, ns."""

    t: Int  # (7, S * LANES) durations
    s: Int  # (5, (S + 1) * LANES) state
    saved: Int  # as `s`
    total: Int  # (LANES,) iteration times
    waiting: Int  # (LANES, 2) plan and link state of each lane


def empty(plans: int, stages: int) -> tuple[tuple[Int, Int, Int], tuple[Int, Int, Int, Int]]:
    """Empty arrays for `plans` pipelines of up to `stages`: the three of stages and the four of boundaries of
    `Lines`."""
    joints = max(stages - 1, 0)
    a, b, c = np.zeros((3, plans, stages), np.int64)
    d, e = np.full((2, plans, joints), -1, np.int64)
    f, g = np.zeros((2, plans, joints), np.int64)
    return (a, b, c), (d, e, f, g)


def exact_ns(lines: Lines, bandwidth_bps: Float, latency_s: Float, gpipe: bool, mode: int, out: Int) -> None:
    """Iteration times of P plans under X link states into `out` (P, X); `DEAD` where a used link is.

    `bandwidth_bps` and `latency_s` are (P, X, K, K); `mode` as in `twin.pipeline.pipeline`.
    """
    order = np.argsort((lines.stages << 32) + lines.micro_batches, kind="stable")
    links = one_type(bandwidth_bps), one_type(latency_s)
    _exact_ns(lines, *links, order, gpipe, mode, _room(lines.forward.shape[1]), out)


def _room(stages: int) -> Room:
    """Room for pipelines of up to so many stages."""
    now, saved = np.zeros((2, 5, (stages + 1) * LANES), np.int64)
    durations, lanes = np.zeros((7, stages * LANES), np.int64), np.zeros(LANES, np.int64)
    return Room(durations, now, saved, lanes, np.zeros((LANES, 2), np.int64))


def one_type(links: Float) -> Float:
    """Link states (P, X, K, K) with an axis that only repeats them cut to 1, contiguous and read-only.

    numba compiles a function anew for each layout of an array, and for arrays that may be written: here that
    is a minute for each, so all come in one.
    """
    repeated = [slice(1) if stride == 0 else slice(None) for stride in links.strides[:2]]
    one = np.ascontiguousarray(links[tuple(repeated)]).view()
    one.flags.writeable = False
    return one


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def linked(links, p, x, a, b):  # type: ignore[no-untyped-def]
    """Returns what plan p finds under state x between domains a and b in the `one_type` of link states."""
    return links[min(p, links.shape[0] - 1), min(x, links.shape[1] - 1), a, b]


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _across(size_bytes, tied_bytes, p, x, a, b, bandwidth_bps, latency_s):  # type: ignore[no-untyped-def]
    """Times of a message, and of the exchange for a tied embedding, from domain a to b."""
    bps, late_s = linked(bandwidth_bps, p, x, a, b), linked(latency_s, p, x, a, b)
    return terms_compiled(size_bytes, tied_bytes, bps, late_s * NS_PER_S)


@njit(borrowing=True, cache=True, nogil=True)
def _exact_ns(lines, bandwidth_bps, latency_s, order, gpipe, mode, room, out):  # type: ignore[no-untyped-def]
    """Fills `out`; plans of one shape come together in `order` (P,)."""
    t, waiting = room.t, room.waiting
    filled = depth = m = np.int64(
        0
    )  # a literal 0 would be a type of its own, for which all below is compiled
    for p in order:
        if filled and (lines.stages[p] != depth or lines.micro_batches[p] != m):
            _run(filled, depth, m, gpipe, mode, room, out)
            filled = np.int64(0)
        depth, m, ends = lines.stages[p], lines.micro_batches[p], both_ends(p, lines)
        for x in range(out.shape[1]):
            tied = exchange_ns(p, x, ends, lines, bandwidth_bps, latency_s)
            alive = tied < LONGEST_NS and _load(p, x, filled, lines, bandwidth_bps, latency_s, t)
            if not alive:
                out[p, x] = DEAD
                continue
            t[TAIL, filled] += tied
            if depth > 1:
                t[TAIL, (depth - 1) * LANES + filled] += tied
            if mode == BLOCKING:
                fold(depth, filled, t)
            elif mode == RENDEZVOUS:
                receive(depth, filled, t)
            waiting[filled, 0], waiting[filled, 1] = p, x
            filled += 1
            if filled == LANES:
                _run(filled, depth, m, gpipe, mode, room, out)
                filled = np.int64(0)
    if filled:
        _run(filled, depth, m, gpipe, mode, room, out)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _run(filled, depth, m, gpipe, mode, room, out):  # type: ignore[no-untyped-def]
    """Time the lanes that are `filled`; the others repeat the first one."""
    t, waiting = room.t, room.waiting
    for x in range(filled, LANES):
        for r in range(7):
            for f in range(0, depth * LANES, LANES):
                t[r, f + x] = t[r, f]
    run(depth, m, gpipe, mode != OVERLAPPED, t, room.s, room.saved, room.total)
    for x in range(filled):
        out[waiting[x, 0], waiting[x, 1]] = room.total[x]


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _load(p, x, lane, lines, bandwidth_bps, latency_s, t):  # type: ignore[no-untyped-def]
    """Fill a lane with plan p under state x; False: a link is dead."""
    size_bytes, depth = lines.message_bytes[p], lines.stages[p]
    first = (depth - 1) * LANES + lane
    t[OB, first] = t[LB, first] = t[OF, lane] = t[LF, lane] = 0
    for i in range(depth):
        f = first - i * LANES
        t[TF, f], t[TB, f], t[TAIL, f] = lines.forward[p, i], lines.backward[p, i], lines.tail[p, i]
        if i == depth - 1:
            break
        a, b = lines.source[p, i], lines.target[p, i]
        if a < 0:
            t[OF, f] = t[OB, f - LANES] = lines.occupancy[p, i]
            t[LF, f] = t[LB, f - LANES] = lines.latency[p, i]
            continue
        down = _across(size_bytes, 0.0, p, x, a, b, bandwidth_bps, latency_s)
        up = _across(size_bytes, 0.0, p, x, b, a, bandwidth_bps, latency_s)
        if max(down.occupancy, up.occupancy) >= LONGEST_NS:
            return False
        t[OF, f], t[LF, f] = down.occupancy, down.latency
        t[OB, f - LANES], t[LB, f - LANES] = up.occupancy, up.latency
    return True


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def both_ends(p, lines):  # type: ignore[no-untyped-def]
    """Domains that exchange the gradient of a tied embedding of plan p; -1, -1 without an exchange."""
    a, b = -1, -1
    if lines.tied_bytes[p] > 0:
        for i in range(lines.stages[p] - 1):
            if lines.source[p, i] >= 0:
                a, b = lines.source[p, i] if a < 0 else a, lines.target[p, i]
    return a, b


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def exchange_ns(p, x, ends, lines, bandwidth_bps, latency_s):  # type: ignore[no-untyped-def]
    """Nanoseconds of that exchange under state x; `LONGEST_NS` over a dead link."""
    a, b = ends
    if a < 0:
        return 0
    size_bytes = lines.tied_bytes[p]
    there = _across(0.0, size_bytes, p, x, a, b, bandwidth_bps, latency_s)
    back = _across(0.0, size_bytes, p, x, b, a, bandwidth_bps, latency_s)
    if max(there.tied, back.tied) >= LONGEST_NS:
        return LONGEST_NS
    return np.int64(ends_ns_compiled(there.tied, back.tied))
