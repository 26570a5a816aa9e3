"""The compiled event loop of one pool: no tick, integer nanoseconds, arrays.

Next event, then a scheduling pass, until no event is left. Waiting jobs stand in `queue` in the order of
their keys; running jobs stand in two lists, by end and by predicted end, the earliest at the tail. A pass
costs the length of the queue, an event that of the list of running jobs. `twin.queue.referee` has the same
meaning in SimPy.
"""

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.errors import UsageError
from twin.queue.dependencies import Dependencies, Submissions, first_due, lay_down, release, submissions_of
from twin.queue.jobs import LATEST_NS, Int, QueueJobs
from twin.queue.ordering import by_key, place_of, serve, sort, stop_serving, submit, take_out
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
    SETTLED,
    SPARE,
    WAITING,
    Flags,
    Inputs,
    Pool,
    Scoring,
    flags_of,
    idle,
    inputs_of,
)  # fmt: skip
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.reservations import NOT_YET, FreeProfile, add, empty, plan, trim
from twin.queue.rules import QueueRules
from twin.queue.scoring import note, remember, score, scoring_of


def play(
    jobs: QueueJobs, predicted: Int, processors: int, keys: OrderKeys, backfill: Backfill, rules: QueueRules,
    trail: Scoring | None = None, dependencies: Dependencies | None = None,
) -> tuple[Int, NDArray[np.bool_]]:  # fmt: skip
    """Returns start (n,), nanoseconds, of each job, and which jobs overtook the head of the queue.

    Every job must fit into the pool, and for conservative backfilling no prediction be below the run time.
    With a `trail` the scores of a network are sampled, and its arrays hold the choices afterwards. With
    `dependencies` jobs that have a preceding one are submitted by its end.

    Raises:
        UsageError: the last jobs would start later than a time can be.
    """
    assert dependencies is None or keys.scorer is None, "a network knows jobs by their place in the log"
    inputs = inputs_of(jobs, predicted, keys)
    submissions = None if dependencies is None else submissions_of(inputs, keys, dependencies)
    if dependencies is not None:
        inputs = inputs._replace(**{name: getattr(inputs, name).copy() for name in inputs._fields})
    users = int(inputs.user.max(initial=0)) + 1
    pool = idle(processors, keys, users)
    scoring = None
    if keys.scorer is not None:
        scoring = scoring_of(jobs, predicted, processors, keys.scorer, users, trail)
    profile = empty(processors, len(jobs) if backfill == "conservative" else 0)
    if not _play(inputs, flags_of(keys, backfill, rules), pool, profile, scoring, submissions):
        raise UsageError("the queue grows beyond 73 years: take a larger pool or fewer jobs")
    assert not len(jobs) or pool.start.max() < NOT_YET, "a job never started"
    if submissions is None:
        return pool.start, pool.backfilled
    place = np.argsort(submissions.of)
    return pool.start[place], pool.backfilled[place]


@njit(borrowing=True, cache=True, nogil=True)
def _play(
    jobs: Inputs, flags: Flags, pool: Pool, profile: FreeProfile, scoring: Scoring | None,
    submissions: Submissions | None,
) -> bool:  # fmt: skip
    """Runs until every job has ended; returns False if time runs out."""
    count, now = len(jobs.submit), pool.now
    arrived = 0
    while arrived < count or now[RUNNING]:
        submission = jobs.submit[arrived] if arrived < count else NOT_YET
        if submissions is not None:
            submission = first_due(submissions)
        # Running jobs are sorted by end, the earliest last: the next end is read and removed at the tail.
        end = pool.end_at[now[RUNNING] - 1] if now[RUNNING] else NOT_YET
        time = min(submission, end)
        while True:
            # All events of one instant are applied before one scheduling pass. Some published simulators pass
            # after each event instead, which changes who is backfilled; `passes_each_event` reproduces them.
            if submission == time and (flags.submissions_first or end > time):
                if submissions is not None:
                    lay_down(jobs, pool, submissions, arrived)
                submit(jobs, flags, pool, arrived)
                arrived += 1
            else:
                job = _end(jobs, flags, pool, profile, scoring, time)
                if submissions is not None:
                    release(submissions, job, time)
            submission = jobs.submit[arrived] if arrived < count else NOT_YET
            if submissions is not None:
                submission = first_due(submissions)
            end = pool.end_at[now[RUNNING] - 1] if now[RUNNING] else NOT_YET
            if flags.passes_each_event or min(submission, end) > time:
                break
        new = arrived - 1 if flags.passes_each_event and not now[ENDED] else -1
        _pass(jobs, flags, pool, profile, scoring, time, new)
        now[ENDED] = 0
        if time > LATEST_NS or profile.steps[1]:
            return False
    return True


