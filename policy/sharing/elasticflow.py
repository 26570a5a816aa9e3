"""ElasticFlow: admission by deadline, the least share that meets it, the rest where it costs least (Gu et
al., ASPLOS 2023).

A job is admitted if it and all admitted ones can meet their deadlines: by earliest deadline each gets the
least number of GPUs (a power of two on its measured curve) with which it ends in time beside those before it,
fewer where fewer are free (the minimum satisfactory share). One that cannot is refused and counts as missed.
GPUs that are left go, one size at a time, to the job whose GPU time grows least for each of them. Ties go by
submission.

Other than there: decisions are made at events, not in slots of a minute; under rules with costs a share is
planned to end a pause before the deadline, and a job grows only where that saves two pauses. GPUs that may
not be taken away now count as taken. Jobs that miss their deadline, or have none, run on what is left.
`edf-elastic`, the paper's EDF: no admission, by deadline each job gets the fastest size that is free.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.queue.jobs import UNKNOWN, Float, Int
from twin.sharing import placing
from twin.sharing.changes import PPM
from twin.sharing.view import Allocation, SharingView

MOST_SIZES = 16
WORTH_PAUSES = 2
"""A running job grows if that saves more than so many of its pauses."""


def sizes_of(speeds: Int) -> Int:
    """Returns the sizes that a job may have: powers of two, ascending, each faster than all smaller ones; the
    only one of a rigid job."""
    able = np.flatnonzero(speeds > 0)
    powers = able[(able & (able - 1)) == 0]
    best, found = 0, []
    for size in (able if len(able) == 1 else powers).tolist():
        if speeds[size] > best:
            best = int(speeds[size])
            found.append(size)
    return np.array(found, np.int64)


@dataclass
class SizeTables:
    """Sizes (rows, 16), 0 where there are no more, and speeds on them over the job's own."""

    known: dict[int, tuple[Int, Float]] = field(default_factory=dict)

    def of(self, view: SharingView) -> tuple[Int, Float]:
        """Returns the sizes of each row, and the speeds on them."""
        sizes, speeds = np.zeros((len(view), MOST_SIZES), np.int64), np.zeros((len(view), MOST_SIZES))
        for row, job in enumerate(view.job.tolist()):
            if job not in self.known:
                curve = view.facts.speeds.curves.speeds(job)
                found = sizes_of(curve)
                self.known[job] = found, curve[found] / PPM
            own, fast = self.known[job]
            sizes[row, : len(own)], speeds[row, : len(own)] = own, fast
        return sizes, speeds


@dataclass
class DeadlineAdmission:
    """Jobs that were admitted, and the sizes of all that were seen."""

    admitted: set[int] = field(default_factory=set)
    tables: SizeTables = field(default_factory=SizeTables)

    def decide(self, view: SharingView) -> Allocation:
        """Returns the shares from now on; new jobs that cannot meet their deadline are refused."""
        sizes, speeds = self.tables.of(view)
        due, order = _due(view)
        total = int(view.free.sum())
        chosen = np.array([int(job) in self.admitted for job in view.job], np.bool_) | (due < 0)
        late, share = least_shares(order, chosen, view.left_ns, due, sizes, speeds, view.now_ns, total)
        for row in np.flatnonzero(~chosen).tolist():
            chosen[row] = True
            then, shares = least_shares(order, chosen, view.left_ns, due, sizes, speeds, view.now_ns, total)
            if (then & ~late).any():
                chosen[row] = False
            else:
                late, share = then, shares
        self.admitted.update(view.job[chosen].tolist())
        grown = grow(chosen, share, sizes, speeds, view.left_ns, total)
        wanted = _worth_growing(view, share, grown)
        found = placing.fill(view, np.argsort(-wanted, kind="stable"), wanted)
        return Allocation(found.gpus, found.node, found.whole, refused=~chosen)


@dataclass
class ElasticEdf:
    """Earliest deadline first, each job on the fastest size that is free."""

    tables: SizeTables = field(default_factory=SizeTables)

    def decide(self, view: SharingView) -> Allocation:
        """Returns sizes by deadline; a job keeps a smaller one where growing is not worth its pause."""
        sizes, _ = self.tables.of(view)
        _, order = _due(view)
        free, wanted = int(view.free.sum()), np.zeros(len(view), np.int64)
        for row in order.tolist():
            wanted[row] = max((size for size in sizes[row].tolist() if size <= free), default=0)
            free -= wanted[row]
        wanted = _worth_growing(view, np.zeros(len(view), np.int64), wanted)
        return placing.fill(view, order, wanted)


def _due(view: SharingView) -> tuple[Int, Int]:
    """Returns when each row must have ended, -1 for none or past, and the rows by it."""
    deadline = view.facts.deadline_ns[view.job]
    due = deadline - (view.facts.pause_ns[view.job] if view.rules.costs else 0)
    last = np.iinfo(np.int64).max
    order = np.argsort(np.where(deadline == UNKNOWN, last, deadline), kind="stable")
    new = view.first_ns < 0
    lost = (deadline == UNKNOWN) | ((due <= view.now_ns) & ~new)
    return np.where(lost, np.int64(-1), np.maximum(due, 0)), order


