"""The compiled scheduling pass on nodes: who starts now, and who may overtake the head of the queue.

Whether a job fits is asked once for each class of jobs until resources become free, and whether it delays
the head once until nodes change. A reservation is found on a copy of the nodes from which running jobs are
taken by their predicted ends; a job that overtakes the head and ends later must leave room for the head
there. Nodes that are out now have no room: the scheduler does not know until when. A head that does not fit
on the others even when they are empty has no reservation, and nobody waits for it."""

import numpy as np

from ingest.core.compiled import njit
from twin.nodes.sleeping import enter, waking
from twin.nodes.state import (
    AFTER_OUTAGE,
    CHANGED,
    FUTURE,
    GIVEN,
    HEAD,
    ClusterState,
    free,
    move_job,
    slots_of,
)  # fmt: skip
from twin.placement.bookings import book, cancel
from twin.placement.choosing import put
from twin.placement.nodes import GIVE, TAKE, assign, could, draft
from twin.placement.scores import RANDOM
from twin.queue.kernel import run
from twin.queue.ordering import place_of, sort, take_out
from twin.queue.pool import (
    CHOSEN,
    CONSERVATIVE,
    ENDED,
    FIRST,
    LATEST,
    NONE,
    PREDICTED,
    SETTLED,
    SJBF,
    WAITING,
    Flags,
    Inputs,
    Pool,
)  # fmt: skip
from twin.queue.reservations import NOT_YET


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _fits(site: ClusterState, kind: int) -> bool:
    """Returns True if a class can be placed now; what did not fit is not asked again until something is
    free."""
    # `tally[GIVEN]` counts how often resources became free; `unfit` has its value at the last refusal. Equal
    # values mean that nothing was freed since, so the class still does not fit.
    if site.unfit[kind] == site.tally[GIVEN]:
        return False
    if could(site.nodes, site.wants, kind, site.rule.gang[kind]):
        return True
    site.unfit[kind] = site.tally[GIVEN]
    return False


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _put(site: ClusterState, job: int) -> None:
    """Places a job that fits."""
    put(site.nodes, site.wants, site.class_of[job], site.mix, site.rule, job, slots_of(site, job))
    site.tally[CHANGED] += 1


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _waking(site: ClusterState, job: int, time: int) -> int:
    """Returns how long a job that has its place waits for its nodes."""
    return int(waking(site.sleep, slots_of(site, job), site.nodes.left.shape[1], time))


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _start(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, job: int, time: int) -> None:
    """Starts a job that has its place, and takes it out of the queue; its run is longer by the time in which
    its nodes wake."""
    wakes = _waking(site, job, time)
    if wakes:
        site.sleep.woke[job] = wakes
        jobs.run[job] += wakes
        jobs.predicted[job] += wakes
    enter(site.sleep, slots_of(site, job), site.nodes.left.shape[1])
    take_out(pool, place_of(pool, job))
    run(jobs, flags, pool, job, time)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def run_pass(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, time: int, new: int) -> None:
    """One scheduling pass; `new` is the job whose submission is all that happened, else -1."""
    now, queue = pool.now, pool.queue
    if flags.frees_predicted:
        while now[PREDICTED] and pool.predicted_at[now[PREDICTED] - 1] <= time:
            now[PREDICTED] -= 1
            job = pool.predicted_of[now[PREDICTED]]
            pool.released[job] = True
            free(site, job)
            now[SETTLED] = 0
    if new >= 0 and now[SETTLED] and queue[now[FIRST]] != new:
        if flags.backfill != NONE and _overtakes(jobs, flags, pool, site, new, time):
            now[SETTLED] = 0
        return
    if now[WAITING] and (flags.power or flags.usage):
        sort(jobs, flags, pool, time)
    if flags.backfill == CONSERVATIVE:
        _start_booked(jobs, flags, pool, site, time)
        return
    while now[WAITING]:
        job = now[CHOSEN] if now[CHOSEN] >= 0 else queue[now[FIRST]]
        if not _fits(site, site.class_of[job]):
            break
        _put(site, job)
        _start(jobs, flags, pool, site, job, time)
        now[CHOSEN] = -1
    if now[WAITING]:
        overtaken = _overtake(jobs, flags, pool, site, time)
        now[SETTLED] = not (overtaken or flags.power or flags.usage or flags.commits)


