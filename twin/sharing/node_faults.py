"""Faults, drains and slow times of nodes beside schedulers that change runs: noticed late, then jobs stop,
shrink or leave.

On a node that fails its jobs stand still, with all their GPUs, until the fault is noticed: nobody can tell
them from running ones before. Then they lose what they did after their last checkpoint, and wait. A change of
a run makes a checkpoint too, as its state goes to storage; others come at equal times of a run and cost
nothing. Where the scheduler resizes jobs, one that lies on several nodes goes on with the others' GPUs in
place of stopping, if it runs on so many: each replica holds all its state, so that only the pause is paid. On
a node that is drained jobs run to their end as they are. No job is put on a node that is out: a launch fails
at once.

A job on a slow node runs at the speed of its slowest one. Once its steps have shown that, no job is put there
while it lasts, and a job is taken off if that pays and GPUs enough are free elsewhere: if the time that it
saves, should the node stay slow, is more than two of its pauses. Its state goes to storage, no work is lost,
and the scheduler starts it anew. Who stays runs on there; those who share GPUs stay.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.nodes.outages import NodeOutages
from twin.queue.jobs import Int
from twin.sharing.changes import PPM
from twin.sharing.progress import (
    EVICT,
    FAULT,
    NEVER,
    RUNNING,
    SHRINK,
    STALL,
    WAITING,
    WIDTH,
    Costs,
    JobStates,
    let_go,
    needed,
    rest,
    settle,
    write,
)
from twin.sharing.view import NOWHERE

if TYPE_CHECKING:  # the world holds the faults
    from twin.sharing.engine import SharingWorld

FAILED, DRAINED, NOTICED, REPAIRED, UNDRAINED, SLOWED, RESTORED, SUSPECTED, TRUSTED = range(9)
"""Kinds of changes of a node, in the order in which those of one instant come."""
Change = tuple[int, int, int, int]
"""Time, kind and node of a change, and the speed of a node that becomes slow, or was; else 0."""
WORTH_PAUSES = 2
"""A job leaves a slow node if that saves more than so many of its pauses."""


@dataclass(frozen=True, eq=False)
class NoticedOutages:
    """Outages of the nodes; `every_ns`: time of a run between checkpoints, 0: none but those that changes
    make; `notice_ns`, `notice_slow_ns`: time until a fault, and a slow node, is noticed; `shrinks`: jobs may
    go on with fewer GPUs."""

    outages: NodeOutages
    every_ns: int = 0
    notice_ns: int = 0
    notice_slow_ns: int = 0
    shrinks: bool = False

    def changes(self) -> list[Change]:
        """Returns the changes in order. A node that is repaired before its fault is noticed comes back then;
        one that is slow for a shorter time is never noticed."""
        found, given = list[Change](), self.outages
        columns = (given.node, given.down_ns, given.up_ns, given.drain)
        for node, down_ns, up_ns, drain in zip(*(one.tolist() for one in columns), strict=True):
            if drain:
                found += [(down_ns, DRAINED, node, 0), (up_ns, UNDRAINED, node, 0)]
                continue
            noticed = down_ns + self.notice_ns
            found += [(down_ns, FAILED, node, 0), (noticed, NOTICED, node, 0)]
            found.append((max(up_ns, noticed), REPAIRED, node, 0))
        for node, begin_ns, end_ns, speed in given.slow:
            found += [(begin_ns, SLOWED, node, speed), (end_ns, RESTORED, node, speed)]
            if begin_ns + self.notice_slow_ns < end_ns:
                found.append((begin_ns + self.notice_slow_ns, SUSPECTED, node, 0))
                found.append((end_ns, TRUSTED, node, 0))
        return sorted(found)


@dataclass(eq=False)
class FaultyNodes:
    """Nodes of one run: faults, drains and noticed slow times that each is in (nodes,), the speeds of those
    that are slow, and the jobs that stand still (n,)."""

    world: "SharingWorld"
    faults: NoticedOutages
    at: int = 0
    changes: list[Change] = field(init=False)
    failed: Int = field(init=False)
    drained: Int = field(init=False)
    suspected: Int = field(init=False)
    slow: dict[int, list[int]] = field(default_factory=dict)
    stands: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.changes = self.faults.changes()
        self.failed, self.drained, self.suspected = (np.zeros(self.world.nodes, np.int64) for _ in range(3))
        self.stands = np.zeros(len(self.world.jobs), np.bool_)

    @property
    def next_ns(self) -> int:
        """Time of the next change."""
        return self.changes[self.at][0] if self.at < len(self.changes) else NEVER

    @property
    def out(self) -> NDArray[np.bool_]:
        """True for each node on which no job may be put (nodes,)."""
        return (self.failed > 0) | (self.drained > 0) | (self.suspected > 0)

    def play(self, s: JobStates, active: Int, costs: Costs, time: int) -> Int:
        """Plays the changes of this instant; returns their events (events, 6), of a fault with the
        nanoseconds of work that it lost in place of the rate."""
        found = [np.zeros((0, WIDTH), np.int64)]
        while self.next_ns == time:
            _, kind, node, speed = self.changes[self.at]
            self.at += 1
            self._count(kind, node, speed)
            there = active[on_node(s, active, node)]
            if kind == FAILED:
                new = there[~self.stands[there]]
                self.stands[new] = True
                found.append(np.empty((len(new), WIDTH), np.int64))
                stall(s, new, time, costs.every, found[-1])
            elif kind == NOTICED:
                still = there[self.stands[there]]
                rows = [self._shrunk(s, job, node, costs, time) or _stopped(s, job, time) for job in still]
                self.stands[still] = False
                found.append(np.array(rows, np.int64).reshape(-1, WIDTH))
            elif kind == SUSPECTED:
                leaves = self._leaving(s, active, there, costs, time)
                found.append(np.empty((len(leaves), WIDTH), np.int64))
                evict(s, leaves, time, costs.every, found[-1])
        return np.concatenate(found)

    def _count(self, kind: int, node: int, speed: int) -> None:
        """Counts a change of a node."""
        if kind == SLOWED:
            self.slow.setdefault(node, []).append(speed)
        elif kind == RESTORED:
            self.slow[node].remove(speed)
        else:
            begins = {FAILED: self.failed, DRAINED: self.drained, SUSPECTED: self.suspected}
            ends = {REPAIRED: self.failed, UNDRAINED: self.drained, TRUSTED: self.suspected}
            if kind in begins:
                begins[kind][node] += 1
            elif kind in ends:
                ends[kind][node] -= 1

    def slowed(self, rate: Int, job: Int, node: Int, leader: Int, whole: Int) -> Int:
        """Returns the speed of each of these jobs (rows,), millionths, at that of the slowest of its nodes;
        `whole`: the job that lies on each node beside others."""
        share, first = np.full(len(job), PPM, np.int64), np.where(leader < 0, job, leader)
        for one, speeds in self.slow.items():
            there = (node == one) | (whole[one] == first)
            share[there] = np.minimum(share[there], min(speeds, default=PPM))
        return np.where((rate > 0) & (share < PPM), np.maximum(rate * share // PPM, 1), rate)

    def _leaving(self, s: JobStates, active: Int, there: Int, costs: Costs, time: int) -> Int:
        """Returns which of these jobs leave a slow node: it pays, and GPUs enough are free elsewhere."""
        used, runs = s.part.copy(), active[s.status[active] == RUNNING]
        alone = runs[(s.node[runs] >= 0) & ((s.leader[runs] < 0) | (s.leader[runs] == runs))]
        np.add.at(used, s.node[alone], s.gpus[alone])
        room = int((self.world.capacity - used)[~self.out].sum())
        found = list[int]()
        worth = WORTH_PAUSES * self.world.pause_ns * costs.costs
        for job in there[(s.leader[there] < 0) & ~self.stands[there]].tolist():
            if s.gpus[job] <= room and self._saves(s, job, time) > worth[job]:
                found.append(job)
                room -= int(s.gpus[job])
        return np.array(found, np.int64)

    def _saves(self, s: JobStates, job: int, time: int) -> int:
        """Returns the time by which a job would end earlier at its own speed, by its prediction."""
        left = int(rest(s, np.array([job]), time)[0])
        left += int(self.world.predicted_ns[job] - self.world.jobs.run_ns[job])
        nodes = np.flatnonzero((s.whole == job) | (np.arange(len(s.whole)) == s.node[job])).tolist()
        share = min((speed for node in nodes for speed in self.slow.get(node, [])), default=PPM)
        rate = int(s.rate[job])
        return int(needed(left, rate)) - int(needed(left, rate * PPM // share))

    def pinned(self, s: JobStates, active: Int) -> NDArray[np.bool_]:
        """Returns which of these jobs nobody may change now (rows,): they stand still, or their node is
        drained, or known to be slow."""
        found: NDArray[np.bool_] = self.stands[active].copy()
        for node in np.flatnonzero(self.drained + self.suspected).tolist():
            found |= on_node(s, active, node)
        return found

    def _shrunk(self, s: JobStates, job: int, node: int, costs: Costs, time: int) -> tuple[int, ...] | None:
        """Lets a job go on with the GPUs of its other nodes; returns the event, None where it has to stop."""
        own = s.whole == job
        lives = own & (self.failed == 0)
        lives[node] = False
        gpus = min(int(s.gpus[job]), int(s.part[lives].sum()))
        if not self.faults.shrinks or s.leader[job] >= 0 or not self._runs_on(job, gpus):
            return None
        s.whole[own & ~lives], s.part[own & ~lives] = NOWHERE, 0
        s.gpus[job], s.changed[job] = gpus, s.changed[job] + 1
        s.at[job] = s.since[job] = time
        s.ready[job] = time + (int(self.world.pause_ns[job]) if costs.costs else 0)
        s.saved[job], s.origin[job] = s.left[job], s.ready[job]
        return time, SHRINK, job, gpus, NOWHERE, 0

    def _runs_on(self, job: int, gpus: int) -> bool:
        """True if the speed of a job on so many GPUs is known."""
        return gpus > 0 and (
            self.world.goodput is not None or bool(self.world.speeds.curves.speeds(job)[gpus] > 0)
        )


def on_node(s: JobStates, rows: Int, node: int) -> NDArray[np.bool_]:
    """Returns which of these jobs hold GPUs of a node (rows,)."""
    first = np.where(s.leader[rows] < 0, rows, s.leader[rows])
    held = (s.node[rows] == node) | (s.whole[node] == first)
    found: NDArray[np.bool_] = held & (s.status[rows] == RUNNING)
    return found


@njit(cache=True, nogil=True)
def stall(s: JobStates, rows: Int, time: int, every: int, events: Int) -> None:
    """Lets running jobs stand still from now on."""
    for row in range(len(rows)):
        job = rows[row]
        settle(s, job, time, every)
        s.ready[job], s.rate[job] = time, 0
        write(events, row, time, STALL, s, job)


@njit(cache=True, nogil=True)
def evict(s: JobStates, rows: Int, time: int, every: int, events: Int) -> None:
    """Takes running jobs off their GPUs with all their work."""
    for row in range(len(rows)):
        job = rows[row]
        settle(s, job, time, every)
        s.status[job] = WAITING
        let_go(s, job)
        write(events, row, time, EVICT, s, job)


def _stopped(s: JobStates, job: int, time: int) -> tuple[int, ...]:
    """Takes a job off its GPUs, back to its last checkpoint; returns the event."""
    lost = int(s.saved[job] - s.left[job])
    s.left[job], s.status[job], s.at[job] = s.saved[job], WAITING, time
    s.gpus[job], s.rate[job], s.node[job], s.leader[job] = 0, 0, NOWHERE, NOWHERE
    s.part[s.whole == job] = 0
    s.whole[s.whole == job] = NOWHERE
    return time, FAULT, job, 0, NOWHERE, lost