@njit(inline="always")
def _end(
    jobs: Inputs, flags: Flags, pool: Pool, profile: FreeProfile, scoring: Scoring | None, time: int
) -> int:
    """Ends the running job that ends first, of several the one that started first, and returns it."""
    now = pool.now
    now[RUNNING] -= 1
    job = pool.end_of[now[RUNNING]]
    size, predicted_end = jobs.processors[job], pool.start[job] + jobs.predicted[job]
    # A job that outlives its prediction has given its processors back already, under rules that free them
    # at the predicted end. They must not be given back twice.
    if not pool.released[job]:
        forget(pool, job)
        now[FREE] += size
    if flags.backfill == CONSERVATIVE:
        trim(profile, time)
        if predicted_end > time:
            add(profile, time, predicted_end, size)
    if flags.usage:
        stop_serving(jobs, pool, job, jobs.run[job])
    if scoring is not None:
        remember(jobs, scoring, job)
    now[ENDED], now[SETTLED] = 1, 0
    return int(job)


@njit(inline="always")
def forget(pool: Pool, job: int) -> None:
    """Takes a job out of the list by predicted end."""
    now, at, of = pool.now, pool.predicted_at, pool.predicted_of
    i = now[PREDICTED] - 1
    # A job that ends now is among the earliest predicted ends, so the search starts at the tail.
    while of[i] != job:
        i -= 1
    now[PREDICTED] -= 1
    for j in range(i, now[PREDICTED]):
        at[j], of[j] = at[j + 1], of[j + 1]


@njit(inline="always")
def insert(at: Int, of: Int, count: int, when: int, job: int) -> None:
    """Puts a job into a list whose earliest is at the tail; the first of equals stays there."""
    i = count
    while i > 0 and at[i - 1] <= when:
        at[i], of[i] = at[i - 1], of[i - 1]
        i -= 1
    at[i], of[i] = when, job


@njit(borrowing=True, cache=True, nogil=True)
def run(jobs: Inputs, flags: Flags, pool: Pool, job: int, time: int) -> None:
    """Counts a job among those that run from now on; the queue and what is free are its caller's."""
    now = pool.now
    pool.start[job] = time
    insert(pool.end_at, pool.end_of, now[RUNNING], time + jobs.run[job], job)
    insert(pool.predicted_at, pool.predicted_of, now[PREDICTED], time + jobs.predicted[job], job)
    now[RUNNING] += 1
    now[PREDICTED] += 1
    if flags.usage:
        serve(jobs, pool, job, time)


@njit(inline="always")
def _start(jobs: Inputs, flags: Flags, pool: Pool, job: int, time: int) -> None:
    """Starts a job that its caller takes out of the queue."""
    run(jobs, flags, pool, job, time)
    pool.now[FREE] -= jobs.processors[job]


@njit(inline="always")
def _pass(
    jobs: Inputs, flags: Flags, pool: Pool, profile: FreeProfile, scoring: Scoring | None, time: int, new: int
) -> None:
    """One scheduling pass; `new` is the job whose submission is all that happened, else -1."""
    now, queue = pool.now, pool.queue
    if flags.frees_predicted:
        while now[PREDICTED] and pool.predicted_at[now[PREDICTED] - 1] <= time:
            now[PREDICTED] -= 1
            job = pool.predicted_of[now[PREDICTED]]
            pool.released[job] = True
            now[FREE] += jobs.processors[job]
            now[SETTLED] = 0
    # After a pass that left the queue settled, only an end of a job can let waiting jobs start. The one
    # exception is a job that has just arrived: it alone is tried, in O(1) in place of a pass over the queue.
    if new >= 0 and now[SETTLED] and queue[now[FIRST]] != new:
        size, end = jobs.processors[new], time + jobs.predicted[new]
        if flags.backfill != NONE and size <= now[FREE] and (size <= now[SPARE] or end <= now[LATEST]):
            _overtakes(jobs, flags, pool, new, _late_place_of(pool, new), time)
        return
    if scoring is not None:
        score(jobs, pool, scoring, time)
        by_key(pool)
    elif now[WAITING] and flags.moving:
        sort(jobs, flags, pool, time)
    if flags.backfill == CONSERVATIVE:
        _start_reserved(jobs, flags, pool, profile, time)
        return
    while now[WAITING]:
        job = now[CHOSEN] if now[CHOSEN] >= 0 else queue[now[FIRST]]
        if jobs.processors[job] > now[FREE]:
            break
        if scoring is not None:
            note(jobs, pool, scoring, job, time, False)
        take_out(pool, place_of(pool, job))
        _start(jobs, flags, pool, job, time)
        now[CHOSEN] = -1
    if now[WAITING]:
        _overtake(jobs, flags, pool, scoring, time)
        now[SETTLED] = not (flags.moving or flags.commits)


