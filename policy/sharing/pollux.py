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

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from twin.queue.jobs import Float, Int
from twin.sharing.speed_table import Parts, SpeedTable, speed_table, with_spanning
from twin.sharing.view import Allocation, SharingView

INTERVAL_NS = 60 * NS_PER_S
POPULATION, GENERATIONS = 100, 100
POWER = -1.0
LEAST_SPEEDUP = 1e-3
SEED = 27


@dataclass
class PolluxSearch:
    """Allocations of the last interval (100, jobs, nodes) with the jobs of their rows, and the most GPUs that
    each of all jobs has had."""

    population: Int = field(default_factory=lambda: np.zeros((0, 0, 0), np.int64))
    jobs: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    had: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    next_ns: int = 0
    rounds: int = 0

    def decide(self, view: SharingView) -> Allocation:
        """Returns what jobs hold, at the end of an interval what they shall hold."""
        parts = Parts.of_view(view)
        if not len(self.had):
            self.had = np.zeros(len(view.facts.asked), np.int64)
        if view.now_ns >= self.next_ns and len(view):
            self.next_ns = view.now_ns + INTERVAL_NS
            self.rounds += 1
            parts = self._optimised(view, parts)
            self.had[view.job] = np.maximum(self.had[view.job], parts.given.sum(axis=1))
        return parts.allocation(self.next_ns if len(view) and self.next_ns > view.now_ns else None)

    def _optimised(self, view: SharingView, parts: Parts) -> Parts:
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def evolve(
    begin: Int, now: Int, speed: Float, speedup: Float, penalty: Float, most: Int, free: Int,
    shut: NDArray[np.bool_], of_node: Int, size: int, generations: int, power: float,
    draw: np.random.Generator,
) -> tuple[Int, Float]:  # fmt: skip
    """Returns the allocations of the last generation (size, jobs, nodes) and their power means (size,), best
    first.

    `begin` (k, jobs, nodes), its first what jobs hold; `speed` (jobs, models, nodes + 1, GPUs + 1) says what
    can run, `speedup` (jobs, nodes + 1, GPUs + 1) what it is worth.
    """
    jobs, nodes = now.shape
    pool, score = np.zeros((2 * size, jobs, nodes), np.int64), np.full(2 * size, -1.0)
    for at in range(size):
        pool[at] = begin[min(at, len(begin) - 1)]
        if at >= len(begin):
            _mutate(pool[at], now, free, draw)
        _repair(pool[at], speed, most, free, shut, of_node, 0 if at == 0 else _number(draw, jobs))
        score[at] = _mean(pool[at], now, speedup, penalty, power)
    for _ in range(generations):
        for at in range(size, 2 * size):
            first, second = _better(score, size, draw), _better(score, size, draw)
            cut = _number(draw, jobs + 1)
            pool[at, :cut], pool[at, cut:] = pool[first, :cut], pool[second, cut:]
            _mutate(pool[at], now, free, draw)
            _repair(pool[at], speed, most, free, shut, of_node, _number(draw, jobs))
            score[at] = _mean(pool[at], now, speedup, penalty, power)
        order = np.argsort(-score, kind="mergesort")
        _survive(pool, score, order, size)
    return pool[:size], score[:size]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _number(draw: np.random.Generator, many: int) -> int:
    """Returns a whole number from 0 to below `many`."""
    return int(draw.random() * many)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _better(score: Float, size: int, draw: np.random.Generator) -> int:
    """Returns the better of two at random."""
    one, other = _number(draw, size), _number(draw, size)
    return int(one) if score[one] >= score[other] else int(other)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _survive(pool: Int, score: Float, order: Int, size: int) -> None:
    """Moves the best distinct allocations to the front, then the best of the others."""
    kept, kept_score = np.empty_like(pool[:size]), np.empty(size)
    count, spare = 0, np.zeros(len(order), np.bool_)
    for place in range(len(order)):
        at = order[place]
        if count == size:
            break
        twin = False
        back = count - 1
        while back >= 0 and kept_score[back] == score[at] and not twin:
            twin = bool((kept[back] == pool[at]).all())
            back -= 1
        if twin:
            spare[place] = True
        else:
            kept[count], kept_score[count] = pool[at], score[at]
            count += 1
    for place in range(len(order)):
        if count < size and spare[place]:
            kept[count], kept_score[count] = pool[order[place]], score[order[place]]
            count += 1
    pool[:size], score[:size] = kept, kept_score


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _mutate(one: Int, now: Int, free: Int, draw: np.random.Generator) -> None:
    """Sets rows back to what is held (1 in 10), takes nodes from rows (1 in 10 of each), and gives more of
    each node to a job there and to any job."""
    jobs, nodes = one.shape
    for job in range(jobs):
        if draw.random() < 0.1:
            one[job] = now[job]
        if draw.random() < 0.1:
            for node in range(nodes):
                if draw.random() < 0.1:
                    one[job, node] = 0
    for node in range(nodes):
        if one[:, node].sum() >= free[node]:
            continue
        for there in range(2):
            job = _number(draw, jobs)
            for _ in range(jobs):
                if there == 1 or one[job, node] > 0:
                    break
                job = (job + 1) % jobs
            if there == 1 or one[job, node] > 0:
                one[job, node] = one[job, node] + _number(draw, free[node] + 1 - one[job, node])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _repair(
    one: Int, speed: Float, most: Int, free: Int, shut: NDArray[np.bool_], of_node: Int, first: int
) -> None:
    """Takes away what cannot be given, from job `first` on round all jobs."""
    jobs, nodes = one.shape
    left, crossed, models = free.copy(), shut.copy(), np.zeros(speed.shape[1], np.int64)
    for step in range(jobs):
        job = (first + step) % jobs
        models[:] = 0
        for node in range(nodes):
            one[job, node] = max(0, min(one[job, node], left[node]))
            models[of_node[node]] += one[job, node]
        model, count, gpus = int(np.argmax(models)), 0, 0
        for node in range(nodes):
            if of_node[node] != model:
                one[job, node] = 0
            one[job, node] = min(one[job, node], most[job] - gpus)
            gpus += one[job, node]
            count += one[job, node] > 0
        if count > 1:
            gpus, count = _uncrossed(one[job], crossed)
        while gpus and speed[job, model, count, gpus] <= 0:
            last = -1
            for node in range(nodes):
                if one[job, node] and (last < 0 or one[job, node] < one[job, last]):
                    last = node
            one[job, last] -= 1
            gpus -= 1
            count -= one[job, last] == 0
        for node in range(nodes):
            left[node] -= one[job, node]
            if count > 1 and one[job, node]:
                crossed[node] = True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _uncrossed(row: Int, crossed: NDArray[np.bool_]) -> tuple[int, int]:
    """Takes nodes that another job crosses from a job over several nodes, all but one where all are such;
    returns its GPUs and nodes."""
    best = int(np.argmax(row))
    clear = 0
    for node in range(len(row)):
        clear += row[node] > 0 and not crossed[node]
    for node in range(len(row)):
        if crossed[node] and (clear > 0 or node != best):
            row[node] = 0
    return int(row.sum()), int((row > 0).sum())


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _mean(one: Int, now: Int, speedup: Float, penalty: Float, power: float) -> float:
    """Returns the power mean of all speedups."""
    jobs, total = len(one), 0.0
    for job in range(jobs):
        gpus, nodes, same = 0, 0, True
        for node in range(one.shape[1]):
            gpus += one[job, node]
            nodes += one[job, node] > 0
            same &= one[job, node] == now[job, node]
        worth = speedup[job, nodes, gpus] * (1.0 if same else penalty[job])
        total += (worth + LEAST_SPEEDUP) ** power
    return float((total / jobs) ** (1 / power))