@njit(inner=True, cache=True, nogil=True)
def _overtake(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, time: int) -> bool:
    """Reserves for the head of the queue, which does not fit, and tries every other job once; returns True
    if one started."""
    now = pool.now
    if now[CHOSEN] < 0 or now[ENDED] == AFTER_OUTAGE:
        if flags.backfill != NONE:
            _reserve(flags, pool, site, now[CHOSEN] if now[CHOSEN] >= 0 else pool.queue[now[FIRST]])
        if flags.commits and now[CHOSEN] < 0:
            now[CHOSEN] = pool.queue[now[FIRST]]
    if flags.backfill == NONE:
        return False
    waiting = pool.queue[now[FIRST] : now[FIRST] + now[WAITING]].copy()
    head = now[CHOSEN] if now[CHOSEN] >= 0 else waiting[0]
    if site.tally[HEAD] != head:  # what delayed another head may not delay this one
        site.delaying[:] = -1
        site.tally[HEAD] = head
    if flags.by_submission:
        waiting.sort()
    elif flags.backfill == SJBF:
        waiting.sort()
        waiting = waiting[np.argsort(jobs.predicted[waiting], kind="mergesort")]
    overtaken = False
    for job in waiting:
        if job != head and site.unfit[site.class_of[job]] != site.tally[GIVEN]:
            overtaken |= _overtakes(jobs, flags, pool, site, job, time)
    return overtaken


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _overtakes(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, job: int, time: int) -> bool:
    """Starts a job that is not the head, if it fits and does not delay the head; returns True if it did."""
    now, kind, tally = pool.now, site.class_of[job], site.tally
    # `delaying[kind]` has the value of `tally[CHANGED]` at which a job of this class would have delayed the
    # head; while the nodes are unchanged the answer stands.
    late = time + jobs.predicted[job] > now[LATEST]
    if (late and (not flags.spares or site.delaying[kind] == tally[CHANGED])) or not _fits(site, kind):
        return False
    before = tally[CHANGED]
    _put(site, job)
    if not late and time + jobs.predicted[job] + _waking(site, job, time) > now[LATEST]:
        late = True
        if not flags.spares:
            move_job(site.nodes, site, job, GIVE)
            tally[CHANGED] = before
            return False
    if late:
        future = draft(site.nodes, site.states, FUTURE)
        move_job(future, site, job, TAKE)
        head = now[CHOSEN] if now[CHOSEN] >= 0 else pool.queue[now[FIRST]]
        if not could(future, site.wants, site.class_of[head], site.rule.gang[site.class_of[head]]):
            move_job(future, site, job, GIVE)
            move_job(site.nodes, site, job, GIVE)
            tally[CHANGED] = before  # nodes are as they were, so that what is known of other classes holds
            if site.rule.code != RANDOM:  # where a job of the class lies is drawn for each
                site.delaying[kind] = before
            return False
    _start(jobs, flags, pool, site, job, time)
    pool.backfilled[job] = True
    return True


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _reserve(flags: Flags, pool: Pool, site: ClusterState, head: int) -> None:
    """Finds when a job fits, by the predicted ends; leaves the nodes as they are then. If it fits on no nodes
    that are not out, nobody is late for it."""
    now, at, future = pool.now, pool.predicted_at, draft(site.nodes, site.states, FUTURE)
    assign(future, site.nodes)
    kind, i = site.class_of[head], now[PREDICTED]
    # Running jobs are removed from the copy in order of their predicted ends, those of one instant together,
    # until the head can be placed.
    while i > 0:
        i -= 1
        move_job(future, site, pool.predicted_of[i], GIVE)
        if (i == 0 or at[i - 1] != at[i]) and could(future, site.wants, kind, site.rule.gang[kind]):
            now[LATEST] = at[i] - 1 if flags.strict else at[i]
            return
    now[LATEST] = NOT_YET


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _book(jobs: Inputs, site: ClusterState, job: int, time: int) -> None:
    """Gives a waiting job the earliest place."""
    book(
        site.booked, site.nodes, site.states, site.wants, site.class_of, site.mix, site.rule, job, time,
        max(jobs.predicted[job], 1), site.first, site.slots,
    )  # fmt: skip


@njit(inner=True, cache=True, nogil=True)
def _start_booked(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, time: int) -> None:
    """Gives every waiting job its place, those that have one first, if some job has ended, or all in order,
    if some node has changed; starts those whose place begins now."""
    now, booked = pool.now, site.booked
    waiting = pool.queue[now[FIRST] : now[FIRST] + now[WAITING]].copy()
    if now[ENDED]:
        for job in waiting:
            if booked.begin[job] >= 0:
                cancel(booked, job, TAKE)
                cancel(booked, job, GIVE)
                if now[ENDED] == AFTER_OUTAGE:
                    booked.begin[job] = -1
                else:
                    _book(jobs, site, job, time)
    for job in waiting:
        if booked.begin[job] < 0:
            _book(jobs, site, job, time)
    behind = False
    for job in waiting:
        if booked.begin[job] > time or booked.begin[job] < 0:
            behind = True
            continue
        cancel(booked, job, TAKE)
        move_job(site.nodes, site, job, TAKE)
        _start(jobs, flags, pool, site, job, time)
        pool.backfilled[job] = behind
