"""Compiled parts of the order of a queue: who stands where, and what users have had by now.

Waiting jobs stand in `Pool.queue` in the order of their keys, ties in order of submission. Keys that change
while jobs wait are computed anew in every pass. `referee.py` sorts plainly.
"""

import numpy as np

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from twin.queue.pool import (
    ACCOUNT,
    BASE,
    DECAYED,
    DONE,
    FIRST,
    HELD,
    RATE,
    SHARE,
    TOTAL,
    TREE,
    WAITING,
    Flags,
    Inputs,
    Pool,
)  # fmt: skip
from twin.queue.recipe import GRAIN

SHUFFLED = 8
"""Places by which a waiting job moves on average, from where on the queue is sorted from scratch."""


@njit(inline="always")
def submit(jobs: Inputs, flags: Flags, pool: Pool, job: int) -> None:
    """Puts a job into the queue, behind those of its key."""
    queue, key = pool.queue, pool.key
    first, moving = pool.now[FIRST], flags.moving
    i = first + pool.now[WAITING]
    while i > first and not moving and key[queue[i - 1]] > key[job]:
        queue[i] = queue[i - 1]
        i -= 1
    queue[i] = job
    pool.now[WAITING] += 1


@njit(inline="always")
def place_of(pool: Pool, job: int) -> int:
    """Returns the place of a waiting job in the queue."""
    place = pool.now[FIRST]
    while pool.queue[place] != job:
        place += 1
    return int(place)


@njit(inline="always")
def take_out(pool: Pool, i: int) -> None:
    """Takes the job at place i out of the queue; the shorter side moves up."""
    queue, first = pool.queue, pool.now[FIRST]
    last = first + pool.now[WAITING] - 1
    pool.now[WAITING] -= 1
    # Most starts are at the head, where the window `first ... last` moves on and nothing is copied.
    if i - first <= last - i:
        for j in range(i, first, -1):
            queue[j] = queue[j - 1]
        pool.now[FIRST] += 1
    else:
        for j in range(i, last):
            queue[j] = queue[j + 1]


@njit(borrowing=True, cache=True, nogil=True)
def sort(jobs: Inputs, flags: Flags, pool: Pool, time: int) -> None:
    """Computes the keys of waiting jobs at this time, and sorts the queue by them, then by submission."""
    queue, key, first, used = pool.queue, pool.key, pool.now[FIRST], pool.used
    if flags.usage == TREE:
        _rank_in_tree(jobs, pool, time)
        by_key(pool)
        return
    for i in range(first, first + pool.now[WAITING]):
        job = queue[i]
        user = jobs.user[job]
        if flags.usage == TOTAL:
            # RATE * time - BASE is the sum of processors x (time - start) over the user's running jobs: one
            # multiplication in place of a loop over them.
            key[job] = pool.used[DONE, user] + (
                pool.used[RATE, user] * (time / NS_PER_S) - pool.used[BASE, user]
            )
        elif flags.usage == DECAYED:
            # Rounded, so that users with equal histories tie whatever the order in which they were summed.
            key[job] = np.rint(decayed(pool, user, time) / GRAIN)
        elif flags.usage == HELD:
            key[job] = used[RATE, user]
        else:
            aged = (time - jobs.submit[job]) / NS_PER_S / jobs.scale[job]
            key[job] = -(aged * aged * aged if flags.power == 3 else aged) * jobs.factor[job]
    by_key(pool)


