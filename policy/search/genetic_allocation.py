"""GPUs of nodes for jobs by a genetic algorithm, compiled: the search of Pollux (Qiao et al., OSDI 2021).

An individual says how many GPUs of each node each job has (jobs, nodes). Of parents and children the best
distinct ones survive; what cannot be given is taken away before an individual is judged. Its fitness is the
power mean of the worth of what each job has.
"""

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.queue.jobs import Float, Int

LEAST_SPEEDUP = 1e-3
"""Added to the worth of each job."""


@njit(cache=True, nogil=True)
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
    held = np.zeros((jobs, 2), np.int64)
    pool, score = np.zeros((2 * size, jobs, nodes), np.int64), np.full(2 * size, -1.0)
    for at in range(size):
        pool[at] = begin[min(at, len(begin) - 1)]
        if at >= len(begin):
            _mutate(pool[at], now, free, draw)
        _repair(pool[at], speed, most, free, shut, of_node, 0 if at == 0 else _number(draw, jobs), held)
        score[at] = _mean(pool[at], now, speedup, penalty, power, held)
    for _ in range(generations):
        for at in range(size, 2 * size):
            first, second = _better(score, size, draw), _better(score, size, draw)
            cut = _number(draw, jobs + 1)
            pool[at, :cut], pool[at, cut:] = pool[first, :cut], pool[second, cut:]
            _mutate(pool[at], now, free, draw)
            _repair(pool[at], speed, most, free, shut, of_node, _number(draw, jobs), held)
            score[at] = _mean(pool[at], now, speedup, penalty, power, held)
        order = np.argsort(-score, kind="mergesort")
        _survive(pool, score, order, size)
    return pool[:size], score[:size]


@njit(inner=True, cache=True, nogil=True)
def _number(draw: np.random.Generator, many: int) -> int:
    """Returns a whole number from 0 to below `many`."""
    return int(draw.random() * many)


@njit(inner=True, cache=True, nogil=True)
def _better(score: Float, size: int, draw: np.random.Generator) -> int:
    """Returns the better of two at random."""
    one, other = _number(draw, size), _number(draw, size)
    return int(one) if score[one] >= score[other] else int(other)


@njit(inner=True, cache=True, nogil=True)
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
            twin = _same(kept[back], pool[at])
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


@njit(inner=True, cache=True, nogil=True)
def _same(one: Int, other: Int) -> bool:
    """Returns True if two allocations are equal."""
    for job in range(one.shape[0]):
        for node in range(one.shape[1]):
            if one[job, node] != other[job, node]:
                return False
    return True


@njit(inner=True, cache=True, nogil=True)
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
        given = 0
        for job in range(jobs):
            given += one[job, node]
        if given >= free[node]:
            continue
        for there in range(2):
            job = _number(draw, jobs)
            for _ in range(jobs):
                if there == 1 or one[job, node] > 0:
                    break
                job = (job + 1) % jobs
            if there == 1 or one[job, node] > 0:
                one[job, node] = one[job, node] + _number(draw, free[node] + 1 - one[job, node])


@njit(inner=True, cache=True, nogil=True)
def _repair(
    one: Int, speed: Float, most: Int, free: Int, shut: NDArray[np.bool_], of_node: Int, first: int, held: Int
) -> None:
    """Takes away what cannot be given, from job `first` on round all jobs; writes the nodes and GPUs of each
    to `held` (jobs, 2)."""
    jobs, nodes = one.shape
    left, crossed, models = free.copy(), shut.copy(), np.zeros(speed.shape[1], np.int64)
    for step in range(jobs):
        job = (first + step) % jobs
        gpus, count, model, mixed = 0, 0, -1, False
        for node in range(nodes):
            if one[job, node] > 0:
                one[job, node] = min(one[job, node], left[node])
                gpus += one[job, node]
                if one[job, node] > 0:
                    count += 1
                    mixed |= model >= 0 and of_node[node] != model
                    model = of_node[node]
        if mixed:
            model, gpus, count = _of_one_model(one[job], of_node, models)
        if gpus > most[job]:
            gpus, count = _at_most(one[job], most[job])
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
        held[job, 0], held[job, 1] = count, gpus
        if gpus:
            for node in range(nodes):
                left[node] -= one[job, node]
                crossed[node] |= count > 1 and one[job, node] > 0


@njit(inner=True, cache=True, nogil=True)
def _at_most(row: Int, most: int) -> tuple[int, int]:
    """Leaves a job so many GPUs, those of the first nodes; returns its GPUs and nodes."""
    gpus, count = 0, 0
    for node in range(len(row)):
        row[node] = min(row[node], most - gpus)
        gpus += row[node]
        count += row[node] > 0
    return gpus, count


@njit(inner=True, cache=True, nogil=True)
def _of_one_model(row: Int, of_node: Int, models: Int) -> tuple[int, int, int]:
    """Leaves a job the nodes of the model of which it has the most GPUs; returns model, GPUs and nodes."""
    models[:] = 0
    for node in range(len(row)):
        models[of_node[node]] += row[node]
    model, count = int(np.argmax(models)), 0
    for node in range(len(row)):
        if of_node[node] != model:
            row[node] = 0
        count += row[node] > 0
    return model, int(models[model]), count


@njit(inner=True, cache=True, nogil=True)
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


@njit(inner=True, cache=True, nogil=True)
def _mean(one: Int, now: Int, speedup: Float, penalty: Float, power: float, held: Int) -> float:
    """Returns the power mean of all speedups; `held`: nodes and GPUs of each job (jobs, 2)."""
    jobs, total = len(one), 0.0
    for job in range(jobs):
        worth = speedup[job, held[job, 0], held[job, 1]]
        if not _same(one[job : job + 1], now[job : job + 1]):
            worth *= penalty[job]
        total += (worth + LEAST_SPEEDUP) ** power
    return float((total / jobs) ** (1 / power))