def _worth_growing(view: SharingView, share: Int, wanted: Int) -> Int:
    """Returns the sizes with running jobs left as they are where a larger one saves too little."""
    if not view.rules.costs:
        return wanted
    found = wanted.copy()
    curves = view.facts.speeds.curves
    for row in np.flatnonzero((view.gpus > 0) & (wanted > view.gpus) & (view.gpus >= share)).tolist():
        speeds = curves.speeds(int(view.job[row]))
        now, then = int(speeds[view.gpus[row]]), int(speeds[wanted[row]])
        saved = view.left_ns[row] * (PPM / now - PPM / then)
        if saved <= WORTH_PAUSES * view.facts.pause_ns[view.job[row]]:
            found[row] = view.gpus[row]
    return found


@njit(cache=True, nogil=True)
def least_shares(
    order: Int,
    chosen: NDArray[np.bool_],
    left: Int,
    due: Int,
    sizes: Int,
    speeds: Float,
    now: int,
    total: int,
) -> tuple[NDArray[np.bool_], Int]:
    """Returns which rows cannot end in time, and the GPUs that each gets now by the least shares of all.

    The profile of free GPUs has a step wherever a share ends; rows that are not chosen, or have no time by
    which they must end (`due` -1), are left out.
    """
    late, share = np.zeros(len(due), np.bool_), np.zeros(len(due), np.int64)
    at, free = np.empty(len(due) + 2), np.empty(len(due) + 2, np.int64)
    at[0], free[0], steps = float(now), total, 1
    for row in order:
        if not chosen[row] or due[row] < 0:
            continue
        end, level = -1.0, -1
        while end < 0 and level + 1 < sizes.shape[1] and sizes[row, level + 1]:
            level += 1
            end = _end(at, free, steps, sizes[row], speeds[row], level, float(left[row]), float(due[row]))
        late[row] = end < 0
        if end < 0:
            continue
        steps = _cut(at, free, steps, end)
        share[row] = _fitting(sizes[row], level, free[0])
        for step in range(steps):
            if at[step] < end:
                free[step] -= _fitting(sizes[row], level, free[step])
    return late, share


@njit(inline="always")
def _fitting(sizes: Int, level: int, free: int) -> int:
    """Returns the largest of the sizes up to this one that is free; 0 for none."""
    while level >= 0 and sizes[level] > free:
        level -= 1
    return int(sizes[level]) if level >= 0 else 0


@njit(inner=True, cache=True, nogil=True)
def _end(
    at: Float, free: Int, steps: int, sizes: Int, speeds: Float, most: int, left: float, due: float
) -> float:
    """Returns when a job ends that takes up to its size `most` of what is free; -1 if not in time."""
    for step in range(steps):
        if at[step] >= due:
            return -1.0
        level = most
        while level >= 0 and sizes[level] > free[step]:
            level -= 1
        until = at[step + 1] if step + 1 < steps else due
        if level >= 0:
            end = at[step] + left / speeds[level]
            if end <= min(until, due):
                return float(end)
            left -= (until - at[step]) * speeds[level]
    return -1.0


@njit(inline="always")
def _cut(at: Float, free: Int, steps: int, time: float) -> int:
    """Makes a step of the profile at a time; returns how many there are."""
    place = steps
    while place > 0 and at[place - 1] >= time:
        place -= 1
    if place < steps and at[place] == time:
        return steps
    for step in range(steps, place, -1):
        at[step], free[step] = at[step - 1], free[step - 1]
    at[place], free[place] = time, free[place - 1]
    return steps + 1


@njit(cache=True, nogil=True)
def grow(chosen: NDArray[np.bool_], share: Int, sizes: Int, speeds: Float, left: Int, total: int) -> Int:
    """Returns the shares with the GPUs that they leave given away, one size at a time, to the job whose GPU
    time grows least for each of them."""
    level = np.full(len(share), -1, np.int64)
    free = total - share.sum()
    for row in range(len(share)):
        while level[row] + 1 < sizes.shape[1] and 0 < sizes[row, level[row] + 1] <= share[row]:
            level[row] += 1
    while True:
        best, least = -1, np.inf
        for row in range(len(share)):
            then = level[row] + 1
            if not chosen[row] or then >= sizes.shape[1] or not sizes[row, then]:
                continue
            now = 0 if then == 0 else sizes[row, then - 1]
            more = sizes[row, then] - now
            if more > free:
                continue
            before = 0.0 if then == 0 else left[row] * (now / speeds[row, then - 1])
            cost = 0.0 if then == 0 else (left[row] * (sizes[row, then] / speeds[row, then]) - before) / more
            if cost < least:
                best, least = row, cost
        if best < 0:
            break
        then = level[best] + 1
        free -= sizes[best, then] - (0 if then == 0 else sizes[best, then - 1])
        level[best] = then
    grown = share.copy()
    for row in range(len(share)):
        if level[row] >= 0:
            grown[row] = sizes[row, level[row]]
    return grown
