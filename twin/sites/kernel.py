"""The compiled event loop of a queue over sites.

At one instant links change first, then transfers and runs end in the order in which jobs were started, then
jobs are submitted, then one scheduling pass is made. A job holds its GPUs while its data come, then runs. Its
rate is that of its way in the present step of the links: when they change, what is left is computed anew, and
so is its end. Predicted ends assume that links stay as they are. `referee.py` has the same meaning in SimPy.
"""

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.queue.jobs import LATEST_NS, Int, QueueJobs
from twin.queue.ordering import place_of, serve, sort, stop_serving, submit, take_out
from twin.queue.pool import (
    CONSERVATIVE,
    FIRST,
    NONE,
    RUNNING,
    SJBF,
    WAITING,
    Flags,
    Inputs,
    Pool,
    flags_of,
    idle,
    inputs_of,
)
from twin.queue.recipe import Backfill, OrderKeys
from twin.queue.reservations import NOT_YET
from twin.queue.rules import INSTANT
from twin.sites.choosing import (
    Choosing,
    Running,
    after,
    bound_to_data,
    choose,
    choosing_of,
    fits,
    length_of,
    needs,
    ranks,
)
from twin.sites.inputs import (
    FULL_RATE,
    NOWHERE,
    SITE_RULES,
    SiteCarbon,
    SiteJobs,
    SiteLinks,
    SiteOptions,
    SiteRule,
)
from twin.sites.reservations import change, give_from, lasts, no_profile, restart


def play(
    jobs: QueueJobs, predicted: Int, asked: SiteJobs, gpus: Int, links: SiteLinks, options: SiteOptions,
    keys: OrderKeys, backfill: Backfill, rule: SiteRule, carbon: SiteCarbon | None = None,
    by: Choosing | None = None,
) -> tuple[Int, Int, Int, NDArray[np.bool_]]:  # fmt: skip
    """Returns start and end (n,), nanoseconds, the way (n,) of each job, and which overtook the head.

    `by` is the choice of a network, and its trail; without it, that of the rule.

    Raises:
        UsageError: a job waits for a link that stays dead, or the last jobs end later than a time can be.
    """
    inputs = inputs_of(jobs, predicted, keys)
    pool = idle(1, keys, int(inputs.user.max(initial=0)) + 1)
    count = len(jobs)
    option, coming, left, since, speed, of = (np.zeros(count, np.int64) for _ in range(6))
    end = np.full(count, NOT_YET, np.int64)
    free, wanted = gpus.astype(np.int64).copy(), np.zeros(len(gpus), np.int64)
    profile = no_profile(count if backfill == "conservative" else 0, len(gpus))
    state = Running(option, coming, left, since, speed, end, of, free, wanted, np.zeros(1, np.int64), profile)
    flags = flags_of(keys, backfill, INSTANT)
    made = choosing_of(SITE_RULES.index(rule), gpus, carbon, None) if by is None else by
    if not _play(inputs, flags, pool, state, asked, links, options, made):
        raise UsageError(
            "a job waits for a link that stays dead, or the queue grows beyond 73 years: change the links, "
            "or take fewer jobs"
        )
    return pool.start, state.end, state.option, pool.backfilled


@njit(cache=True, nogil=True)
def _play(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, by: Choosing,
) -> bool:  # fmt: skip
    """Runs until every job has ended; returns False if some never does."""
    count, now, arrived, steps = len(jobs.submit), pool.now, 0, len(links.at)
    while arrived < count or now[RUNNING] or now[WAITING]:
        changes = links.at[state.step[0] + 1] if state.step[0] + 1 < steps else NOT_YET
        time = min(changes, jobs.submit[arrived] if arrived < count else NOT_YET)
        for r in range(now[RUNNING]):
            time = min(time, state.end[state.of[r]])
        if time > LATEST_NS:
            return False
        if changes == time:
            state.step[0] += 1
            state.profile.begin[:] = -1  # what was reserved went by the links before
            for r in range(now[RUNNING]):
                _advance(state, state.of[r], time)
                _set_speed(state, asked, links, options, state.of[r], time)
        ended = _end(jobs, flags, pool, state, asked, links, options, time)
        while arrived < count and jobs.submit[arrived] == time:
            submit(jobs, flags, pool, arrived)
            _want(jobs, state, asked, arrived, 1)
            arrived += 1
        if now[WAITING] and flags.backfill == CONSERVATIVE:
            _start_reserved(jobs, flags, pool, state, asked, links, options, by, time, ended)
        elif now[WAITING]:
            _pass(jobs, flags, pool, state, asked, links, options, by, time)
    return True