@njit(inline="always")
def _overtake(jobs: Inputs, flags: Flags, pool: Pool, scoring: Scoring | None, time: int) -> None:
    """Reserves for the head of the queue, which does not fit, and starts who does not delay it."""
    now, queue, processors, predicted = pool.now, pool.queue, jobs.processors, jobs.predicted
    if now[CHOSEN] < 0:
        if scoring is not None:
            note(jobs, pool, scoring, queue[now[FIRST]], time, False)
        if flags.backfill != NONE and (now[FREE] or flags.commits):
            _reserve_head(jobs, flags, pool)
        if flags.commits:
            now[CHOSEN] = queue[now[FIRST]]
    if flags.backfill == EASY and not flags.by_submission:
        _overtake_in_order(jobs, flags, pool, scoring, time)
        return
    while now[FREE] and flags.backfill != NONE:
        free, latest, spare = now[FREE], now[LATEST], now[SPARE]
        best, best_rank = -1, NOT_YET
        for i in range(now[FIRST], now[FIRST] + now[WAITING]):
            job = queue[i]
            if processors[job] > free or (processors[job] > spare and time + predicted[job] > latest):
                continue
            rank = job if flags.by_submission else predicted[job]
            # Equal ranks go by job number, the order of submission: the tie-break of the reference simulator.
            if rank < best_rank or (rank == best_rank and job < best):
                best, best_rank = job, rank
        if best < 0:
            break
        _overtakes(jobs, flags, pool, best, place_of(pool, best), time)


@njit(inline="always")
def _overtake_in_order(jobs: Inputs, flags: Flags, pool: Pool, scoring: Scoring | None, time: int) -> None:
    """Starts who does not delay the head, in the order of the queue. With each start less is free and less to
    spare, so that who had to stay before still has to."""
    now, queue, processors, predicted = pool.now, pool.queue, jobs.processors, jobs.predicted
    i, free, latest, spare = now[FIRST], now[FREE], now[LATEST], now[SPARE]
    while free and i < now[FIRST] + now[WAITING]:
        job = queue[i]
        size = processors[job]
        if size > free or (size > spare and time + predicted[job] > latest):
            i += 1
            continue
        if scoring is not None:
            note(jobs, pool, scoring, job, time, True)
        first = now[FIRST]
        _overtakes(jobs, flags, pool, job, i, time)
        i, free, spare = i + now[FIRST] - first, now[FREE], now[SPARE]


@njit(inline="always")
def _late_place_of(pool: Pool, job: int) -> int:
    """Returns the place in the queue of a job that came late, and stands far behind in most orders."""
    place = pool.now[FIRST] + pool.now[WAITING] - 1
    while pool.queue[place] != job:
        place -= 1
    return int(place)


@njit(inline="always")
def _overtakes(jobs: Inputs, flags: Flags, pool: Pool, job: int, place: int, time: int) -> None:
    """Starts a job that is not the head of the queue."""
    # A job that ends before the head's reservation uses none of the processors that stay free beside it.
    if time + jobs.predicted[job] > pool.now[LATEST]:
        pool.now[SPARE] -= jobs.processors[job]
    take_out(pool, place)
    _start(jobs, flags, pool, job, time)
    pool.backfilled[job] = True


@njit(inline="always")
def _reserve_head(jobs: Inputs, flags: Flags, pool: Pool) -> None:
    """Finds when the head of the queue fits, by the predicted ends, and what is left free then."""
    now, at = pool.now, pool.predicted_at
    free, i, size = now[FREE], now[PREDICTED], jobs.processors[pool.queue[now[FIRST]]]
    # Jobs with equal predicted ends free their processors at one instant. The walk goes on through all of
    # them, else the processors that are free beyond the head's need would be counted too low.
    while free < size or (i > 0 and at[i - 1] == at[i]):
        i -= 1
        free += jobs.processors[pool.predicted_of[i]]
    # `strict`: a job that ends at the very nanosecond at which the head starts counts as too late.
    now[LATEST] = at[i] - 1 if flags.strict else at[i]
    now[SPARE] = free - size if flags.spares else 0


@njit(cache=True, nogil=True)
def _start_reserved(jobs: Inputs, flags: Flags, pool: Pool, profile: FreeProfile, time: int) -> None:
    """Gives every waiting job its place, and starts those whose place begins now."""
    now, queue = pool.now, pool.queue
    trim(profile, time)
    waiting = queue[now[FIRST] : now[FIRST] + now[WAITING]].copy()
    plan(profile, waiting, jobs.predicted, jobs.processors, now[ENDED] == 1)
    behind = False
    for job in waiting:
        if profile.start[job] > time:
            behind = True
            continue
        take_out(pool, place_of(pool, job))
        _start(jobs, flags, pool, job, time)
        pool.backfilled[job] = behind
