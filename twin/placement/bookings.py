"""Compiled reservations of places on nodes over the time to come, for conservative backfilling.

A booking is a job's slots from a begin to an end, as a resource manager plans it that keeps a map of nodes
over time (Slurm's backfill; Yoo, Jette and Grondona, JSSPP 2003). Begins and ends stand in one list by time,
ends first. A job fits at a time if it can be placed on the nodes as they are at their least until its end:
of each GPU, of CPU and of memory the least that is left, of jobs of each size the most. It keeps its slots.
`twin/nodes/referee.py` has the same meaning in plain Python.
"""

from typing import NamedTuple

import numpy as np

from ingest.core.compiled import njit
from twin.placement.choosing import Chooser, put
from twin.placement.cluster import MILLI
from twin.placement.demands import Mix, Wants
from twin.placement.nodes import GIVE, TAKE, Drafts, Nodes, assign, could, draft, take
from twin.placement.recipe import Int

LAST_NS = 2**61
"""The latest time at which a booking may begin."""
TRIED, LATER, LEAST = np.int64(0), np.int64(1), np.int64(2)
"""States of the nodes to compute with: at the time that is tried, later, and at their least."""


class Bookings(NamedTuple):
    """Times of begins and ends (2n + 1,), their jobs and signs (`TAKE`, `GIVE`); their number, and 1 if time
    ran out (2,); the begin of each job's booking (n,), -1 if it has none."""

    at: Int
    job: Int
    sign: Int
    listed: Int
    begin: Int


def none_booked(jobs: int) -> Bookings:
    """Returns room for the bookings of all jobs, none of which has one."""
    at, job, sign = (np.zeros(2 * jobs + 1, np.int64) for _ in range(3))
    begin = np.full(jobs, -1, np.int64)
    return Bookings(at, job, sign, np.zeros(2, np.int64), begin)


@njit(borrowing=True, cache=True, nogil=True)
def cancel(booked: Bookings, job: int, sign: int) -> None:
    """Takes the begin of a job (`TAKE`) or its end (`GIVE`) out of the list, if it is there."""
    at, of, signs, count = booked.at, booked.job, booked.sign, booked.listed
    i = 0
    while i < count[0] and (of[i] != job or signs[i] != sign):
        i += 1
    if i < count[0]:
        count[0] -= 1
        for j in range(i, count[0]):
            at[j], of[j], signs[j] = at[j + 1], of[j + 1], signs[j + 1]


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _insert(booked: Bookings, time: int, job: int, sign: int) -> None:
    """Puts a begin behind all of its time, an end before the begins of its time."""
    at, of, signs, count = booked.at, booked.job, booked.sign, booked.listed
    i = count[0]
    # At one instant ends come before begins, so that a job may take what another gives back at that instant.
    while i > 0 and (at[i - 1] > time or (at[i - 1] == time and sign == GIVE and signs[i - 1] == TAKE)):
        at[i], of[i], signs[i] = at[i - 1], of[i - 1], signs[i - 1]
        i -= 1
    at[i], of[i], signs[i] = time, job, sign
    count[0] += 1


@njit(borrowing=True, cache=True, nogil=True)
def move(nodes: Nodes, wants: Wants, kind: int, slots: Int, sign: int) -> None:
    """Takes the slots of a job (sign -1), or gives them back (sign 1)."""
    for slot in slots:
        take(nodes, wants, kind, slot, sign)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def book(
    booked: Bookings, nodes: Nodes, states: Drafts, wants: Wants, class_of: Int, mix: Mix, rule: Chooser,
    job: int, time: int, length: int, first: Int, slots: Int,
) -> None:  # fmt: skip
    """Gives a job that has no booking the earliest place from `time` on, and writes its slots down.

    `nodes` are as they are now; the list holds ends of running jobs, begins and ends of waiting ones. A job
    that does not fit on nodes that are not out gets no booking.
    """
    at, of, signs, count = booked.at, booked.job, booked.sign, booked.listed[0]
    kind, begin, i, full = class_of[job], time, 0, time - 1
    tried, least = draft(nodes, states, TRIED), draft(nodes, states, LEAST)
    assign(tried, nodes)
    while True:
        while i < count and at[i] <= begin:
            other = of[i]
            move(tried, wants, class_of[other], slots[first[other] : first[other + 1]], signs[i])
            i += 1
        # `full` is an instant at which the class certainly has no place: candidate starts up to it are
        # skipped.
        if begin > full and could(tried, wants, kind, rule.gang[kind]):
            full = _find_least(
                booked, nodes, states, wants, class_of, kind, rule.gang[kind], i, begin + length, first, slots
            )
            if full < begin and could(least, wants, kind, rule.gang[kind]):
                break
        if i == count:
            return
        begin = at[i]
    if begin > LAST_NS:
        booked.listed[1] = 1
        begin = LAST_NS
    put(least, wants, kind, mix, rule, job, slots[first[job] : first[job + 1]])
    booked.begin[job] = begin
    _insert(booked, begin + length, job, GIVE)
    _insert(booked, begin, job, TAKE)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _find_least(
    booked: Bookings, nodes: Nodes, states: Drafts, wants: Wants, class_of: Int, kind: int, gang: int, i: int,
    end: int, first: Int, slots: Int,
) -> int:  # fmt: skip
    """Writes the nodes at their least from the time tried, before the i-th in the list, to an end; returns
    -1, or the first time at which they have no room for the class even for a moment, and stops there."""
    at, of, signs = booked.at, booked.job, booked.sign
    tried, later = draft(nodes, states, TRIED), draft(nodes, states, LATER)
    least = draft(nodes, states, LEAST)
    assign(later, tried)
    assign(least, tried)
    width = least.left.shape[1]
    while i < booked.listed[0] and at[i] < end:
        job = of[i]
        held = slots[first[job] : first[job + 1]]
        move(later, wants, class_of[job], held, signs[i])
        if signs[i] == TAKE:
            for slot in held:
                _lower(least, later, slot // width)
            if not could(later, wants, kind, gang):
                return int(at[i])
        i += 1
    return -1


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _lower(least: Nodes, other: Nodes, n: int) -> None:
    """Lets a node be no more free than another state of it."""
    model, total, whole = least.model[n], 0, 0
    for gpu in range(least.gpus[n]):
        left = min(least.left[n, gpu], other.left[n, gpu])
        least.left[n, gpu] = left
        total += left
        whole += left == MILLI
    for size in range(least.held.shape[1]):
        least.held[n, size] = max(least.held[n, size], other.held[n, size])
    least.cpu[n] = min(least.cpu[n], other.cpu[n])
    least.memory[n] = min(least.memory[n], other.memory[n])
    least.total[n] = total
    # `whole_of` counts the nodes of a model by their wholly free GPUs: the node moves from one bin to
    # another.
    least.whole_of[model, least.whole[n]] -= 1
    least.whole[n] = whole
    least.whole_of[model, whole] += 1
