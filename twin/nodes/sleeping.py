"""Nodes that sleep: one without jobs for some time sleeps, and a job that is put there waits until it wakes.

The job holds its GPUs meanwhile, and its run begins as all its nodes are awake; they wake side by side.
Nodes have no job at first. The scheduler knows which nodes sleep: the predicted end of a job counts the time
in which its nodes wake.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ingest.core.compiled import njit
from ingest.core.errors import UsageError
from twin.placement.recipe import Int


@dataclass(frozen=True, slots=True)
class SleepRule:
    """Nanoseconds without jobs after which a node sleeps, and in which it wakes.

    Raises:
        UsageError: a node sleeps at once, or wakes before.
    """

    after_ns: int
    wake_ns: int = 0

    def __post_init__(self) -> None:
        if self.after_ns < 1 or self.wake_ns < 0:
            raise UsageError("a node sleeps after a time without jobs, and wakes in 0 s or more")


class Sleepers(NamedTuple):
    """The rule as numbers (`wake` 0: nobody waits), how many slots of each node running jobs hold, since when
    it is none (nodes,), and how long each job has waited for its nodes (n,)."""

    after: int
    wake: int
    busy: Int
    since: Int
    woke: Int


def sleepers(rule: SleepRule | None, nodes: int, submit_ns: Int) -> Sleepers:
    """Returns nodes without jobs from the first submission of jobs (n,) on."""
    if rule is None or not rule.wake_ns:
        none = np.zeros(0, np.int64)
        return Sleepers(0, 0, none, none, np.zeros(len(submit_ns), np.int64))
    since = np.full(nodes, submit_ns.min() if len(submit_ns) else 0, np.int64)
    busy, woke = np.zeros(nodes, np.int64), np.zeros(len(submit_ns), np.int64)
    return Sleepers(rule.after_ns, rule.wake_ns, busy, since, woke)


@njit(borrowing=True, cache=True, nogil=True)
def waking(s: Sleepers, slots: Int, width: int, time: int) -> int:
    """Returns how long a job that is put on these slots now waits for its nodes."""
    if s.wake:
        for slot in slots:
            n = slot // width
            if not s.busy[n] and time - s.since[n] >= s.after:
                return s.wake
    return 0


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def enter(s: Sleepers, slots: Int, width: int) -> None:
    """Counts the slots of a job that starts."""
    if s.wake:
        for slot in slots:
            s.busy[slot // width] += 1


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def leave(s: Sleepers, slots: Int, width: int, time: int) -> None:
    """Takes the slots of a job off that has ended."""
    if s.wake:
        for slot in slots:
            s.busy[slot // width] -= 1
            if not s.busy[slot // width]:
                s.since[slot // width] = time
