"""Lookahead optimising scheduler (LOS) on a small queue: a dynamic programme picks who starts.

Shmueli and Feitelson, "Backfilling with lookahead to optimize the packing of parallel jobs", JPDC 2005, with
the reservation of section 3. Whenever jobs were submitted or have ended, the head of the queue starts if it
fits; else it has a reservation, and of the others the set starts that uses the most processors, within those
free now, and for jobs that run past the reservation within those that the head leaves. Of equal sets the one
with earlier jobs is taken. It is the knapsack of `n` jobs over `C` processors that the design documents name
(chapter 3, 3.6.2), with a second capacity. Run times are known to it, later submissions are not.
"""

import numpy as np


def lookahead_wait_slots(submit: np.ndarray, run: np.ndarray, processors: np.ndarray, pool: int) -> float:
    """Returns the sum of waits, in slots."""
    starts = lookahead_starts(submit.tolist(), run.tolist(), processors.tolist(), pool)
    return float(sum(starts) - submit.sum())


def lookahead_starts(submit: list[int], run: list[int], processors: list[int], pool: int) -> list[int]:
    """Returns the start of each job, in slots; jobs come in order of submission."""
    starts, ends = dict[int, int](), dict[int, int]()
    now = 0
    while len(starts) < len(submit):
        queue = [job for job, at in enumerate(submit) if at <= now and job not in starts]
        held = {job: end for job, end in ends.items() if end > now}
        free = pool - sum(processors[job] for job in held)
        for job in _chosen(queue, held, free, now, run, processors):
            starts[job], ends[job] = now, now + run[job]
        now = (
            min(time for time in (*submit, *ends.values()) if time > now)
            if len(starts) < len(submit)
            else now
        )
    return [starts[job] for job in range(len(submit))]


def _chosen(
    queue: list[int], held: dict[int, int], free: int, now: int, run: list[int], processors: list[int]
) -> list[int]:
    """Who starts now: heads of the queue while they fit, then the best set of the others."""
    begun = list[int]()
    held = dict(held)
    while queue and processors[queue[0]] <= free:
        job = queue.pop(0)
        begun.append(job)
        held[job] = now + run[job]
        free -= processors[job]
    if not queue or not free:
        return begun
    shadow, left = now, free
    for end in sorted(set(held.values())):
        shadow, left = end, free + sum(processors[job] for job, stop in held.items() if stop <= end)
        if left >= processors[queue[0]]:
            break
    spare = min(left - processors[queue[0]], free)
    return begun + best_set(
        [(job, processors[job], now + run[job] > shadow) for job in queue[1:]], free, spare
    )


def best_set(jobs: list[tuple[int, int, bool]], free: int, spare: int) -> list[int]:
    """Returns the jobs, of (job, processors, runs past the reservation), that use the most of the `free`
    processors and, if they run past it, no more than `spare`."""
    most = np.zeros((len(jobs) + 1, free + 1, spare + 1), np.int64)
    for i in range(len(jobs) - 1, -1, -1):  # most[i]: by jobs from the i-th on
        _, size, late = jobs[i]
        most[i] = most[i + 1]
        past = size if late else 0
        if size <= free and past <= spare:
            taken = size + most[i + 1][: free + 1 - size, : spare + 1 - past]
            np.maximum(most[i][size:, past:], taken, out=most[i][size:, past:])
    found = list[int]()
    for i, (job, size, late) in enumerate(jobs):
        past = size if late else 0
        if (
            size <= free
            and past <= spare
            and most[i, free, spare] == size + most[i + 1, free - size, spare - past]
        ):
            found.append(job)
            free, spare = free - size, spare - past
    return found
