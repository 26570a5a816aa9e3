"""Compiled parts of outages: nodes that are out, and jobs that go back to the queue.

A node that is out has less than nothing left of everything, so that nothing fits on it, whatever its running
jobs give back; what is taken from it is given back when its last outage ends."""

from typing import NamedTuple

import numpy as np

from ingest.core.compiled import njit
from twin.nodes.outages import UNBROKEN, Interruptions, NodeOutages
from twin.placement.cluster import MILLI
from twin.placement.nodes import Nodes
from twin.placement.recipe import Int
from twin.queue.pool import FIRST, RUNNING, WAITING, Flags, Inputs, Pool

CURSOR, BROKEN, WRITTEN = range(3)
"""Places of `Faults.counts`: the next change, runs that were ended, and slots of them."""
OUT_GPU, OUT_CPU = 2 * MILLI, 2**50
"""Thousandths of each GPU, and of CPU, by which a node that is out has less."""


class Faults(NamedTuple):
    """Time, node and kind of each change of a node (m,); outages that each node is in (nodes,); nanoseconds
    between checkpoints, 0: none; and the runs that were ended, as far as there is room: `counts` says how
    many there were."""

    at: Int
    node: Int
    kind: Int
    depth: Int
    interval: int
    counts: Int
    job: Int
    start: Int
    end: Int
    kept: Int
    overtook: Int
    slot: Int


def faults_of(
    outages: NodeOutages, nodes: int, checkpoint_interval_ns: int = 0, runs: int = 0, slots: int = 0
) -> Faults:
    """Returns the changes to come, with room for so many runs and slots."""
    at, node, kind = outages.changes()
    job, start, end, kept, overtook = (np.zeros(runs, np.int64) for _ in range(5))
    return Faults(
        at, node, kind, np.zeros(nodes, np.int64), checkpoint_interval_ns, np.zeros(3, np.int64), job, start,
        end, kept, overtook, np.zeros(slots, np.int64),
    )  # fmt: skip


def interruptions(faults: Faults, first: Int) -> Interruptions:
    """Returns the runs that were ended, all of which had room; `first` says where slots begin (n + 1,)."""
    count, written = int(faults.counts[BROKEN]), int(faults.counts[WRITTEN])
    if not count:
        return UNBROKEN
    job = faults.job[:count]
    begins = np.concatenate(([0], np.cumsum(np.diff(first)[job]))).astype(np.int64)
    return Interruptions(
        job, faults.start[:count], faults.end[:count], faults.kept[:count], faults.overtook[:count] > 0,
        begins, faults.slot[:written],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def block(nodes: Nodes, n: int) -> None:
    """Takes a node out."""
    model = nodes.model[n]
    nodes.cpu[n] -= OUT_CPU
    for gpu in range(nodes.gpus[n]):
        nodes.left[n, gpu] -= OUT_GPU
    nodes.whole_of[model, nodes.whole[n]] -= 1
    nodes.whole[n] = 0
    nodes.whole_of[model, 0] += 1
    nodes.version[n] += 1


@njit(inner=True, cache=True, nogil=True)
def unblock(nodes: Nodes, n: int) -> None:
    """Gives a node back to the cluster."""
    model, whole = nodes.model[n], 0
    nodes.cpu[n] += OUT_CPU
    for gpu in range(nodes.gpus[n]):
        nodes.left[n, gpu] += OUT_GPU
        whole += nodes.left[n, gpu] == MILLI
    nodes.whole_of[model, 0] -= 1
    nodes.whole[n] = whole
    nodes.whole_of[model, whole] += 1
    nodes.version[n] += 1


@njit(inner=True, cache=True, nogil=True)
def ended_by(pool: Pool, first: Int, slots: Int, width: int, n: int, time: int) -> Int:
    """Returns the running jobs with a slot on a node, in their order; without those that end at this very
    time."""
    found = np.zeros(pool.now[RUNNING], np.int64)
    count = 0
    for i in range(pool.now[RUNNING]):
        job = pool.end_of[i]
        if pool.end_at[i] > time:
            for place in range(first[job], first[job + 1]):
                if slots[place] // width == n:
                    found[count] = job
                    count += 1
                    break
    return np.sort(found[:count])


@njit(cache=True, nogil=True)
def interrupt(jobs: Inputs, pool: Pool, faults: Faults, job: int, time: int, held: Int) -> None:
    """Ends a running job for now: what it has still to run is its run less what its last checkpoint keeps;
    writes the run and its slots down."""
    now, counts, i = pool.now, faults.counts, pool.now[RUNNING] - 1
    while pool.end_of[i] != job:
        i -= 1
    now[RUNNING] -= 1
    for j in range(i, now[RUNNING]):
        pool.end_at[j], pool.end_of[j] = pool.end_at[j + 1], pool.end_of[j + 1]
    kept = 0
    if faults.interval:
        kept = (time - pool.start[job]) // faults.interval * faults.interval
    at = counts[BROKEN]
    if at < len(faults.job):
        faults.job[at], faults.start[at], faults.end[at] = job, pool.start[job], time
        faults.kept[at], faults.overtook[at] = kept, pool.backfilled[job]
    for slot in held:
        if counts[WRITTEN] < len(faults.slot):
            faults.slot[counts[WRITTEN]] = slot
        counts[WRITTEN] += 1
    counts[BROKEN] += 1
    jobs.run[job] -= kept
    jobs.predicted[job] = max(jobs.predicted[job] - kept, min(jobs.predicted[job], 1))
    pool.backfilled[job] = False


@njit(inner=True, cache=True, nogil=True)
def requeue(flags: Flags, pool: Pool, job: int) -> None:
    """Puts a job back into the queue: by its key, and among those of its key by its submission."""
    now, queue, key = pool.now, pool.queue, pool.key
    if now[FIRST]:
        now[FIRST] -= 1
    else:
        for i in range(now[WAITING], 0, -1):
            queue[i] = queue[i - 1]
    i, last = now[FIRST], now[FIRST] + now[WAITING]
    now[WAITING] += 1
    while i < last and not flags.moving:
        other = queue[i + 1]
        if key[other] > key[job] or (key[other] == key[job] and other > job):
            break
        queue[i] = other
        i += 1
    queue[i] = job