@njit(inner=True, cache=True, nogil=True)
def _want(jobs: Inputs, state: Running, asked: SiteJobs, job: int, sign: int) -> None:
    """Counts the GPUs of a job that waits at the site of its data; takes them off with the sign -1."""
    if asked.data_at[job] != NOWHERE:
        state.wanted[asked.data_at[job]] += sign * jobs.processors[job]


@njit(inner=True, cache=True, nogil=True)
def _advance(state: Running, job: int, time: int) -> None:
    """Takes off what was done since the last change of speed."""
    state.left[job] = max(0, state.left[job] - state.speed[job] * (time - state.since[job]))
    state.since[job] = time


@njit(inner=True, cache=True, nogil=True)
def _set_speed(
    state: Running, asked: SiteJobs, links: SiteLinks, options: SiteOptions, job: int, time: int
) -> None:
    """Gives a job the speed of the present step of the links, and its end at it."""
    step, option = state.step[0], state.option[job]
    if state.coming[job]:
        state.speed[job] = links.kb_s[step, asked.data_at[job], options.home[option]]
    else:
        state.speed[job] = options.rate[step, option]
    state.end[job] = after(time, needs(state.left[job], state.speed[job]))


@njit(inner=True, cache=True, nogil=True)
def _end(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, time: int,
) -> bool:  # fmt: skip
    """Ends transfers and runs whose time has come; returns True if a run has ended."""
    now, kept = pool.now, 0
    for r in range(now[RUNNING]):
        job = state.of[r]
        if state.end[job] == time and state.coming[job]:
            state.coming[job], state.left[job], state.since[job] = 0, jobs.run[job] * FULL_RATE, time
            _set_speed(state, asked, links, options, job, time)
        if state.end[job] == time:
            state.free[:] += options.need[state.option[job]]
            if flags.usage:
                stop_serving(jobs, pool, job, time - pool.start[job])
        else:
            state.of[kept] = job
            kept += 1
    ended = kept < now[RUNNING]
    now[RUNNING] = kept
    return bool(ended)


@njit(inner=True, cache=True, nogil=True)
def _start(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, job: int, option: int, time: int,
) -> None:  # fmt: skip
    """Starts a job of the queue."""
    now, data = pool.now, asked.data_at[job]
    take_out(pool, place_of(pool, job))
    _want(jobs, state, asked, job, -1)
    pool.start[job], state.option[job], state.since[job] = time, option, time
    state.free[:] -= options.need[option]
    state.coming[job] = int(data != NOWHERE and data != options.home[option] and asked.data_kb[job] > 0)
    state.left[job] = asked.data_kb[job] * NS_PER_S if state.coming[job] else jobs.run[job] * FULL_RATE
    _set_speed(state, asked, links, options, job, time)
    state.of[now[RUNNING]] = job
    now[RUNNING] += 1
    if flags.usage:
        serve(jobs, pool, job, time)


@njit(inner=True, cache=True, nogil=True)
def _pass(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, by: Choosing, time: int,
) -> None:  # fmt: skip
    """One scheduling pass."""
    now, queue = pool.now, pool.queue
    if flags.power or flags.usage:
        sort(jobs, flags, pool, time)
    while now[WAITING]:
        job = queue[now[FIRST]]
        option = choose(jobs, pool, state, asked, links, options, by, job, time)
        if option < 0:
            break
        _start(jobs, flags, pool, state, asked, links, options, job, option, time)
    if not now[WAITING] or flags.backfill == NONE:
        return
    waiting = queue[now[FIRST] : now[FIRST] + now[WAITING]].copy()
    head = waiting[0]
    latest, future = _reserved(jobs, pool, state, asked, options, head, time)
    if flags.backfill == SJBF:
        waiting.sort()
        waiting = waiting[np.argsort(jobs.predicted[waiting], kind="mergesort")]
    for job in waiting:
        option = -1 if job == head else choose(jobs, pool, state, asked, links, options, by, job, time)
        if option < 0:
            continue
        end = after(time, length_of(jobs, state.step[0], asked, links, options, job, option))
        if end > latest:
            future -= options.need[option]
            if not _ever(future, asked, options, head):
                future += options.need[option]
                continue
        _start(jobs, flags, pool, state, asked, links, options, job, option, time)
        pool.backfilled[job] = True


@njit(inner=True, cache=True, nogil=True)
def _ever(free: Int, asked: SiteJobs, options: SiteOptions, job: int) -> bool:
    """True if GPUs are free for a job in some way, whatever its links."""
    size = asked.size[job]
    for option in range(options.first[size], options.first[size + 1]):
        if fits(free, options.need[option]):
            return True
    return False


