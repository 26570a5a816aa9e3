"""The best path through (time, plan) that knows the future, exact over P given plans.

The problem. Time is cut into S slots of constant rates `rate[s, p]` (iterations per second, fractions
count). A path works under one plan after the other. It leaves p at any time t of slot s and works under q
from t + d(s, p, q) on, with d = restart + the least transfer time of that slot's stretch; nothing is done in
between. The first plan is free.

Where to look. For given plans and slots of leaving (s) and landing (e) the value is linear in the two
instants, which have to lie in their slots and d or more apart: the best instants are in closed form
(`_instants`). So the recursion over slots is exact. One case is rounded up: no slot is longer than a
restart, but when the restart is shorter than any slot, a landing in the slot of leaving is credited with the
best rate of that slot; and when a plan is left in the slot it was landed on, the earliest landing is paired
with the best value.

What is not looked at. `to_go` bounds the rest of a path from above as if every move cost the restart alone;
whatever cannot reach `floor` (the value of some path already known) is dropped. That loses nothing.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Leg:
    """Work under plan number `plan` from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    plan: int


@njit(cache=True, nogil=True)
def to_go(edges, rate, restart_s):  # type: ignore[no-untyped-def]
    """(S + 1, P) upper bounds of what can still be done from each edge on, when plan p works there."""
    slots, plans = rate.shape
    value = np.zeros((slots + 1, plans))
    best = np.zeros(slots + 1)
    for s in range(slots - 1, -1, -1):
        leave = _at(edges, rate, value, edges[s] + restart_s)
        length = edges[s + 1] - edges[s]
        top = 0.0
        for p in range(plans):
            value[s, p] = max(rate[s, p] * length + value[s + 1, p], leave)
        e = s + 1
        while e <= slots and edges[e] <= edges[s + 1] + restart_s:
            stay = edges[e] - restart_s - edges[s]
            if stay > 0.0:
                for p in range(plans):
                    value[s, p] = max(value[s, p], rate[s, p] * stay + best[e])
            e += 1
        for p in range(plans):
            top = max(top, value[s, p])
        if edges[s] + restart_s < edges[s + 1]:  # moves inside the slot: the best rate, whatever p is
            most = 0.0
            for p in range(plans):
                most = max(most, rate[s, p])
            top = max(top, most * length + best[s + 1])
            for p in range(plans):
                value[s, p] = top
        best[s] = top
    return value


@njit(cache=True, nogil=True)
def _at(edges, rate, value, t):  # type: ignore[no-untyped-def]
    """Upper bound of what can be done from time t on by whichever plan is best."""
    slots, plans = rate.shape
    if t >= edges[slots]:
        return 0.0
    e = np.searchsorted(edges, t, side="right") - 1
    top = 0.0
    for q in range(plans):
        top = max(top, rate[e, q] * (edges[e + 1] - t) + value[e + 1, q])
    return top


@njit(cache=True, nogil=True)
def _instants(leave_low, leave_high, land_low, land_high, pause, rate_p, rate_q):  # type: ignore[no-untyped-def]
    """When to leave and to land inside given limits, at least `pause` apart, for the most work; -1 where
    impossible.
    """
    if rate_p >= rate_q:
        leave = min(leave_high, land_high - pause)
        land = max(land_low, leave + pause)
    else:
        land = max(land_low, leave_low + pause)
        leave = min(leave_high, land - pause)
    if leave < leave_low or land > land_high:
        return -1.0, -1.0
    return leave, land


@njit(cache=True, nogil=True)
def _pauses(g, begin, entry, table, restart_s, pause):  # type: ignore[no-untyped-def]
    """Fill (P, P) pauses of moves that start in stretch g."""
    plans = len(pause)
    for p in range(plans):
        for q in range(plans):
            longest = 0.0
            for n in range(begin[p * plans + q], begin[p * plans + q + 1]):
                longest = max(longest, table[g, entry[n]])
            pause[p, q] = restart_s + longest


@njit(cache=True)
def _stay(s, rate, length_s, work, landed, jumped):  # type: ignore[no-untyped-def]
    """What each plan brings by the end of slot s if it is kept."""
    for p in range(len(rate)):
        after = max(work[s, p], landed[s, p]) + rate[p] * length_s
        if after > work[s + 1, p]:
            work[s + 1, p] = after
            jumped[s + 1, p] = -1


