"""Compiled parts of conservative backfilling: the profile of free processors over the time to come.

The profile is a step function: `at[i]` is when its i-th step begins, `free[i]` the processors free from there
to the next step; the last step lasts for ever. Jobs are in it by their predictions, running and waiting.
A job gets the earliest place at its submission. When jobs have ended, every waiting job in turn is taken out
and put back at the earliest place, which is never later than before (compression; Mu'alem and Feitelson,
TPDS 2001).
"""

from typing import Any, NamedTuple

import numpy as np

from ingest.core.compiled import njit
from twin.queue.jobs import LATEST_NS, Int

NOT_YET = int(np.iinfo(np.int64).max)


class FreeProfile(NamedTuple):
    """Steps of the profile, their number and 1 if time ran out (2,), and reserved starts (n,)."""

    at: Int
    free: Int
    steps: Int
    start: Int


def empty(processors: int, jobs: int) -> FreeProfile:
    """Returns the profile of an idle pool, with room for all jobs."""
    # A reservation adds at most two steps, its beginning and its end.
    room = 2 * jobs + 3
    steps, start = np.array([1, 0]), np.full(jobs, NOT_YET, np.int64)
    made = FreeProfile(np.zeros(room, np.int64), np.zeros(room, np.int64), steps, start)
    made.free[0] = processors
    return made


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def trim(profile: FreeProfile, now: int) -> None:
    """Lets the profile begin now."""
    at, free, steps = profile.at, profile.free, profile.steps
    past = 0
    while past + 1 < steps[0] and at[past + 1] <= now:
        past += 1
    if past:
        steps[0] -= past
        for i in range(steps[0]):
            at[i], free[i] = at[i + past], free[i + past]
    at[0] = max(at[0], now)


@njit(borrowing=True, cache=True, nogil=True)
def add(profile: FreeProfile, begin: int, end: int, processors: int) -> None:
    """Adds free processors from `begin` to `end`; takes them if negative."""
    first = _split(profile, begin)
    last = _split(profile, end)
    for i in range(first, last):
        profile.free[i] += processors
    _join(profile, last)
    _join(profile, first)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _split(profile: FreeProfile, when: int) -> int:
    """Makes a step begin at `when`; returns its index."""
    at, free, steps = profile.at, profile.free, profile.steps
    i = steps[0]
    while i > 0 and at[i - 1] > when:
        i -= 1
    if i > 0 and at[i - 1] == when:
        return int(i - 1)
    for j in range(steps[0], i, -1):
        at[j], free[j] = at[j - 1], free[j - 1]
    at[i], free[i] = when, free[i - 1]
    steps[0] += 1
    return int(i)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _join(profile: FreeProfile, i: int) -> None:
    """Takes the beginning of step i away if nothing changes there."""
    at, free, steps = profile.at, profile.free, profile.steps
    if i > 0 and free[i] == free[i - 1]:
        steps[0] -= 1
        for j in range(i, steps[0]):
            at[j], free[j] = at[j + 1], free[j + 1]


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def earliest(profile: FreeProfile, duration: int, processors: int) -> int:
    """Returns the earliest time from which so many processors are free for so long."""
    at, free, steps = profile.at, profile.free, profile.steps
    begin = at[0]
    for i in range(steps[0]):
        # The candidate start moves behind every step with too few processors. The last step is never too low:
        # there all jobs have ended, and each fits into an empty pool.
        if free[i] < processors:
            begin = at[i + 1]
        elif i + 1 == steps[0] or at[i + 1] >= begin + duration:
            break
    return int(begin)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def reserve(profile: FreeProfile, job: int, duration: int, processors: int) -> None:
    """Gives a job the earliest place; a job that has one already gives it back first."""
    begin = profile.start[job]
    if begin != NOT_YET:
        add(profile, begin, begin + duration, processors)
    begin = earliest(profile, duration, processors)
    if begin > LATEST_NS:
        profile.steps[1] = 1
        begin = LATEST_NS
    else:
        add(profile, begin, begin + duration, -processors)
    profile.start[job] = begin


@njit(borrowing=True, cache=True, nogil=True)
def plan(profile: FreeProfile, waiting: Any, predicted: Int, processors: Int, compress: bool) -> None:
    """Gives every waiting job its place: those that have one first, if some job has ended, then new ones."""
    # Compression in queue order: a job that moves forward leaves room that only those behind it may take, so
    # no reservation becomes later than it was promised.
    if compress:
        for job in waiting:
            if profile.start[job] != NOT_YET:
                reserve(profile, job, predicted[job], processors[job])
    for job in waiting:
        if profile.start[job] == NOT_YET:
            reserve(profile, job, predicted[job], processors[job])
