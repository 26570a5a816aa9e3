"""Pollux: GPUs of all jobs so that the power mean of their speedups is largest (Qiao et al., OSDI 2021).

Every 60 s a genetic algorithm (4.2.1; 100 allocations, 100 generations, begun at those of the interval before
and at what jobs hold) looks for GPUs of each node for each job. A speedup is goodput at the best batch over
that on an equal share of the GPUs (equation 11), times (T - R d) / (T + d) for a job that would be
changed, of age T, changed R times before, with a restart of d (equation 16); p = -1 (equation 10). Repair
takes away what a node does not have, and all but one job over several nodes from each node (4.2.1,
interference). A job gets at most twice the most GPUs that it has had, as in the authors' code.

Left open there, and taken so: 0.001 is added to every speedup, so that one job without GPUs does not decide
all (the authors' code). Children of two parents, each the better of two at random, take the rows of the first
up to a random row and those of the second behind it; of parents and children the best 100 distinct ones
survive. Mutation as in the code: a row may go back to what the job holds, lose nodes, and each node may give
more to one job. A start is not paid, so it is not weighed down. What jobs hold wins ties. Jobs that come, or
GPUs that become free, wait for the next interval.

On several GPU models, of which the paper knows nothing: speeds are means over models, as if one profile held
all of them, and a job keeps its GPUs of one model, the one with most of them (the authors of Sia mend Pollux
likewise). Without goodput the speeds are those of curves, and a rigid job has its size or none. A job
that no one model can hold comes first, on whole nodes of several.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from ingest.core.units import NS_PER_S
from policy.search.genetic_allocation import evolve
from twin.queue.jobs import Float, Int
from twin.sharing.speed_table import Parts, SpeedTable, speed_table, with_spanning
from twin.sharing.view import Allocation, SharingView

INTERVAL_NS = 60 * NS_PER_S
POPULATION, GENERATIONS = 100, 100
POWER = -1.0
SEED = 27


@dataclass
class GoodputRounds(ABC):
    """Rounds of a minute, how many there were, and the most GPUs that each of all jobs has had."""

    had: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    next_ns: int = 0
    rounds: int = 0

    def decide(self, view: SharingView) -> Allocation:
        """Returns what jobs hold, at the begin of a round what they shall hold."""
        parts = Parts.of_view(view)
        if not len(self.had):
            self.had = np.zeros(len(view.facts.asked), np.int64)
        if view.now_ns >= self.next_ns and len(view):
            self.next_ns = view.now_ns + INTERVAL_NS
            self.rounds += 1
            parts = self.optimised(view, parts)
            self.had[view.job] = np.maximum(self.had[view.job], parts.given.sum(axis=1))
        return parts.allocation(self.next_ns if len(view) and self.next_ns > view.now_ns else None)

    @abstractmethod
    def optimised(self, view: SharingView, parts: Parts) -> Parts:
        """Returns the best allocation found."""


@dataclass
class PolluxSearch(GoodputRounds):
    """Allocations of the last interval (100, jobs, nodes) with the jobs of their rows."""

    population: Int = field(default_factory=lambda: np.zeros((0, 0, 0), np.int64))
    jobs: Int = field(default_factory=lambda: np.zeros(0, np.int64))

    def optimised(self, view: SharingView, parts: Parts) -> Parts:
        """Returns the best allocation found."""
        table = speed_table(view)
        least = table.least()
        spans = least == 0
        if spans.any():
            parts = with_spanning(view, spans, parts)
        free = view.free - parts.given[spans].sum(axis=0)
        shut = view.spanned | (parts.given[spans] > 0).any(axis=0)
        rows = np.flatnonzero(~spans)
        if not len(rows):
            return parts
        now = parts.given[rows]
        begin = np.concatenate((now[None], self._adapted(view.job[rows], len(view.free))))
        found, _ = evolve(
            begin, now, table.speed[rows], speedups(table, rows, int(view.sizes.sum())),
            penalties(view)[rows], np.maximum(2 * self.had[view.job[rows]], least[rows]), free, shut,
            table.of_node, POPULATION, GENERATIONS, POWER,
            np.random.default_rng((SEED, self.rounds)),
        )  # fmt: skip
        self.population, self.jobs = found, view.job[rows]
        parts.given[rows] = found[0]
        return Parts(parts.given, view.free - parts.given.sum(axis=0))

    def _adapted(self, jobs: Int, nodes: int) -> Int:
        """Returns the allocations of the last interval for the jobs of now; new ones have nothing."""
        found = np.zeros((len(self.population), len(jobs), nodes), np.int64)
        _, then, now = np.intersect1d(self.jobs, jobs, return_indices=True)
        if len(found):
            found[:, now] = self.population[:, then]
        return found


def speedups(table: SpeedTable, rows: Int, gpus: int) -> Float:
    """Returns the mean speed over models on so many nodes and GPUs over that on an equal share, (rows,
    nodes + 1, GPUs + 1).

    The share is all GPUs over all jobs, rounded up, on as few nodes as run it; of a job that does not run on
    so many, the largest size below, else the smallest.
    """
    speed = table.speed[rows]
    runs = (speed > 0).sum(axis=1)
    mean = speed.sum(axis=1) / np.maximum(runs, 1)
    best = mean.max(axis=1)  # over nodes: (rows, GPUs + 1)
    share = -(-gpus // len(rows))
    for row in range(len(rows)):
        able = np.flatnonzero(best[row] > 0)
        below = able[able <= share]
        mean[row] /= best[row, below[-1] if len(below) else able[0]]
    found: Float = mean
    return found


def penalties(view: SharingView) -> Float:
    """Returns the factor of the speedup of each row if it is changed (rows,)."""
    if not view.rules.costs:
        return np.ones(len(view))
    age = (view.now_ns - view.facts.submit_ns[view.job]).astype(np.float64)
    restart = view.facts.pause_ns[view.job]
    factor = np.maximum(age - view.changed * restart, 0.0) / np.maximum(age + restart, 1.0)
    found: Float = np.where(view.first_ns < 0, 1.0, factor)
    return found