@njit(cache=True, nogil=True)
def _forward(edges, rate, block, begin, entry, table, restart_s, floor, bound):  # type: ignore[no-untyped-def]
    """Fill the tables of `_Tables` slot by slot."""
    slots, plans = rate.shape
    never = -1e300
    work = np.full((slots + 1, plans), never)
    work[0, :] = 0.0
    jumped = np.full((slots + 1, plans), -1, np.int32)
    landed = np.full((slots, plans), never)
    earliest = np.full((slots, plans), np.inf)
    came_from = np.full((slots, plans), -1, np.int32)
    came_slot = np.full((slots, plans), -1, np.int32)
    left = np.zeros((slots, plans))
    lands = np.zeros((slots, plans))
    by_landing = np.zeros((slots, plans), np.bool_)
    pause = np.zeros((plans, plans))
    stretch = -1
    for s in range(slots):
        if block[s] != stretch:
            stretch = block[s]
            _pauses(stretch, begin, entry, table, restart_s, pause)
        start, end = edges[s], edges[s + 1]
        _stay(s, rate[s], end - start, work, landed, jumped)
        most = max(rate[s].max(), 0.0)
        for p in range(plans):
            for source in range(2):
                kept = landed[s, p] if source else work[s, p]
                low = earliest[s, p] if source else start
                if kept + bound[s, p] < floor or (source and kept <= work[s, p]):
                    continue
                after = kept + rate[s, p] * (end - start)
                for q in range(plans):
                    d = pause[p, q]
                    # Whoever is at q already and has as much need not be joined.
                    if q == p or after <= work[s, q] or low + d >= edges[slots]:
                        continue
                    e = np.searchsorted(edges, low + d, side="right") - 1
                    if e == s:
                        value = kept + most * (end - start)
                        if value > work[s + 1, q] and value + bound[s + 1, q] >= floor:
                            work[s + 1, q] = value
                            jumped[s + 1, q] = p
                        e += 1
                    while e < slots and edges[e] <= end + d:
                        leave, land = _instants(low, end, edges[e], edges[e + 1], d, rate[s, p], rate[e, q])
                        value = kept + rate[s, p] * (leave - start) - rate[e, q] * (land - edges[e])
                        if leave >= 0.0 and value + bound[e, q] >= floor:
                            earliest[e, q] = min(earliest[e, q], max(edges[e], low + d))
                            if value > landed[e, q]:
                                landed[e, q] = value
                                came_from[e, q], came_slot[e, q] = p, s
                                left[e, q], lands[e, q], by_landing[e, q] = leave, land, source == 1
                        e += 1
    return work, jumped, landed, came_from, came_slot, left, lands, by_landing


@dataclass(frozen=True, slots=True, eq=False)
class _Tables:
    """`work` (S + 1, P): most work by edge s with q working there, `jumped` the plan it came from inside the
    slot.

    `landed` (S, P): most work of a landing on q in slot s, carried back to the slot's edge as if q had
    worked since; `came_from`, `came_slot`, `by_landing`: the plan it left, the slot in which, and whether
    that plan had landed in that same slot; `left`, `lands`: when.
    """

    work: Float
    jumped: NDArray[np.int32]
    landed: Float
    came_from: NDArray[np.int32]
    came_slot: NDArray[np.int32]
    left: Float
    lands: Float
    by_landing: NDArray[np.bool_]

    def legs(self, edges_s: Float) -> list[Leg]:
        """The best path, traced back from the end."""
        s, q, landing = len(self.landed), int(np.argmax(self.work[-1])), False
        legs, until = [], float(edges_s[-1])
        while s > 0 or landing:
            if landing:
                legs.append(Leg(float(self.lands[s, q]), until, q))
                until, landing = float(self.left[s, q]), bool(self.by_landing[s, q])
                s, q = int(self.came_slot[s, q]), int(self.came_from[s, q])
                continue
            if self.jumped[s, q] >= 0:
                legs.append(Leg(float(edges_s[s]), until, q))
                until, q = float(edges_s[s - 1]), int(self.jumped[s, q])
            s -= 1
            landing = bool(self.landed[s, q] > self.work[s, q])
        legs.append(Leg(0.0, until, q))
        return legs[::-1]


def best_path(
    edges_s: Float,
    rate: Float,
    block: Int,
    begin: Int,
    entry: Int,
    table: Float,
    *,
    restart_s: float,
    floor: float,
) -> tuple[float, list[Leg]]:
    """The most iterations that any path does, and the path; arguments as in `Grid` and `Moves`.

    `floor` is the value of some path over the same plans, or 0.
    """
    bound = to_go(edges_s, rate, restart_s)
    safe = floor * (1 - 1e-9)
    tables = _Tables(*_forward(edges_s, rate, block, begin, entry, table, restart_s, safe, bound))
    return float(tables.work[-1].max()), tables.legs(edges_s)
