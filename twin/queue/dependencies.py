"""Jobs that are submitted when another one has ended: the job before each, and the think time after its end.

A user waits for a result, thinks, and submits the next job. The submit time is the end of the preceding job
in this replay plus the think time, so that a slower scheduler gets later submissions, as on a real machine
(Zakay and Feitelson, "Preserving user behavior characteristics in trace-based simulation of parallel job
scheduling", MASCOTS 2014; Feitelson, "Workload Modeling for Computer Systems Performance Evaluation", 2015).
At one instant jobs are submitted in the order of the log; one whose predecessor ends at this instant, with no
think time, comes behind those that were submitted before that end.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from twin.queue.jobs import LONGEST_NS, Float, Int, QueueJobs
from twin.queue.pool import Inputs, Pool
from twin.queue.recipe import OrderKeys
from twin.queue.reservations import NOT_YET


@dataclass(frozen=True, eq=False)
class Dependencies:
    """Place of the preceding job of each, -1 for none (n,), and think times (n,), nanoseconds."""

    preceding: Int
    think_ns: Int

    @property
    def waits(self) -> NDArray[np.bool_]:
        """Which jobs have a preceding one (n,)."""
        return self.preceding >= 0

    def check(self, jobs: int) -> None:
        """Checks that every job can be submitted once.

        Raises:
            UsageError: places or think times beyond all reason, or jobs that wait for each other.
        """
        if not len(self.preceding) == len(self.think_ns) == jobs:
            raise UsageError(f"dependencies of {len(self.preceding)} jobs, and there are {jobs}")
        if jobs and not -1 <= self.preceding.min() <= self.preceding.max() < jobs:
            raise UsageError("a preceding job is none of the jobs; take it out")
        if jobs and not 0 <= self.think_ns.min() <= self.think_ns.max() < LONGEST_NS:
            raise UsageError("a think time is negative, or beyond all reason; take the job out")
        if on_cycle(self.preceding).any():
            raise UsageError("preceding jobs lead back to themselves; take them out")

    def submit_ns(self, jobs: QueueJobs, start_ns: Int) -> Int:
        """Returns when jobs were submitted (n,), if they started then."""
        before = np.maximum(self.preceding, 0)
        after: Int = start_ns[before] + jobs.run_ns[before] + self.think_ns
        return np.where(self.waits, after, jobs.submit_ns)


@dataclass(frozen=True, eq=False)
class MovedSubmissions:
    """The dependencies of a schedule, and its recorded submissions (n,), nanoseconds, in the order of the
    log."""

    dependencies: Dependencies
    recorded_ns: Int

    def again(self, jobs: QueueJobs) -> tuple[QueueJobs, Dependencies]:
        """Returns some of the jobs as they are played again, and who of them follows whom; their numbers are
        their places in the log, from 1 on.

        A job whose preceding one is not among them is submitted as it was in the schedule. A number beyond
        the log is that of a new job, which follows nobody.
        """
        waits, count = self.dependencies, len(self.recorded_ns)
        place = np.minimum(jobs.number - 1, count)
        at = np.full(count + 1, -1, np.int64)
        at[place] = np.arange(len(jobs))
        before = np.append(waits.preceding, -1)[place]
        preceding = np.where(before >= 0, at[before], -1)
        follows = preceding >= 0
        submit_ns = np.where(follows, np.append(self.recorded_ns, 0)[place], jobs.submit_ns)
        think_ns = np.where(follows, np.append(waits.think_ns, 0)[place], 0)
        return replace(jobs, submit_ns=submit_ns), Dependencies(preceding, think_ns)


def on_cycle(before: Int) -> NDArray[np.bool_]:
    """Returns which elements lie on a cycle (n,); `before` is the place that each leads to, -1 for none."""
    to = before.tolist()
    found, seen = np.zeros(len(to), np.bool_), [0] * len(to)
    for first in range(len(to)):
        at, walk = first, first + 1
        while at >= 0 and not seen[at]:
            seen[at], at = walk, to[at]
        if at >= 0 and seen[at] == walk:  # this walk met itself: everything from here on is the cycle
            while not found[at]:
                found[at], at = True, to[at]
    return found


class Submissions(NamedTuple):
    """Jobs in the order of the log, and who is submitted when.

    `given`, `key`: what the event loop copies to the next place when a job is submitted, since its places are
    in order of submission; `of`: job of each place (n,). `alone`: jobs with no preceding one.
    `after[first[j]:first[j + 1]]`: jobs that wait for the end of j, `think` after it. `log_weight` (1,): that
    of log10 of the submission in the key. `due_at`, `due_of`: heap of (time, job) of those whose preceding
    job has ended. `now` (2,): how many of `alone` are submitted, and the size of the heap.
    """

    given: Inputs
    key: Float
    log_weight: Float
    alone: Int
    first: Int
    after: Int
    think: Int
    of: Int
    due_at: Int
    due_of: Int
    now: Int


ALONE, DUE = range(2)
"""Places of `Submissions.now`."""


def submissions_of(inputs: Inputs, keys: OrderKeys, dependencies: Dependencies) -> Submissions:
    """Returns who is submitted when."""
    before, count = dependencies.preceding, len(inputs.submit)
    after = np.argsort(before, kind="stable")[np.count_nonzero(before < 0) :]
    first = np.searchsorted(before[after], np.arange(count + 1))
    return Submissions(
        inputs, keys.static, np.array([keys.log_weight], np.float64), np.flatnonzero(before < 0), first,
        after, dependencies.think_ns, *(np.zeros(size, np.int64) for size in (count, count, count, 2)),
    )  # fmt: skip


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def first_due(own: Submissions) -> int:
    """Returns when the next job is submitted, as far as is known now."""
    first = own.due_at[0] if own.now[DUE] else NOT_YET
    if own.now[ALONE] < len(own.alone):
        first = min(first, own.given.submit[own.alone[own.now[ALONE]]])
    return int(first)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def lay_down(jobs: Inputs, pool: Pool, own: Submissions, place: int) -> None:
    """Copies the next job that is submitted to its place."""
    given, job, time = own.given, -1, NOT_YET
    if own.now[ALONE] < len(own.alone):
        job = own.alone[own.now[ALONE]]
        time = given.submit[job]
    if own.now[DUE] and (own.due_at[0] < time or (own.due_at[0] == time and own.due_of[0] < job)):
        time, job = own.due_at[0], own.due_of[0]
        _pop(own)
        pool.key[place] = own.key[job] + own.log_weight[0] * later(time, given.submit[job])
    else:
        own.now[ALONE] += 1
        pool.key[place] = own.key[job]
    own.of[place], jobs.submit[place] = job, time
    jobs.run[place], jobs.processors[place] = given.run[job], given.processors[job]
    jobs.predicted[place], jobs.user[place] = given.predicted[job], given.user[job]
    jobs.scale[place], jobs.factor[place] = given.scale[job], given.factor[job]


@njit(borrowing=True, cache=True, nogil=True)
def release(own: Submissions, place: int, time: int) -> None:
    """Lets users whose job has ended think of their next ones."""
    before = own.of[place]
    for i in range(own.first[before], own.first[before + 1]):
        job = own.after[i]
        _push(own, time + own.think[job], job)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _push(own: Submissions, time: int, job: int) -> None:
    at, of, i = own.due_at, own.due_of, own.now[DUE]
    own.now[DUE] += 1
    while i and not _before(own, (i - 1) // 2, time, job):
        at[i], of[i] = at[(i - 1) // 2], of[(i - 1) // 2]
        i = (i - 1) // 2
    at[i], of[i] = time, job


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _pop(own: Submissions) -> None:
    own.now[DUE] -= 1
    at, of, size, i = own.due_at, own.due_of, own.now[DUE], 0
    time, job = at[size], of[size]  # the last one sinks from the top
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and not _before(own, child, at[child + 1], of[child + 1]):
            child += 1
        if not _before(own, child, time, job):
            break
        at[i], of[i] = at[child], of[child]
        i = child
    at[i], of[i] = time, job


@njit(inline="always")
def _before(own: Submissions, i: int, time: int, job: int) -> bool:
    """Returns True if what stands there is due before that job."""
    return bool(own.due_at[i] < time or (own.due_at[i] == time and own.due_of[i] < job))


@njit(cache=True, nogil=True)
def later(time: int, recorded: int) -> float:
    """Returns log10 of a submission over the recorded one, both in seconds; what is not positive is 0.1 s."""
    now_s = time / NS_PER_S if time > 0 else 0.1
    then_s = recorded / NS_PER_S if recorded > 0 else 0.1
    return math.log10(now_s) - math.log10(then_s)
