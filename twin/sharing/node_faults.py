"""Faults and drains of nodes beside schedulers that change runs: noticed late, then jobs stop or shrink.

On a node that fails its jobs stand still, with all their GPUs, until the fault is noticed: nobody can tell
them from running ones before. Then they lose what they did after their last checkpoint, and wait. A change of
a run makes a checkpoint too, as its state goes to storage; others come at equal times of a run and cost
nothing. Where the scheduler resizes jobs, one that lies on several nodes goes on with the others' GPUs in
place of stopping, if it runs on so many: each replica holds all its state, so that only the pause is paid. On
a node that is drained jobs run to their end as they are. No job is put on a node that is out: a launch fails
at once.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.nodes.outages import NodeOutages
from twin.queue.jobs import Int
from twin.sharing.progress import (
    FAULT,
    NEVER,
    RUNNING,
    SHRINK,
    STALL,
    WAITING,
    WIDTH,
    Costs,
    JobStates,
    settle,
    write,
)
from twin.sharing.view import NOWHERE

if TYPE_CHECKING:  # the world holds the faults
    from twin.sharing.engine import SharingWorld

FAILED, DRAINED, NOTICED, REPAIRED, UNDRAINED = range(5)
"""Kinds of changes of a node, in the order in which those of one instant come."""


@dataclass(frozen=True, eq=False)
class NoticedOutages:
    """Outages of the nodes; `every_ns`: time of a run between checkpoints, 0: none but those that changes
    make; `notice_ns`: time until a fault is noticed; `shrinks`: jobs may go on with fewer GPUs."""

    outages: NodeOutages
    every_ns: int = 0
    notice_ns: int = 0
    shrinks: bool = False

    def changes(self) -> list[tuple[int, int, int]]:
        """Returns time, kind and node of each change, in order. A node that is repaired before its fault is
        noticed comes back then."""
        found, given = list[tuple[int, int, int]](), self.outages
        columns = (given.node, given.down_ns, given.up_ns, given.drain)
        for node, down_ns, up_ns, drain in zip(*(one.tolist() for one in columns), strict=True):
            if drain:
                found += [(down_ns, DRAINED, node), (up_ns, UNDRAINED, node)]
                continue
            noticed = down_ns + self.notice_ns
            found += [(down_ns, FAILED, node), (noticed, NOTICED, node)]
            found.append((max(up_ns, noticed), REPAIRED, node))
        return sorted(found)


@dataclass(eq=False)
class FaultyNodes:
    """Nodes of one run: faults and drains that each is in (nodes,), and the jobs that stand still (n,)."""

    world: "SharingWorld"
    faults: NoticedOutages
    at: int = 0
    changes: list[tuple[int, int, int]] = field(init=False)
    failed: Int = field(init=False)
    drained: Int = field(init=False)
    stands: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.changes = self.faults.changes()
        self.failed, self.drained = (np.zeros(self.world.nodes, np.int64) for _ in range(2))
        self.stands = np.zeros(len(self.world.jobs), np.bool_)

    @property
    def next_ns(self) -> int:
        """Time of the next change."""
        return self.changes[self.at][0] if self.at < len(self.changes) else NEVER

    @property
    def out(self) -> NDArray[np.bool_]:
        """True for each node on which no job may be put (nodes,)."""
        return (self.failed > 0) | (self.drained > 0)

    def play(self, s: JobStates, active: Int, costs: Costs, time: int) -> Int:
        """Plays the changes of this instant; returns their events (events, 6), of a fault with the
        nanoseconds of work that it lost in place of the rate."""
        found = [np.zeros((0, WIDTH), np.int64)]
        while self.next_ns == time:
            _, kind, node = self.changes[self.at]
            self.at += 1
            count = self.failed if kind in (FAILED, REPAIRED) else self.drained
            count[node] += (kind in (FAILED, DRAINED)) - (kind in (REPAIRED, UNDRAINED))
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
        return np.concatenate(found)

    def pinned(self, s: JobStates, active: Int) -> NDArray[np.bool_]:
        """Returns which of these jobs nobody may change now (rows,): they stand still, or their node is
        drained."""
        found: NDArray[np.bool_] = self.stands[active].copy()
        for node in np.flatnonzero(self.drained).tolist():
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
    held: NDArray[np.bool_] = (s.node[rows] == node) | (s.whole[node] == first)
    held &= s.status[rows] == RUNNING
    return held


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def stall(s: JobStates, rows: Int, time: int, every: int, events: Int) -> None:
    """Lets running jobs stand still from now on."""
    for row in range(len(rows)):
        job = rows[row]
        settle(s, job, time, every)
        s.ready[job], s.rate[job] = time, 0
        write(events, row, time, STALL, s, job)


def _stopped(s: JobStates, job: int, time: int) -> tuple[int, ...]:
    """Takes a job off its GPUs, back to its last checkpoint; returns the event."""
    lost = int(s.saved[job] - s.left[job])
    s.left[job], s.status[job], s.at[job] = s.saved[job], WAITING, time
    s.gpus[job], s.rate[job], s.node[job], s.leader[job] = 0, 0, NOWHERE, NOWHERE
    s.part[s.whole == job] = 0
    s.whole[s.whole == job] = NOWHERE
    return time, FAULT, job, 0, NOWHERE, lost
