"""The compiled event loop of one pool under limits of power: as `twin.queue.kernel`, where jobs need power.

A job starts if processors are free and the power that it adds keeps both limits. Under a cap the head of the
queue has a reservation of processors and power, which nobody who overtakes delays. Under a ramp limit a job
also waits until power has been high enough for long enough; a head that only waits for that is not overtaken,
and reservations do not foresee it. `capped_referee.py` has the same meaning in SimPy.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.errors import UsageError
from twin.power.limits import PowerLimits
from twin.queue.jobs import LATEST_NS, Int, QueueJobs
from twin.queue.kernel import forget, run
from twin.queue.ordering import place_of, sort, stop_serving, submit, take_out
from twin.queue.pool import (
    CHOSEN,
    CONSERVATIVE,
    EASY,
    ENDED,
    FIRST,
    FREE,
    LATEST,
    NONE,
    PREDICTED,
    RUNNING,
    SJBF,
    SPARE,
    WAITING,
    Flags,
    Inputs,
    Pool,
    flags_of,
    idle,
    inputs_of,
)  # fmt: skip
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.reservations import NOT_YET, FreeProfile, add, empty, trim
from twin.queue.rules import QueueRules

FREE_MW, SPARE_MW, LEVEL, SINCE, HEAD, COUNT, WAKE, RISE, WINDOW = range(9)
"""Places of `Budget.now`: power that may be added, what a job that overtakes may hold longer than the
reservation, what jobs add now and since when, first and number of past levels, the next instant at which the
ramp limit lets more in, the limit and its window."""
# Far above any site, and far enough below 2**63 that adding the power of all jobs cannot overflow.
UNLIMITED_MW = 2**60


class Budget(NamedTuple):
    """Power that each job adds (n,), milliwatts; past levels within the window that are lowest up to now,
    rising, each with the instant at which it ended; and what changes."""

    job_mw: Int
    level: Int
    until: Int
    now: Int


def play(
    jobs: QueueJobs, predicted: Int, processors: int, keys: OrderKeys, backfill: Backfill, rules: QueueRules,
    job_mw: Int, limits: PowerLimits,
) -> tuple[Int, NDArray[np.bool_]]:  # fmt: skip
    """Returns start (n,), nanoseconds, of each job, and which jobs overtook the head of the queue.

    Every job must fit into the pool and the limits; under a ramp limit backfill is not conservative.

    Raises:
        UsageError: the last jobs would start later than a time can be.
    """
    inputs = inputs_of(jobs, predicted, keys)
    pool = idle(processors, keys, int(inputs.user.max(initial=0)) + 1)
    planned = len(jobs) if backfill == "conservative" else 0
    cap_mw = UNLIMITED_MW if limits.cap_mw is None else limits.cap_mw
    budget = _full_budget(job_mw, cap_mw, limits)
    profile, watts = empty(processors, planned), empty(cap_mw, planned)
    if not _play(inputs, flags_of(keys, backfill, rules), pool, budget, profile, watts):
        raise UsageError("the queue grows beyond 73 years: take a larger pool, a higher limit or fewer jobs")
    assert not len(jobs) or pool.start.max() < NOT_YET, "a job never started"
    return pool.start, pool.backfilled


def _full_budget(job_mw: Int, cap_mw: int, limits: PowerLimits) -> Budget:
    now = np.zeros(9, np.int64)
    now[FREE_MW], now[SINCE], now[WAKE], now[WINDOW] = cap_mw, -1, NOT_YET, limits.window_ns
    now[RISE] = UNLIMITED_MW if limits.rise_mw is None else limits.rise_mw
    room = 2 * len(job_mw) + 2
    return Budget(
        np.ascontiguousarray(job_mw, np.int64), np.zeros(room, np.int64), np.zeros(room, np.int64), now
    )


@njit(borrowing=True, cache=True, nogil=True)
def _play(
    jobs: Inputs, flags: Flags, pool: Pool, budget: Budget, profile: FreeProfile, watts: FreeProfile
) -> bool:
    """Runs until every job has ended; returns False if time runs out."""
    count, now = len(jobs.submit), pool.now
    arrived = 0
    while arrived < count or now[RUNNING] or now[WAITING]:
        submission = jobs.submit[arrived] if arrived < count else NOT_YET
        end = pool.end_at[now[RUNNING] - 1] if now[RUNNING] else NOT_YET
        time = min(submission, end, budget.now[WAKE])
        while min(submission, end) == time:
            if submission == time and (flags.submissions_first or end > time):
                submit(jobs, flags, pool, arrived)
                arrived += 1
            else:
                _end(jobs, flags, pool, budget, profile, watts, time)
            submission = jobs.submit[arrived] if arrived < count else NOT_YET
            end = pool.end_at[now[RUNNING] - 1] if now[RUNNING] else NOT_YET
            if flags.passes_each_event:
                break
        _pass(jobs, flags, pool, budget, profile, watts, time)
        now[ENDED] = 0
        budget.now[WAKE] = _next_wake(budget, time) if now[WAITING] else NOT_YET
        if time > LATEST_NS or profile.steps[1]:
            return False
    return True


@njit(inline="always")
def _change(budget: Budget, time: int, more_mw: int) -> None:
    """Changes what jobs add; a level that ends goes among the past ones, and hides those not below it."""
    now, level = budget.now, budget.level
    # `level` is the deque of a sliding-window minimum: a past level that is not below a later one can never
    # be the lowest again, so it is dropped, and levels rise from HEAD on. The lowest is read at HEAD.
    if time > now[SINCE]:
        while now[COUNT] and level[now[HEAD] + now[COUNT] - 1] >= now[LEVEL]:
            now[COUNT] -= 1
        level[now[HEAD] + now[COUNT]], budget.until[now[HEAD] + now[COUNT]] = now[LEVEL], time
        now[COUNT] += 1
        now[SINCE] = time
    now[LEVEL] += more_mw


@njit(inline="always")
def _lowest(budget: Budget, time: int) -> int:
    """Returns the lowest level within the window."""
    now = budget.now
    while now[COUNT] and budget.until[now[HEAD]] <= time - now[WINDOW]:
        now[HEAD] += 1
        now[COUNT] -= 1
    lowest = budget.level[now[HEAD]] if now[COUNT] else now[LEVEL]
    # A level that began at this instant has not lasted yet and does not count as past.
    return int(min(lowest, now[LEVEL]) if time > now[SINCE] else lowest)


@njit(inline="always")
def _next_wake(budget: Budget, time: int) -> int:
    """Returns when the lowest level within the window leaves it, if it is what holds jobs back."""
    now = budget.now
    if now[RISE] == UNLIMITED_MW or _lowest(budget, time) >= now[LEVEL]:
        return int(NOT_YET)
    return int(budget.until[now[HEAD]] + now[WINDOW]) if now[COUNT] else int(NOT_YET)


@njit(inline="always")
def _may_rise(budget: Budget, job: int, time: int) -> bool:
    """Returns True if the ramp limit lets a job in now."""
    now = budget.now
    if now[RISE] == UNLIMITED_MW:
        return True
    return bool(now[LEVEL] + budget.job_mw[job] - _lowest(budget, time) <= now[RISE])


@njit(inline="always")
def _fits(jobs: Inputs, pool: Pool, budget: Budget, job: int) -> bool:
    """Returns True if processors and power of the cap are free for a job."""
    return bool(jobs.processors[job] <= pool.now[FREE] and budget.job_mw[job] <= budget.now[FREE_MW])


@njit(inline="always")
def _give_back(jobs: Inputs, pool: Pool, budget: Budget, job: int, time: int) -> None:
    pool.now[FREE] += jobs.processors[job]
    budget.now[FREE_MW] += budget.job_mw[job]
    _change(budget, time, -budget.job_mw[job])


@njit(inline="always")
def _end(
    jobs: Inputs, flags: Flags, pool: Pool, budget: Budget, profile: FreeProfile, watts: FreeProfile,
    time: int,
) -> None:  # fmt: skip
    """Ends the running job that ends first, of several the one that started first."""
    now = pool.now
    now[RUNNING] -= 1
    job = pool.end_of[now[RUNNING]]
    size, predicted_end = jobs.processors[job], pool.start[job] + jobs.predicted[job]
    if not pool.released[job]:
        forget(pool, job)
        _give_back(jobs, pool, budget, job, time)
    if flags.backfill == CONSERVATIVE:
        trim(profile, time)
        trim(watts, time)
        if predicted_end > time:
            add(profile, time, predicted_end, size)
            add(watts, time, predicted_end, budget.job_mw[job])
    if flags.usage:
        stop_serving(jobs, pool, job, jobs.run[job])
    now[ENDED] = 1


@njit(inline="always")
def _start(jobs: Inputs, flags: Flags, pool: Pool, budget: Budget, job: int, time: int) -> None:
    """Takes a job out of the queue and starts it."""
    take_out(pool, place_of(pool, job))
    run(jobs, flags, pool, job, time)
    pool.now[FREE] -= jobs.processors[job]
    budget.now[FREE_MW] -= budget.job_mw[job]
    _change(budget, time, budget.job_mw[job])


@njit(inline="always")
def _pass(
    jobs: Inputs, flags: Flags, pool: Pool, budget: Budget, profile: FreeProfile, watts: FreeProfile,
    time: int,
) -> None:  # fmt: skip
    """One scheduling pass."""
    now, queue = pool.now, pool.queue
    if flags.frees_predicted:
        while now[PREDICTED] and pool.predicted_at[now[PREDICTED] - 1] <= time:
            now[PREDICTED] -= 1
            job = pool.predicted_of[now[PREDICTED]]
            pool.released[job] = True
            _give_back(jobs, pool, budget, job, time)
    if now[WAITING] and (flags.power or flags.usage):
        sort(jobs, flags, pool, time)
    if flags.backfill == CONSERVATIVE:
        _start_reserved(jobs, flags, pool, budget, profile, watts, time)
        return
    while now[WAITING]:
        job = now[CHOSEN] if now[CHOSEN] >= 0 else queue[now[FIRST]]
        if not _fits(jobs, pool, budget, job):
            break
        if not _may_rise(budget, job, time):
            return
        _start(jobs, flags, pool, budget, job, time)
        now[CHOSEN] = -1
    if now[WAITING]:
        _overtake(jobs, flags, pool, budget, time)


@njit(inline="always")
def _overtake(jobs: Inputs, flags: Flags, pool: Pool, budget: Budget, time: int) -> None:
    """Reserves for the head of the queue, which does not fit, and starts who does not delay it."""
    now, queue, predicted = pool.now, pool.queue, jobs.predicted
    if now[CHOSEN] < 0:
        if flags.backfill != NONE:
            _reserve_head(jobs, flags, pool, budget)
        if flags.commits:
            now[CHOSEN] = queue[now[FIRST]]
    ordered = flags.backfill == EASY and not flags.by_submission
    while now[FREE] and flags.backfill != NONE:
        best, best_rank = -1, NOT_YET
        for i in range(now[FIRST], now[FIRST] + now[WAITING]):
            job = queue[i]
            if job == now[CHOSEN] or not _fits(jobs, pool, budget, job):
                continue
            spared = jobs.processors[job] <= now[SPARE] and budget.job_mw[job] <= budget.now[SPARE_MW]
            if not (spared or time + predicted[job] <= now[LATEST]) or not _may_rise(budget, job, time):
                continue
            rank = i
            if flags.by_submission:
                rank = job
            elif flags.backfill == SJBF:
                rank = predicted[job]
            if rank < best_rank or (rank == best_rank and job < best):
                best, best_rank = job, rank
                if ordered:
                    break
        if best < 0:
            break
        if time + predicted[best] > now[LATEST]:
            now[SPARE] -= jobs.processors[best]
            budget.now[SPARE_MW] -= budget.job_mw[best]
        _start(jobs, flags, pool, budget, best, time)
        pool.backfilled[best] = True


@njit(inline="always")
def _reserve_head(jobs: Inputs, flags: Flags, pool: Pool, budget: Budget) -> None:
    """Finds when the head of the queue fits, by the predicted ends, and what is left free then."""
    now, at, head = pool.now, pool.predicted_at, pool.queue[pool.now[FIRST]]
    size, more = jobs.processors[head], budget.job_mw[head]
    free, free_mw, i = now[FREE], budget.now[FREE_MW], now[PREDICTED]
    while free < size or free_mw < more or (i > 0 and at[i - 1] == at[i]):
        i -= 1
        free += jobs.processors[pool.predicted_of[i]]
        free_mw += budget.job_mw[pool.predicted_of[i]]
    now[LATEST] = at[i] - 1 if flags.strict else at[i]
    now[SPARE] = free - size if flags.spares else 0
    budget.now[SPARE_MW] = free_mw - more if flags.spares else 0


@njit(inner=True, cache=True, nogil=True)
def _start_reserved(
    jobs: Inputs, flags: Flags, pool: Pool, budget: Budget, profile: FreeProfile, watts: FreeProfile,
    time: int,
) -> None:  # fmt: skip
    """Gives every waiting job its place, and starts those whose place begins now."""
    now = pool.now
    trim(profile, time)
    trim(watts, time)
    waiting = pool.queue[now[FIRST] : now[FIRST] + now[WAITING]].copy()
    for again in (True, False):
        for job in waiting:
            placed = profile.start[job] != NOT_YET
            if placed == again and (now[ENDED] == 1 or not again):
                _reserve(profile, watts, jobs, budget, job)
    behind = False
    for job in waiting:
        if profile.start[job] > time:
            behind = True
            continue
        _start(jobs, flags, pool, budget, job, time)
        pool.backfilled[job] = behind


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _reserve(profile: FreeProfile, watts: FreeProfile, jobs: Inputs, budget: Budget, job: int) -> None:
    """Gives a job the earliest place of processors and power; one that has a place gives it back first."""
    lasts, size, more, begin = jobs.predicted[job], jobs.processors[job], budget.job_mw[job], 0
    if profile.start[job] != NOT_YET:
        begin = profile.start[job]
        add(profile, begin, begin + lasts, size)
        add(watts, begin, begin + lasts, more)
    # Processors and power have a profile each. The start that suits both is the fixed point of asking them in
    # turn, each from where the other's answer ends; answers only move later, so the search ends.
    begin = max(profile.at[0], watts.at[0])
    while True:
        later = _earliest(watts, _earliest(profile, begin, lasts, size), lasts, more)
        if later == begin:
            break
        begin = later
    if begin > LATEST_NS:
        profile.steps[1] = 1
        begin = LATEST_NS
    else:
        add(profile, begin, begin + lasts, -size)
        add(watts, begin, begin + lasts, -more)
    profile.start[job] = begin


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _earliest(profile: FreeProfile, begin: int, duration: int, amount: int) -> int:
    """Returns the earliest time from `begin` on from which so much is free for so long."""
    at, free, steps = profile.at, profile.free, profile.steps[0]
    for i in range(steps):
        if i + 1 < steps and at[i + 1] <= begin:
            continue
        if free[i] < amount:
            begin = at[i + 1]
        elif i + 1 == steps or at[i + 1] >= begin + duration:
            break
    return int(begin)
