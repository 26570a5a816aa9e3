"""The compiled event loop of a cluster of nodes: as `twin/queue/kernel.py`, but a job needs a place.

Whether a job fits is asked once for each class of jobs until resources become free, and whether it delays
the head once until nodes change. A reservation is found on a copy of the nodes from which running jobs are
taken by their predicted ends; a job that overtakes the head and ends later must leave room for the head
there. `referee.py` has the same meaning in SimPy.

Changes of nodes come before all else of an instant, with a pass of their own where each event has one. The
scheduler knows which nodes are out now, and not until when: a reservation counts on the others alone. If the
head does not fit on those even when they are empty, it has no reservation, and nobody waits for it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit, njit_inner
from ingest.core.errors import UsageError
from twin.nodes.faults import CURSOR, Faults, block, ended_by, faults_of, interrupt, requeue, unblock
from twin.nodes.outages import FAULT, NO_OUTAGES, UP
from twin.nodes.sleeping import Sleepers, enter, leave, sleepers, waking
from twin.placement.bookings import Bookings, book, cancel, move, none_booked
from twin.placement.choosing import Chooser, chooser, put, uncached
from twin.placement.cluster import NodeCluster
from twin.placement.demands import POPULAR, Demands, Mix, Wants
from twin.placement.fragmentation import share_popular
from twin.placement.nodes import GIVE, TAKE, Nodes, assign, could, idle
from twin.placement.recipe import Int, PlacementRecipe
from twin.placement.scores import FRAGMENTS, RANDOM
from twin.queue.jobs import LATEST_NS, QueueJobs
from twin.queue.kernel import forget, run
from twin.queue.ordering import place_of, sort, stop_serving, submit, take_out
from twin.queue.pool import (
    CHOSEN,
    CONSERVATIVE,
    ENDED,
    FIRST,
    LATEST,
    NONE,
    PREDICTED,
    RUNNING,
    SETTLED,
    SJBF,
    WAITING,
    Flags,
    Inputs,
    Pool,
    flags_of,
    inputs_of,
)  # fmt: skip
from twin.queue.pool import idle as idle_queue
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.reservations import NOT_YET
from twin.queue.rules import QueueRules

GIVEN, CHANGED, SUBMITTED, RECOUNT, HEAD = range(5)
"""Places of `ClusterState.tally`: how often resources became free, how often nodes changed, jobs submitted,
at how many the mix of tasks is counted anew, and the head that `delaying` is about."""
AFTER_END, AFTER_OUTAGE = np.int64(1), np.int64(2)
"""Values of `Pool.now[ENDED]`: some job has ended since the last pass, some node has changed."""
NOBODY, BEGINNING = np.int64(-1), np.int64(0)
"""No job, and the first. Not plain numbers: numba compiles a function anew for each literal."""


class ClusterState(NamedTuple):
    """The nodes, their future when the head of the queue starts, what jobs ask for, the mix of tasks and the
    rule of placement; the class of each job, its slots from `first` on; the states in which a class did not
    fit, and would have delayed the head; jobs submitted of each task; what is booked for later; sleep."""

    nodes: Nodes
    future: Nodes
    wants: Wants
    mix: Mix
    rule: Chooser
    class_of: Int
    first: Int
    slots: Int
    unfit: Int
    delaying: Int
    counts: Int
    tally: Int
    booked: Bookings
    sleep: Sleepers


def site_of(
    cluster: NodeCluster, demands: Demands, placement: PlacementRecipe, seed: int = 0,
    sleep: Sleepers | None = None,
) -> ClusterState:  # fmt: skip
    """Returns idle nodes, and jobs without places; nodes sleep as `sleep` says."""
    kinds, wants = len(demands.wants.gpus), demands.wants
    sizes = np.maximum(wants.gpus, 1)[demands.class_of]
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    tasks = demands.tasks
    mix = tasks._replace(weight=tasks.weight.copy(), total=tasks.total.copy())
    return ClusterState(
        idle(cluster), idle(cluster), wants, mix,
        chooser(placement, demands, cluster, seed), demands.class_of, first,
        np.full(int(first[-1]), -1, np.int64), np.full(kinds, -1, np.int64), np.full(kinds, -1, np.int64),
        np.zeros(len(tasks.gpus), np.int64), np.array([0, 0, 0, 1, -1], np.int64),
        none_booked(cluster, len(demands.class_of)),
        sleep or sleepers(None, len(cluster), np.zeros(len(demands.class_of), np.int64)),
    )  # fmt: skip


def play(
    jobs: QueueJobs,
    predicted: Int,
    site: ClusterState,
    keys: OrderKeys,
    backfill: Backfill,
    rules: QueueRules,
    faults: Faults | None = None,
) -> tuple[Int, NDArray[np.bool_]]:
    """Returns start (n,), nanoseconds, of each job, and which jobs overtook the head; slots are in `site`.

    With `faults`, which hold the runs that were ended afterwards, starts are those of last runs.

    Every job must fit into the empty cluster, and for conservative backfilling no prediction be below the run
    time.

    Raises:
        UsageError: the last jobs would start later than a time can be.
    """
    inputs = inputs_of(jobs, predicted, keys)
    if faults is not None or site.sleep.wake:  # how long jobs have still to run changes
        inputs = inputs._replace(run=inputs.run.copy(), predicted=inputs.predicted.copy())
    faults = faults or faults_of(NO_OUTAGES, len(site.nodes.gpus))
    pool = idle_queue(1, keys, int(inputs.user.max(initial=0)) + 1)
    if backfill == "conservative":
        site = site._replace(rule=uncached(site.rule))
    if not _play(inputs, flags_of(keys, backfill, rules), pool, site, faults):
        raise UsageError("the queue grows beyond 73 years: take a larger cluster or fewer jobs")
    assert not len(jobs) or pool.start.max() < NOT_YET, "a job never started"
    return pool.start, pool.backfilled


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _play(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, faults: Faults) -> bool:
    """Runs until every job has ended; returns False if time runs out."""
    count, now, next_of = len(jobs.submit), pool.now, faults.counts
    arrived = BEGINNING
    while arrived < count or now[RUNNING] or now[WAITING]:
        submission = jobs.submit[arrived] if arrived < count else NOT_YET
        end = pool.end_at[now[RUNNING] - 1] if now[RUNNING] else NOT_YET
        change = faults.at[next_of[CURSOR]] if next_of[CURSOR] < len(faults.at) else NOT_YET
        time = min(submission, end, change)
        if time == NOT_YET:
            return False
        if change == time:
            _change_nodes(jobs, flags, pool, site, faults, time)
            end = pool.end_at[now[RUNNING] - 1] if now[RUNNING] else NOT_YET
            if flags.passes_each_event or min(submission, end) > time:
                _pass(jobs, flags, pool, site, time, NOBODY)
                now[ENDED] = 0
                if time > LATEST_NS or site.booked.listed[1]:
                    return False
                continue
        while True:
            if submission == time and (flags.submissions_first or end > time):
                submit(jobs, flags, pool, arrived)
                _count_task(site, arrived)
                arrived += 1
            else:
                _end(jobs, flags, pool, site, time)
            submission = jobs.submit[arrived] if arrived < count else NOT_YET
            end = pool.end_at[now[RUNNING] - 1] if now[RUNNING] else NOT_YET
            if flags.passes_each_event or min(submission, end) > time:
                break
        new = arrived - 1 if flags.passes_each_event and not now[ENDED] else -1
        _pass(jobs, flags, pool, site, time, new)
        now[ENDED] = 0
        if time > LATEST_NS or site.booked.listed[1]:
            return False
    return True


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _change_nodes(
    jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, faults: Faults, time: int
) -> None:
    """Makes all changes of nodes at this time; a fault sends the jobs on its node back to the queue."""
    cursor, depth, width = faults.counts, faults.depth, site.nodes.left.shape[1]
    while cursor[CURSOR] < len(faults.at) and faults.at[cursor[CURSOR]] == time:
        n, kind = faults.node[cursor[CURSOR]], faults.kind[cursor[CURSOR]]
        cursor[CURSOR] += 1
        depth[n] += -1 if kind == UP else 1
        if kind == UP and depth[n] == 0:
            unblock(site.nodes, n)
            site.tally[GIVEN] += 1
        elif kind != UP and depth[n] == 1:
            block(site.nodes, n)
        if kind == FAULT:
            for job in ended_by(pool, site.first, site.slots, width, n, time):
                held = _slots(site, job)
                if flags.usage:
                    stop_serving(jobs, pool, job, time - pool.start[job])
                if not pool.released[job]:
                    forget(pool, job)
                    _free(site, job)
                interrupt(jobs, pool, faults, job, time, held)
                site.booked.begin[job] = -1
                requeue(flags, pool, job)
    site.tally[CHANGED] += 1
    pool.now[ENDED], pool.now[SETTLED] = AFTER_OUTAGE, 0


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _count_task(site: ClusterState, job: int) -> None:
    """Counts the task of a job; the mix is made anew whenever the jobs have doubled."""
    tally = site.tally
    tally[SUBMITTED] += 1
    if site.rule.code != FRAGMENTS:
        return
    site.counts[site.wants.task[site.class_of[job]]] += 1
    if tally[SUBMITTED] == tally[RECOUNT]:
        share_popular(site.mix, site.counts, POPULAR)
        tally[RECOUNT] *= 2
        site.rule.seen[:] = -1


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _slots(site: ClusterState, job: int) -> Int:
    """Returns the slots of a job."""
    return site.slots[site.first[job] : site.first[job + 1]]


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _move(nodes: Nodes, site: ClusterState, job: int, sign: int) -> None:
    """Takes the slots of a job on nodes (sign -1), or gives them back (sign 1)."""
    move(nodes, site.wants, site.class_of[job], _slots(site, job), sign)


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _free(site: ClusterState, job: int) -> None:
    """Gives back what a job holds."""
    _move(site.nodes, site, job, GIVE)
    cancel(site.booked, job, GIVE)
    site.tally[GIVEN] += 1
    site.tally[CHANGED] += 1


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _end(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, time: int) -> None:
    """Ends the running job that ends first, of several the one that started first."""
    now = pool.now
    now[RUNNING] -= 1
    job = pool.end_of[now[RUNNING]]
    if not pool.released[job]:
        forget(pool, job)
        _free(site, job)
    leave(site.sleep, _slots(site, job), site.nodes.left.shape[1], time)
    if flags.usage:
        stop_serving(jobs, pool, job, jobs.run[job])
    now[ENDED], now[SETTLED] = max(now[ENDED], AFTER_END), 0


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fits(site: ClusterState, kind: int) -> bool:
    """Returns True if a class can be placed now; what did not fit is not asked again until something is
    free."""
    if site.unfit[kind] == site.tally[GIVEN]:
        return False
    if could(site.nodes, site.wants, kind, site.rule.gang[kind]):
        return True
    site.unfit[kind] = site.tally[GIVEN]
    return False


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _put(site: ClusterState, job: int) -> None:
    """Places a job that fits."""
    put(site.nodes, site.wants, site.class_of[job], site.mix, site.rule, job, _slots(site, job))
    site.tally[CHANGED] += 1


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _waking(site: ClusterState, job: int, time: int) -> int:
    """Returns how long a job that has its place waits for its nodes."""
    return int(waking(site.sleep, _slots(site, job), site.nodes.left.shape[1], time))


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _start(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, job: int, time: int) -> None:
    """Starts a job that has its place, and takes it out of the queue; its run is longer by the time in which
    its nodes wake."""
    wakes = _waking(site, job, time)
    if wakes:
        site.sleep.woke[job] = wakes
        jobs.run[job] += wakes
        jobs.predicted[job] += wakes
    enter(site.sleep, _slots(site, job), site.nodes.left.shape[1])
    take_out(pool, place_of(pool, job))
    run(jobs, flags, pool, job, time)


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pass(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, time: int, new: int) -> None:
    """One scheduling pass; `new` is the job whose submission is all that happened, else -1."""
    now, queue = pool.now, pool.queue
    if flags.frees_predicted:
        while now[PREDICTED] and pool.predicted_at[now[PREDICTED] - 1] <= time:
            now[PREDICTED] -= 1
            job = pool.predicted_of[now[PREDICTED]]
            pool.released[job] = True
            _free(site, job)
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


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _overtakes(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, job: int, time: int) -> bool:
    """Starts a job that is not the head, if it fits and does not delay the head; returns True if it did."""
    now, kind, tally = pool.now, site.class_of[job], site.tally
    late = time + jobs.predicted[job] > now[LATEST]
    if (late and (not flags.spares or site.delaying[kind] == tally[CHANGED])) or not _fits(site, kind):
        return False
    before = tally[CHANGED]
    _put(site, job)
    if not late and time + jobs.predicted[job] + _waking(site, job, time) > now[LATEST]:
        late = True
        if not flags.spares:
            _move(site.nodes, site, job, GIVE)
            tally[CHANGED] = before
            return False
    if late:
        _move(site.future, site, job, TAKE)
        head = now[CHOSEN] if now[CHOSEN] >= 0 else pool.queue[now[FIRST]]
        if not could(site.future, site.wants, site.class_of[head], site.rule.gang[site.class_of[head]]):
            _move(site.future, site, job, GIVE)
            _move(site.nodes, site, job, GIVE)
            tally[CHANGED] = before  # nodes are as they were, so that what is known of other classes holds
            if site.rule.code != RANDOM:  # where a job of the class lies is drawn for each
                site.delaying[kind] = before
            return False
    _start(jobs, flags, pool, site, job, time)
    pool.backfilled[job] = True
    return True


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _reserve(flags: Flags, pool: Pool, site: ClusterState, head: int) -> None:
    """Finds when a job fits, by the predicted ends; leaves the nodes as they are then. If it fits on no nodes
    that are not out, nobody is late for it."""
    now, at, future = pool.now, pool.predicted_at, site.future
    assign(future, site.nodes)
    kind, i = site.class_of[head], now[PREDICTED]
    while i > 0:
        i -= 1
        _move(future, site, pool.predicted_of[i], GIVE)
        if (i == 0 or at[i - 1] != at[i]) and could(future, site.wants, kind, site.rule.gang[kind]):
            now[LATEST] = at[i] - 1 if flags.strict else at[i]
            return
    now[LATEST] = NOT_YET


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _book(jobs: Inputs, site: ClusterState, job: int, time: int) -> None:
    """Gives a waiting job the earliest place."""
    book(
        site.booked, site.nodes, site.wants, site.class_of, site.mix, site.rule, job, time,
        max(jobs.predicted[job], 1), site.first, site.slots,
    )  # fmt: skip


@njit_inner(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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
        _move(site.nodes, site, job, TAKE)
        _start(jobs, flags, pool, site, job, time)
        pool.backfilled[job] = behind
