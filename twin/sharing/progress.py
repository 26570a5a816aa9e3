"""Progress of jobs whose run is changed: compiled, exact, integers alone.

A job's work is nanoseconds of its run alone on the GPUs that it asked for. It holds GPUs since `at`, makes no
progress before `ready`, and then `rate` millionths of a nanosecond of work a nanosecond, rounded down when it
is changed, so that no event changes the end of a job that is left as it is.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.queue.jobs import LATEST_NS, Int
from twin.sharing.changes import PPM, ChangeRules
from twin.sharing.view import NOWHERE

COMING, WAITING, RUNNING, ENDED, REFUSED = range(5)
"""Values of `JobStates.status`."""
PREEMPT, START, RESUME, RESIZE, MOVE, SPEED, END, REFUSE, STALL, FAULT, SHRINK, EVICT = range(12)
"""Kinds of events."""
KINDS = (
    "preempt", "start", "resume", "resize", "move", "speed", "end", "refuse", "stall", "fault", "shrink",
    "evict",
)  # fmt: skip
WIDTH = 6
"""Columns of an event: time, kind, job, GPUs, node and rate after it."""
NEVER = LATEST_NS * 2
"""Time of what does not come."""


class JobStates(NamedTuple):
    """All that changes of jobs, one element a job; `saved`: what was left at its last checkpoint, `origin`:
    the time from which its checkpoints count; `whole`: who lies on a node beside others, or holds it alone,
    with how many of its GPUs, `part` (nodes,)."""

    status: Int
    left: Int
    at: Int
    ready: Int
    rate: Int
    gpus: Int
    node: Int
    leader: Int
    executed: Int
    served: Int
    since: Int
    first: Int
    ended: Int
    preempted: Int
    changed: Int
    lost: Int
    mode: Int
    held: Int
    charge: Int
    saved: Int
    origin: Int
    whole: Int
    part: Int


class Costs(NamedTuple):
    """The rules as numbers; `most` is -1 without a bound; `every`: nanoseconds between checkpoints, 0: none
    but those that a change of a run makes."""

    costs: bool
    amortises: int
    charges: bool
    most: int
    every: int


def initial(run_ns: Int, nodes: int) -> JobStates:
    """Returns the states before anything has happened."""
    count = len(run_ns)
    zeros = [np.zeros(count, np.int64) for _ in range(16)]
    node, leader = (np.full(count, NOWHERE, np.int64) for _ in range(2))
    status, at, ready, rate, gpus, executed, served, since, ended, *counted = zeros
    preempted, changed, lost, mode, had, charge, origin = counted
    return JobStates(
        status, run_ns.copy(), at, ready, rate, gpus, node, leader, executed, served, since,
        np.full(count, NOWHERE, np.int64), ended, preempted, changed, lost,
        mode, had, charge, run_ns.copy(), origin, np.full(nodes, NOWHERE, np.int64),
        np.zeros(nodes, np.int64),
    )  # fmt: skip


def costs_of(rules: ChangeRules, every: int = 0) -> Costs:
    """Returns the rules as numbers."""
    most = rules.most_preemptions
    return Costs(rules.costs, rules.amortises, rules.charges_events, -1 if most is None else most, every)


@njit(inline="always")
def done(lasted: int, rate: int) -> int:
    """Returns work done in a time, floor(lasted x rate / 10^6), without overflow."""
    return lasted // PPM * rate + lasted % PPM * rate // PPM


@njit(inline="always")
def needed(left: int, rate: int) -> int:
    """Returns the least time in which so much is done; `NEVER` if it is longer than all time."""
    if left // rate > NEVER // PPM:
        return NEVER
    return left // rate * PPM - (-(left % rate * PPM) // rate)


@njit(inner=True, cache=True, nogil=True)
def progress_to(s: JobStates, job: int, time: int) -> int:
    """Returns the work that a running job has done since it was changed."""
    begin = max(s.at[job], s.ready[job])
    return done(time - begin, s.rate[job]) if time > begin else 0


@njit(cache=True, nogil=True)
def next_end(s: JobStates, rows: Int) -> int:
    """Returns when the first of these jobs ends."""
    first = NEVER
    for job in rows:
        if s.status[job] == RUNNING and s.rate[job]:
            first = min(first, max(s.at[job], s.ready[job]) + needed(s.left[job], s.rate[job]))
    return first


@njit(cache=True, nogil=True)
def advance(s: JobStates, rows: Int, costs: Costs, last: int, time: int, events: Int) -> int:
    """Moves running jobs on from the last event, and ends those that are done; returns how many events."""
    count = 0
    for job in rows:
        if s.status[job] != RUNNING:
            continue
        s.executed[job] += time - last
        s.served[job] += (time - last) * s.gpus[job]
        if s.leader[job] < 0 or s.leader[job] == job:
            s.held[job] += (time - last) * s.gpus[job]
        begin = max(s.at[job], s.ready[job])
        if s.rate[job] and begin + needed(s.left[job], s.rate[job]) == time:
            s.lost[job] += (begin - s.at[job]) * s.gpus[job]
            s.status[job], s.left[job], s.ended[job] = ENDED, 0, time
            s.gpus[job], s.rate[job], s.node[job], s.leader[job] = 0, 0, NOWHERE, NOWHERE
            write(events, count, time, END, s, job)
            count += 1
        elif costs.charges:
            paused = min(time - s.at[job], s.charge[job])
            s.left[job] -= done(time - s.at[job] - paused, s.rate[job])
            s.lost[job] += paused * s.gpus[job]
            s.at[job] = s.ready[job] = time
    if count:
        _promote(s, rows)
    return count


@njit(inline="always")
def _promote(s: JobStates, rows: Int) -> None:
    """Lets the first of those who share lead them, and hold the nodes, where their leader has ended."""
    for row in range(len(rows)):
        old = s.leader[rows[row]]
        if old >= 0 and s.status[old] != RUNNING:
            for mate in rows:
                if s.leader[mate] == old:
                    s.leader[mate] = rows[row]
            for node in range(len(s.whole)):
                if s.whole[node] == old:
                    s.whole[node] = rows[row]
    for node in range(len(s.whole)):
        if s.whole[node] >= 0 and s.status[s.whole[node]] != RUNNING:
            s.whole[node], s.part[node] = NOWHERE, 0


@njit(cache=True, nogil=True)
def rest(s: JobStates, rows: Int, time: int) -> Int:
    """Returns the work that is left of each of these jobs (rows,)."""
    found = np.empty(len(rows), np.int64)
    for row in range(len(rows)):
        job = rows[row]
        found[row] = s.left[job] - (progress_to(s, job, time) if s.gpus[job] else 0)
    return found


@njit(inline="always")
def write(events: Int, count: int, time: int, kind: int, s: JobStates, job: int) -> None:
    """Writes an event of a job down."""
    events[count, 0], events[count, 1], events[count, 2] = time, kind, job
    events[count, 3], events[count, 4], events[count, 5] = s.gpus[job], s.node[job], s.rate[job]


@njit(inline="always")
def let_go(s: JobStates, job: int) -> None:
    """Takes all GPUs from a job."""
    s.gpus[job], s.rate[job], s.node[job], s.leader[job] = 0, 0, NOWHERE, NOWHERE
    for node in range(len(s.whole)):
        if s.whole[node] == job:
            s.whole[node], s.part[node] = NOWHERE, 0


@njit(cache=True, nogil=True)
def held(s: JobStates, rows: Int, pause: Int, spare: Int, costs: Costs, time: int) -> NDArray[np.bool_]:
    """Returns which of these jobs may not be changed now (rows,); jobs that share are held together.

    `spare`: what the prediction of a job is longer than its run.
    """
    found = np.zeros(len(rows), np.bool_)
    for row in range(len(rows)):
        job = rows[row]
        if s.status[job] != RUNNING:
            continue
        young = time - s.since[job] < costs.amortises * pause[job]
        left = s.left[job] - progress_to(s, job, time) + spare[job]
        short = costs.amortises > 0 and left <= pause[job]
        found[row] = young or short or (costs.most >= 0 and s.preempted[job] >= costs.most)
    for row in range(len(rows)):
        if found[row] and s.leader[rows[row]] >= 0:
            for other in range(len(rows)):
                if s.leader[rows[other]] == s.leader[rows[row]]:
                    found[other] = True
    return found


@njit(cache=True, nogil=True)
def holds_on_until(s: JobStates, rows: Int, pause: Int, costs: Costs, time: int) -> int:
    """Returns when the first of these running jobs may be changed again."""
    first = NEVER
    for job in rows:
        until = s.since[job] + costs.amortises * pause[job]
        if until > time:
            first = min(first, until)
    return first


@njit(cache=True, nogil=True)
def change(
    s: JobStates, rows: Int, gpus: Int, node: Int, leader: Int, mode: Int, whole: Int, part: Int, rate: Int,
    pause: Int, costs: Costs, time: int, events: Int,
) -> int:  # fmt: skip
    """Gives each of these jobs what it holds from now on; returns how many events that were.

    `leader` and `whole` are jobs. Preemptions come before all other changes.
    """
    count = 0
    for row in range(len(rows)):
        job = rows[row]
        if s.gpus[job] and not gpus[row]:
            settle(s, job, time, costs.every)
            s.status[job] = WAITING
            s.preempted[job] += 1
            let_go(s, job)
            write(events, count, time, PREEMPT, s, job)
            count += 1
    for row in range(len(rows)):
        job = rows[row]
        if not gpus[row]:
            continue
        kind = _kind(s, job, gpus[row], node[row], whole, part, rate[row])
        s.leader[job], s.mode[job], s.charge[job] = leader[row], mode[row], pause[job]
        if leader[row] >= 0:
            s.charge[job] = 0
            for mate in range(len(rows)):
                if leader[mate] == leader[row]:
                    s.charge[job] += pause[rows[mate]]
        if kind < 0:
            continue
        settle(s, job, time, costs.every)
        s.status[job] = RUNNING
        s.gpus[job], s.node[job], s.rate[job] = gpus[row], node[row], rate[row]
        if kind != SPEED:
            s.since[job] = time
        if kind == START:
            s.first[job] = time
        elif kind != SPEED:
            s.changed[job] += 1
            if costs.costs:
                s.ready[job] = time + pause[job]
        if kind != SPEED:
            s.saved[job], s.origin[job] = s.left[job], s.ready[job]
        write(events, count, time, kind, s, job)
        count += 1
    for place in range(len(whole)):
        s.whole[place], s.part[place] = whole[place], part[place]
    return count


@njit(inline="always")
def settle(s: JobStates, job: int, time: int, every: int) -> None:
    """Counts what a job has done, saved and lost up to now; a pause that is not over goes on."""
    if s.gpus[job]:
        begin = max(s.at[job], s.ready[job])
        if every and time > begin:
            last = s.origin[job] + (time - s.origin[job]) // every * every
            if last >= begin:
                s.saved[job] = s.left[job] - done(last - begin, s.rate[job])
        s.left[job] -= progress_to(s, job, time)
        if s.ready[job] > s.at[job]:
            s.lost[job] += (min(s.ready[job], time) - s.at[job]) * s.gpus[job]
    s.at[job], s.ready[job] = time, max(s.ready[job], time)


@njit(inline="always")
def _kind(s: JobStates, job: int, gpus: int, node: int, whole: Int, part: Int, rate: int) -> int:
    """Returns the kind of a change; -1 for none."""
    if not s.gpus[job]:
        return START if s.first[job] < 0 else RESUME
    if s.gpus[job] != gpus:
        return RESIZE
    if s.node[job] != node:
        return MOVE
    for place in range(len(whole)):
        if (whole[place] == job) != (s.whole[place] == job):
            return MOVE
        if whole[place] == job and part[place] != s.part[place]:
            return MOVE
    return SPEED if s.rate[job] != rate else -1