@njit(inner=True, cache=True, nogil=True)
def _predicted_end(jobs: Inputs, state: Running, options: SiteOptions, job: int, time: int) -> int:
    """The end of a running job by its prediction, as links are."""
    left = max(0, state.left[job] - state.speed[job] * (time - state.since[job]))
    rate = options.rate[state.step[0], state.option[job]]
    if state.coming[job]:
        arrives = after(time, needs(left, state.speed[job]))
        return int(after(arrives, needs(jobs.predicted[job] * FULL_RATE, rate)))
    left = max(0, left + (jobs.predicted[job] - jobs.run[job]) * FULL_RATE)
    return int(after(time, needs(left, rate)))


@njit(inner=True, cache=True, nogil=True)
def _reserved(
    jobs: Inputs, pool: Pool, state: Running, asked: SiteJobs, options: SiteOptions, head: int, time: int
) -> tuple[int, Int]:
    """When GPUs are free for the head by the predicted ends, and which are free then.

    Now, if only links keep it waiting. `NOT_YET` if it waits for runs that do not move."""
    free = state.free.copy()
    if _ever(free, asked, options, head):
        return time, free
    count = pool.now[RUNNING]
    ends = np.zeros(count, np.int64)
    for r in range(count):
        ends[r] = _predicted_end(jobs, state, options, state.of[r], time)
    order = np.argsort(ends, kind="mergesort")
    for i in range(count):
        if ends[order[i]] == NOT_YET:
            break
        free += options.need[state.option[state.of[order[i]]]]
        if (i + 1 == count or ends[order[i + 1]] != ends[order[i]]) and _ever(free, asked, options, head):
            return ends[order[i]], free
    return NOT_YET, free


@njit(inner=True, cache=True, nogil=True)
def _start_reserved(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, by: Choosing, time: int, ended: bool,
) -> None:  # fmt: skip
    """Gives every waiting job a time and a way, those that have them first, if a run has ended; starts those
    whose time is now. When links change, all is planned anew. A job that no link serves has no claim."""
    now, profile = pool.now, state.profile
    if flags.power or flags.usage:
        sort(jobs, flags, pool, time)
    waiting = pool.queue[now[FIRST] : now[FIRST] + now[WAITING]].copy()
    restart(profile, time, state.free)
    for r in range(now[RUNNING]):
        job = state.of[r]
        end = _predicted_end(jobs, state, options, job, time)
        if end != NOT_YET:
            give_from(profile, end, options.need[state.option[job]])
    for job in waiting:
        if profile.begin[job] >= 0:
            change(profile, profile.begin[job], profile.end[job], -options.need[profile.option[job]])
    for job in waiting:
        if profile.begin[job] >= 0 and ended:
            change(profile, profile.begin[job], profile.end[job], options.need[profile.option[job]])
            _reserve(jobs, state, asked, links, options, by, job)
    for job in waiting:
        if profile.begin[job] < 0:
            _reserve(jobs, state, asked, links, options, by, job)
    behind = False
    for job in waiting:
        if profile.begin[job] != time:
            behind = True
            continue
        _start(jobs, flags, pool, state, asked, links, options, job, profile.option[job], time)
        pool.backfilled[job] = behind


@njit(inner=True, cache=True, nogil=True)
def _reserve(
    jobs: Inputs,
    state: Running,
    asked: SiteJobs,
    links: SiteLinks,
    options: SiteOptions,
    by: Choosing,
    job: int,
) -> None:
    """Reserves the earliest time from which some way has its GPUs to the predicted end, and the best way."""
    profile, step, size = state.profile, state.step[0], asked.size[job]
    bound = bound_to_data(asked, options, by.rule, job)
    profile.begin[job] = -1
    for i in range(profile.steps[0]):
        if profile.at[i] > LATEST_NS:
            return
        best, best_major, best_minor, best_length = -1, 0, 0, 0
        for option in range(options.first[size], options.first[size + 1]):
            if bound and options.home[option] != asked.data_at[job]:
                continue
            length = length_of(jobs, step, asked, links, options, job, option)
            if length == NOT_YET:
                continue
            if not lasts(profile, i, profile.at[i] + length, options.need[option]):
                continue
            major, minor = ranks(
                jobs, state, asked, links, options, by, by.rule, job, option, length, profile.at[i]
            )
            if best < 0 or major < best_major or (major == best_major and minor < best_minor):
                best, best_major, best_minor, best_length = option, major, minor, length
        if best >= 0:
            begin = profile.at[i]
            profile.begin[job], profile.end[job], profile.option[job] = begin, begin + best_length, best
            change(profile, begin, begin + best_length, -options.need[best])
            return
