"""The compiled event loop of a queue over sites.

At one instant links change first, then transfers and runs end in the order in which jobs were started, then
jobs are submitted, then one scheduling pass is made. A job holds its GPUs while its data come, then runs. Its
rate is that of its way in the present step of the links: when they change, what is left is computed anew, and
so is its end. Predicted ends assume that links stay as they are. `referee.py` has the same meaning in SimPy.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.queue.jobs import LATEST_NS, Int, QueueJobs
from twin.queue.kernel import place_of, serve, sort, stop_serving, submit, take_out
from twin.queue.pool import (
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
from twin.sites.inputs import FULL_RATE, NOWHERE, SITE_RULES, SiteJobs, SiteLinks, SiteOptions, SiteRule

FIRST_SITE, LEAST_EGRESS, FASTEST, AT_DATA = range(len(SITE_RULES))
NS_PER_MS = 1_000_000


class Running(NamedTuple):
    """One element a job: its way, 1 while its data come and 0 when it runs, what is left (kB x ns a second,
    or ns of work x rate), since when at which speed, its end; `of` lists the jobs that run, as started.

    free: GPUs of each site. step (2,): the present step of the links, 1 if time ran out."""

    option: Int
    coming: Int
    left: Int
    since: Int
    speed: Int
    end: Int
    of: Int
    free: Int
    step: Int


def play(
    jobs: QueueJobs, predicted: Int, asked: SiteJobs, gpus: Int, links: SiteLinks, options: SiteOptions,
    keys: OrderKeys, backfill: Backfill, rule: SiteRule,
) -> tuple[Int, Int, Int, NDArray[np.bool_]]:  # fmt: skip
    """Returns start and end (n,), nanoseconds, the way (n,) of each job, and which overtook the head.

    Raises:
        UsageError: a job waits for a link that stays dead, or the last jobs end later than a time can be.
    """
    inputs = inputs_of(jobs, predicted, keys)
    pool = idle(1, keys.static, int(inputs.user.max(initial=0)) + 1)
    count = len(jobs)
    option, coming, left, since, speed, of = (np.zeros(count, np.int64) for _ in range(6))
    end = np.full(count, NOT_YET, np.int64)
    free = gpus.astype(np.int64).copy()
    state = Running(option, coming, left, since, speed, end, of, free, np.zeros(2, np.int64))
    flags = flags_of(keys, backfill, INSTANT)
    if not _play(inputs, flags, pool, state, asked, links, options, SITE_RULES.index(rule)):
        raise UsageError(
            "a job waits for a link that stays dead, or the queue grows beyond 73 years: change the links, "
            "or take fewer jobs"
        )
    return pool.start, state.end, state.option, pool.backfilled


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _play(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, rule: int,
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
            for r in range(now[RUNNING]):
                _advance(state, state.of[r], time)
                _set_speed(state, asked, links, options, state.of[r], time)
        _end(jobs, flags, pool, state, asked, links, options, time)
        while arrived < count and jobs.submit[arrived] == time:
            submit(jobs, flags, pool, arrived)
            arrived += 1
        if now[WAITING]:
            _pass(jobs, flags, pool, state, asked, links, options, rule, time)
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _advance(state: Running, job: int, time: int) -> None:
    """Takes off what was done since the last change of speed."""
    state.left[job] = max(0, state.left[job] - state.speed[job] * (time - state.since[job]))
    state.since[job] = time


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _needs(left: int, speed: int) -> int:
    """Nanoseconds for what is left, rounded up."""
    if left == 0:
        return 0
    return int(NOT_YET if speed == 0 else -(-left // speed))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _after(time: int, length: int) -> int:
    """Time plus a length that may be for ever."""
    return NOT_YET if length > LATEST_NS or time > LATEST_NS else time + length


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _set_speed(
    state: Running, asked: SiteJobs, links: SiteLinks, options: SiteOptions, job: int, time: int
) -> None:
    """Gives a job the speed of the present step of the links, and its end at it."""
    step, option = state.step[0], state.option[job]
    if state.coming[job]:
        state.speed[job] = links.kb_s[step, asked.data_at[job], options.home[option]]
    else:
        state.speed[job] = options.rate[step, option]
    state.end[job] = _after(time, _needs(state.left[job], state.speed[job]))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _end(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, time: int,
) -> None:  # fmt: skip
    """Ends transfers and runs whose time has come."""
    now, kept = pool.now, 0
    for r in range(now[RUNNING]):
        job = state.of[r]
        if state.end[job] == time and state.coming[job]:
            state.coming[job], state.left[job], state.since[job] = 0, jobs.run[job] * FULL_RATE, time
            _set_speed(state, asked, links, options, job, time)
        if state.end[job] == time:
            state.free[:] += options.need[state.option[job]]
            if flags.by_user:
                stop_serving(jobs, pool, job, time - pool.start[job])
        else:
            state.of[kept] = job
            kept += 1
    now[RUNNING] = kept


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fits(free: Int, need: Int) -> bool:
    return bool((need <= free).all())


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _length(
    jobs: Inputs, step: int, asked: SiteJobs, links: SiteLinks, options: SiteOptions, job: int, option: int
) -> int:
    """Predicted nanoseconds of a job from its start, transfer included, as links are; `NOT_YET`: never."""
    data, home, coming = asked.data_at[job], options.home[option], 0
    if data != NOWHERE and data != home and asked.data_kb[job]:
        coming = _needs(asked.data_kb[job] * NS_PER_S, links.kb_s[step, data, home])
    return int(_after(coming, _needs(jobs.predicted[job] * FULL_RATE, options.rate[step, option])))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _choose(
    jobs: Inputs, state: Running, asked: SiteJobs, links: SiteLinks, options: SiteOptions, rule: int, job: int
) -> int:
    """The way in which a job starts now; -1: none."""
    step, data, size = state.step[0], asked.data_at[job], asked.size[job]
    best, best_major, best_minor, bound = -1, 0, 0, False
    if rule == AT_DATA and data != NOWHERE:
        for option in range(options.first[size], options.first[size + 1]):
            bound = bound or options.home[option] == data
    for option in range(options.first[size], options.first[size + 1]):
        home = options.home[option]
        if not _fits(state.free, options.need[option]):
            continue
        if bound and home != data:
            continue
        length = _length(jobs, step, asked, links, options, job, option)
        if length == NOT_YET:
            continue
        if rule == FIRST_SITE:
            return option
        usd = options.nano_usd_ms[option] * (jobs.predicted[job] // NS_PER_MS)
        if data != NOWHERE:
            usd += links.nano_usd_kb[data, home] * asked.data_kb[job]
        major, minor = (usd, length) if rule == LEAST_EGRESS else (length, usd)
        if best < 0 or major < best_major or (major == best_major and minor < best_minor):
            best, best_major, best_minor = option, major, minor
    return best


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _start(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, job: int, option: int, time: int,
) -> None:  # fmt: skip
    """Starts a job of the queue."""
    now, data = pool.now, asked.data_at[job]
    take_out(pool, place_of(pool, job))
    pool.start[job], state.option[job], state.since[job] = time, option, time
    state.free[:] -= options.need[option]
    state.coming[job] = int(data != NOWHERE and data != options.home[option] and asked.data_kb[job] > 0)
    state.left[job] = asked.data_kb[job] * NS_PER_S if state.coming[job] else jobs.run[job] * FULL_RATE
    _set_speed(state, asked, links, options, job, time)
    state.of[now[RUNNING]] = job
    now[RUNNING] += 1
    if flags.by_user:
        serve(jobs, pool, job, time)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pass(
    jobs: Inputs, flags: Flags, pool: Pool, state: Running, asked: SiteJobs, links: SiteLinks,
    options: SiteOptions, rule: int, time: int,
) -> None:  # fmt: skip
    """One scheduling pass."""
    now, queue = pool.now, pool.queue
    if flags.power or flags.by_user:
        sort(jobs, flags, pool, time)
    while now[WAITING]:
        job = queue[now[FIRST]]
        option = _choose(jobs, state, asked, links, options, rule, job)
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
        option = -1 if job == head else _choose(jobs, state, asked, links, options, rule, job)
        if option < 0:
            continue
        end = _after(time, _length(jobs, state.step[0], asked, links, options, job, option))
        if end > latest:
            future -= options.need[option]
            if not _ever(future, asked, options, head):
                future += options.need[option]
                continue
        _start(jobs, flags, pool, state, asked, links, options, job, option, time)
        pool.backfilled[job] = True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _ever(free: Int, asked: SiteJobs, options: SiteOptions, job: int) -> bool:
    """True if GPUs are free for a job in some way, whatever its links."""
    size = asked.size[job]
    for option in range(options.first[size], options.first[size + 1]):
        if _fits(free, options.need[option]):
            return True
    return False


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _predicted_end(jobs: Inputs, state: Running, options: SiteOptions, job: int, time: int) -> int:
    """The end of a running job by its prediction, as links are."""
    left = max(0, state.left[job] - state.speed[job] * (time - state.since[job]))
    rate = options.rate[state.step[0], state.option[job]]
    if state.coming[job]:
        arrives = _after(time, _needs(left, state.speed[job]))
        return int(_after(arrives, _needs(jobs.predicted[job] * FULL_RATE, rate)))
    left = max(0, left + (jobs.predicted[job] - jobs.run[job]) * FULL_RATE)
    return int(_after(time, _needs(left, rate)))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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
