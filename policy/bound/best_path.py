"""The best path through (time, plan) with the future known, exact over P given plans.

Problem: time is divided into S slots with constant rates `rate[s, p]` (iterations per second, fractions
count). A path works under one plan after another. It leaves p at any time t in slot s and works under q from
t + d(s, p, q) on, with d = restart + the least transfer time of the block of slot s; nothing is done in
between. The first plan is free.

Method: for given plans and slots of leaving (s) and landing (e) the value is linear in the two instants,
which lie in their slots and at least d apart, so the best instants have a closed form (`_instants`) and the
recursion over slots is exact. Two cases are rounded up: where the restart is shorter than a slot, a landing
in the slot of leaving is credited with the best rate of that slot; where a plan is left in the slot it was
landed on, the earliest landing is paired with the best value.

Pruning: `remaining_bound` bounds the rest of a path from above as if every migration cost the restart alone;
paths that cannot reach `floor` (the value of a known path) are dropped. That loses nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from policy.bound.time_grid import TransferTimes

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Leg:
    """Work under plan number `plan` from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    plan: int


@njit(cache=True, nogil=True)
def remaining_bound(edges, rate, restart_s):  # type: ignore[no-untyped-def]
    """Returns upper bounds (S + 1, P) of the iterations from each edge on, with plan p working there."""
    slots, plans = rate.shape
    value = np.zeros((slots + 1, plans))
    best = np.zeros(slots + 1)
    for s in range(slots - 1, -1, -1):
        leave = _best_from(edges, rate, value, edges[s] + restart_s)
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
        if edges[s] + restart_s < edges[s + 1]:  # migrations inside the slot: the best rate, whatever p is
            most = 0.0
            for p in range(plans):
                most = max(most, rate[s, p])
            top = max(top, most * length + best[s + 1])
            for p in range(plans):
                value[s, p] = top
        best[s] = top
    return value


@njit(inner=True, cache=True, nogil=True)
def _best_from(edges, rate, value, t):  # type: ignore[no-untyped-def]
    """Returns an upper bound of the iterations from time t on under the best plan."""
    slots, plans = rate.shape
    if t >= edges[slots]:
        return 0.0
    e = np.searchsorted(edges, t, side="right") - 1
    top = 0.0
    for q in range(plans):
        top = max(top, rate[e, q] * (edges[e + 1] - t) + value[e + 1, q])
    return top


@njit(inner=True, cache=True, nogil=True)
def _instants(leave_low, leave_high, land_low, land_high, pause, rate_p, rate_q):  # type: ignore[no-untyped-def]
    """Returns when to leave and to land within given limits, at least `pause` apart, for the most work; -1 if
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


@njit(inner=True, cache=True, nogil=True)
def _pauses(g, transfers, restart_s, pause):  # type: ignore[no-untyped-def]
    """Fills the pauses (P, P) of migrations that start in block g."""
    begin, entry, table = transfers.start, transfers.entry, transfers.table
    plans = len(pause)
    for p in range(plans):
        for q in range(plans):
            longest = 0.0
            for n in range(begin[p * plans + q], begin[p * plans + q + 1]):
                longest = max(longest, table[g, entry[n]])
            pause[p, q] = restart_s + longest


@njit(inner=True, cache=True)
def _stay(s, rate, length_s, work, landed, jumped):  # type: ignore[no-untyped-def]
    """Extends the paths that keep their plan to the end of slot s."""
    for p in range(len(rate)):
        after = max(work[s, p], landed[s, p]) + rate[p] * length_s
        if after > work[s + 1, p]:
            work[s + 1, p] = after
            jumped[s + 1, p] = -1


@njit(cache=True, nogil=True)
def _forward(edges, rate, transfers, restart_s, floor, bound):  # type: ignore[no-untyped-def]
    """Returns the arrays of `_Tables`, filled slot by slot."""
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
    block = -1
    for s in range(slots):
        if transfers.block[s] != block:
            block = transfers.block[s]
            _pauses(block, transfers, restart_s, pause)
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
                    # A path that is at q already with as much work is no worse.
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


class _Tables(NamedTuple):
    """The best partial paths."""

    work: Float  # (S + 1, P) most iterations by edge s with plan q working there
    jumped: NDArray[np.int32]  # (S + 1, P) the plan left inside the slot before, -1 if none
    landed: (
        Float  # (S, P) most iterations of a landing on q in slot s, as if q had worked from the slot's edge
    )
    came_from: NDArray[np.int32]  # (S, P) the plan left before that landing,
    came_slot: NDArray[np.int32]  # the slot in which,
    left: Float  # the instants of leaving
    lands: Float  # and landing,
    by_landing: NDArray[np.bool_]  # and whether the plan left had been landed on in that same slot

    def legs(self, edges_s: Float) -> list[Leg]:
        """Returns the best path, traced back from the end."""
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
    edges_s: Float, rate: Float, transfers: TransferTimes, *, restart_s: float, floor: float
) -> tuple[float, list[Leg]]:
    """Returns the most iterations of any path, and the path; `edges_s` and `rate` (S, P) as in `Grid`.

    `floor` is the value of some path over the same plans, or 0.
    """
    bound = remaining_bound(edges_s, rate, restart_s)
    below = floor * (1 - 1e-9)
    tables = _Tables(*_forward(edges_s, rate, transfers, restart_s, below, bound))
    return float(tables.work[-1].max()), tables.legs(edges_s)