@njit(inner=True, cache=True, nogil=True)
def _rank_in_tree(jobs: Inputs, pool: Pool, time: int) -> None:
    """Makes the key of every waiting job its rank by the level fairshare of its account, then of its user."""
    first, count = pool.now[FIRST], pool.now[WAITING]
    level, known = np.empty((2, count)), np.full(pool.used.shape[1], -1.0)
    for i in range(count):
        user = jobs.user[pool.queue[first + i]]
        account = int(pool.used[ACCOUNT, user])
        if known[user] < 0:
            whole = np.rint(decayed(pool, account, time) / GRAIN)
            known[account] = _level(pool.used[SHARE, account], whole, 1.0)
            known[user] = _level(pool.used[SHARE, user], np.rint(decayed(pool, user, time) / GRAIN), whole)
        level[0, i], level[1, i] = -known[account], -known[user]
    # Two stable sorts, the minor key first, are a lexicographic sort: by account, then by user.
    order = np.argsort(level[1], kind="mergesort")
    order = order[np.argsort(level[0][order], kind="mergesort")]
    rank, before = 0.0, order[0] if count else 0
    for i in order:
        later = level[0, i] != level[0, before] or level[1, i] != level[1, before]
        rank += later
        pool.key[pool.queue[first + i]], before = rank, i


@njit(inline="always")
def _level(share: float, used: float, used_by_all: float) -> float:
    """Returns share over the part of the siblings' usage: 0 without a share, infinite without usage."""
    if share == 0:
        return 0.0
    return float(share / (used / used_by_all) if used else np.inf)


@njit(inline="always")
def by_key(pool: Pool) -> None:
    """Sorts the queue by the keys of its jobs, then by submission."""
    queue, key, first = pool.queue, pool.key, pool.now[FIRST]
    # Insertion sort: between two passes keys hardly change their order, so it takes about n steps. After
    # `most` moves the queue is in disorder, and n log n is cheaper than n^2.
    moves, most = 0, SHUFFLED * pool.now[WAITING]
    for i in range(first + 1, first + pool.now[WAITING]):
        job, j = queue[i], i
        while j > first and (
            key[queue[j - 1]] > key[job] or (key[queue[j - 1]] == key[job] and queue[j - 1] > job)
        ):
            queue[j] = queue[j - 1]
            j -= 1
        queue[j] = job
        moves += i - j
        if moves > most:
            _sort_from_scratch(pool)
            break


@njit(inner=True, cache=True, nogil=True)
def _sort_from_scratch(pool: Pool) -> None:
    """The same for a queue in disorder."""
    queue, first = pool.queue, pool.now[FIRST]
    # Sorted by number first, so that the stable sort by key leaves ties in order of submission.
    waiting = np.sort(queue[first : first + pool.now[WAITING]])
    queue[first : first + len(waiting)] = waiting[np.argsort(pool.key[waiting], kind="mergesort")]


@njit(borrowing=True, cache=True, nogil=True)
def serve(jobs: Inputs, pool: Pool, job: int, time: int) -> None:
    """Lets what the user of a job has had grow with it, and what the account has had."""
    user, size, used = jobs.user[job], jobs.processors[job], pool.used
    while user >= 0:
        if pool.decay[0]:
            used[DONE, user], used[BASE, user] = decayed(pool, user, time), time / NS_PER_S
        else:
            used[BASE, user] += size * (time / NS_PER_S)
        used[RATE, user] += size
        user = int(used[ACCOUNT, user])


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def stop_serving(jobs: Inputs, pool: Pool, job: int, lasted: int) -> None:
    """Keeps what the user of a job has had by it, which ran so many nanoseconds, and the account."""
    user, size, used = jobs.user[job], jobs.processors[job], pool.used
    while user >= 0:
        if pool.decay[0]:
            time = pool.start[job] + lasted
            used[DONE, user], used[BASE, user] = decayed(pool, user, time), time / NS_PER_S
        else:
            used[DONE, user] += size * (lasted / NS_PER_S)
            used[BASE, user] -= size * (pool.start[job] / NS_PER_S)
        used[RATE, user] -= size
        user = int(used[ACCOUNT, user])


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def decayed(pool: Pool, user: int, time: int) -> float:
    """Returns the processor-seconds of a user, each worth exp(-decay x age)."""
    kept = np.exp(-pool.decay[0] * (time / NS_PER_S - pool.used[BASE, user]))
    return float(pool.used[DONE, user] * kept + pool.used[RATE, user] * ((1 - kept) / pool.decay[0]))
