"""The compiled event loop of a cluster of nodes: as `twin/queue/kernel.py`, but a job needs a place.

`passes.py` has the scheduling pass, `state.py` what is known, and `referee.py` the same meaning in SimPy.
Changes of nodes come before all else of an instant, with a pass of their own where each event has one."""

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.errors import UsageError
from twin.nodes.faults import CURSOR, Faults, block, ended_by, faults_of, interrupt, requeue, unblock
from twin.nodes.outages import FAULT, NO_OUTAGES, UP
from twin.nodes.passes import run_pass
from twin.nodes.sleeping import leave
from twin.nodes.state import (
    AFTER_END,
    AFTER_OUTAGE,
    BEGINNING,
    CHANGED,
    GIVEN,
    NOBODY,
    RECOUNT,
    SUBMITTED,
    ClusterState,
    free,
    slots_of,
)  # fmt: skip
from twin.placement.choosing import uncached
from twin.placement.demands import POPULAR
from twin.placement.fragmentation import share_popular
from twin.placement.recipe import Int
from twin.placement.scores import FRAGMENTS
from twin.queue.jobs import LATEST_NS, QueueJobs
from twin.queue.kernel import forget
from twin.queue.ordering import stop_serving, submit
from twin.queue.pool import ENDED, RUNNING, SETTLED, WAITING, Flags, Inputs, Pool, flags_of, inputs_of
from twin.queue.pool import idle as idle_queue
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.reservations import NOT_YET
from twin.queue.rules import QueueRules


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


@njit(borrowing=True, cache=True, nogil=True)
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
                run_pass(jobs, flags, pool, site, time, NOBODY)
                now[ENDED] = 0
                if time > LATEST_NS or site.booked.listed[1]:
                    return False
                continue
        while True:
            if submission == time and (flags.submissions_first or end > time):
                submit(jobs, flags, pool, arrived)
                count_task(site, arrived)
                arrived += 1
            else:
                end_next(jobs, flags, pool, site, time)
            submission = jobs.submit[arrived] if arrived < count else NOT_YET
            end = pool.end_at[now[RUNNING] - 1] if now[RUNNING] else NOT_YET
            if flags.passes_each_event or min(submission, end) > time:
                break
        new = arrived - 1 if flags.passes_each_event and not now[ENDED] else -1
        run_pass(jobs, flags, pool, site, time, new)
        now[ENDED] = 0
        if time > LATEST_NS or site.booked.listed[1]:
            return False
    return True


@njit(inner=True, cache=True, nogil=True)
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
                held = slots_of(site, job)
                if flags.usage:
                    stop_serving(jobs, pool, job, time - pool.start[job])
                if not pool.released[job]:
                    forget(pool, job)
                    free(site, job)
                interrupt(jobs, pool, faults, job, time, held)
                site.booked.begin[job] = -1
                requeue(flags, pool, job)
    site.tally[CHANGED] += 1
    pool.now[ENDED], pool.now[SETTLED] = AFTER_OUTAGE, 0


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def count_task(site: ClusterState, job: int) -> None:
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


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def end_next(jobs: Inputs, flags: Flags, pool: Pool, site: ClusterState, time: int) -> None:
    """Ends the running job that ends first, of several the one that started first."""
    now = pool.now
    now[RUNNING] -= 1
    job = pool.end_of[now[RUNNING]]
    if not pool.released[job]:
        forget(pool, job)
        free(site, job)
    leave(site.sleep, slots_of(site, job), site.nodes.left.shape[1], time)
    if flags.usage:
        stop_serving(jobs, pool, job, jobs.run[job])
    now[ENDED], now[SETTLED] = max(now[ENDED], AFTER_END), 0
