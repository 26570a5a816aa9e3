"""All runs of the jobs of a schedule on nodes: where nodes fail, a job may start several times.

Figures of whole jobs take the schedule itself; whoever asks who held what at a time takes these runs.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.outages import FAULT
from twin.placement.cluster import MILLI
from twin.placement.recipe import Int
from twin.queue.simulation import QueueSchedule


@dataclass(frozen=True, eq=False)
class NodeRuns:
    """Runs of jobs, one element a run in every array: first those that faults ended, in that order, then the
    last run of each job.

    job: place of the job. ready_ns: since when it waited, its submission or the end of its run before.
    start_ns, end_ns: in which time it held its GPUs. before_ns: work that runs before had kept for it.
    backfilled: whether it overtook the head of the queue. Slots of run i are `slots[first[i]:first[i + 1]]`.
    """

    job: Int
    ready_ns: Int
    start_ns: Int
    end_ns: Int
    before_ns: Int
    backfilled: NDArray[np.bool_]
    first: Int
    slots: Int

    def __len__(self) -> int:
        return len(self.job)

    def as_jobs(self, of: QueueSchedule) -> QueueSchedule:
        """Returns the runs as jobs of their own, in no order of submission; `of` is the schedule of their
        jobs, which says what they are and what processors are."""
        jobs = replace(of.jobs.select(self.job), submit_ns=self.ready_ns, run_ns=self.end_ns - self.start_ns)
        return QueueSchedule(jobs, of.processors, self.start_ns, self.backfilled)

    def first_starts(self, jobs: int) -> Int:
        """Returns when each of so many jobs starts for the first time (jobs,), nanoseconds."""
        found = np.full(jobs, np.iinfo(np.int64).max)
        np.minimum.at(found, self.job, self.start_ns)
        return found

    def done_ns(self, jobs: int, at_ns: int) -> Int:
        """Returns the most work that each of so many jobs had done at once by a time (jobs,), nanoseconds:
        what its runs before had kept, and its run so far. Work that was lost counts: it is known that the job
        is longer."""
        begun = self.start_ns < at_ns
        reached = self.before_ns + np.minimum(self.end_ns, at_ns) - self.start_ns
        found = np.zeros(jobs, np.int64)
        np.maximum.at(found, self.job[begun], reached[begun])
        return found


def runs_of(done: NodeSchedule) -> NodeRuns:
    """Returns all runs of a schedule."""
    broken, count = done.broken, len(done.jobs)
    job = np.concatenate((broken.job, np.arange(count)))
    start_ns = np.concatenate((broken.start_ns, done.start_ns))
    end_ns = np.concatenate((broken.end_ns, done.end_ns))
    kept_ns = np.concatenate((broken.kept_ns, np.zeros(count, np.int64)))
    ready_ns, before_ns = done.jobs.submit_ns[job], np.zeros(len(job), np.int64)
    if len(broken):
        order = np.lexsort((start_ns, job))
        again = np.flatnonzero(job[order][1:] == job[order][:-1]) + 1
        ready_ns[order[again]] = end_ns[order[again - 1]]
        kept_ns, before = kept_ns[order], np.cumsum(kept_ns[order]) - kept_ns[order]
        opening = np.flatnonzero(np.diff(job[order], prepend=-1))
        before_ns[order] = before - np.repeat(before[opening], np.diff(opening, append=len(job)))
    return NodeRuns(
        job, ready_ns, start_ns, end_ns, before_ns,
        np.concatenate((broken.backfilled, done.backfilled)),
        np.concatenate((broken.first[:-1], broken.first[-1] + done.first)),
        np.concatenate((broken.slots, done.slots)),
    )  # fmt: skip


def hit_nodes(done: NodeSchedule) -> Int:
    """Returns the node whose fault ended each run of `done.broken`, of several at one instant the first.

    It is -1 if there was no such fault, which can only be in a log that somebody has changed."""
    broken, width = done.broken, int(done.cluster.gpus.max())
    time_ns, node, kind = done.outages.changes()
    time_ns, node = time_ns[kind == FAULT], node[kind == FAULT]
    first = np.searchsorted(time_ns, broken.end_ns, side="left")
    last = np.searchsorted(time_ns, broken.end_ns, side="right")
    found = np.empty(len(broken), np.int64)
    for at, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        held = broken.slots[broken.first[at] : broken.first[at + 1]] // width
        found[at] = next((one for one in node[begin:end].tolist() if one in held), -1)
    return found


@dataclass(frozen=True, eq=False)
class Pieces:
    """Shares of GPUs that runs hold, one element a piece in every array: its run, node and slot, and
    thousandths of the GPU."""

    run: Int
    node: Int
    slot: Int
    milli: Int


def pieces_of(done: NodeSchedule, runs: NodeRuns) -> Pieces:
    """Returns the pieces of all runs that hold GPUs."""
    run = np.repeat(np.arange(len(runs)), np.diff(runs.first))
    milli = done.demands.wants.milli[done.demands.class_of][runs.job[run]]
    held = milli > 0
    slot = runs.slots[held]
    return Pieces(run[held], slot // int(done.cluster.gpus.max()), slot, milli[held])


def out_over_time(done: NodeSchedule) -> tuple[Int, Int]:
    """Returns the times at which outages take more or less of the GPUs, nanoseconds, and how much they take
    from each on, thousandths of a GPU: what no job holds of nodes that are out."""
    node, down_ns, up_ns = done.outages.stretches()
    runs = runs_of(done)
    pieces = pieces_of(done, runs)
    whole = done.cluster.gpus[node] * MILLI
    times, steps = [down_ns, up_ns], [whole, -whole]
    order = np.argsort(pieces.node, kind="stable")
    own = np.searchsorted(pieces.node[order], (node, node + 1))
    drained = np.isin(node, done.outages.node[done.outages.drain])
    for at in np.flatnonzero(drained).tolist():  # jobs go on where a node drains
        mine = order[own[0, at] : own[1, at]]
        begin = np.maximum(runs.start_ns[pieces.run[mine]], down_ns[at])
        end = np.minimum(runs.end_ns[pieces.run[mine]], up_ns[at])
        milli, over = pieces.milli[mine], end > begin
        times += [begin[over], end[over]]
        steps += [-milli[over], milli[over]]
    changed, place = np.unique(np.concatenate(times), return_inverse=True)
    net = np.zeros(len(changed), np.int64)
    np.add.at(net, place, np.concatenate(steps))
    return changed, np.cumsum(net)


def on_nodes_out(done: NodeSchedule) -> list[str]:
    """Returns what cannot be: a run that starts on a node that is out, or that outlasts a fault of its
    node."""
    out, runs = done.outages, runs_of(done)
    if not len(out):
        return []
    pieces = pieces_of(done, runs)
    start_ns, end_ns = runs.start_ns[pieces.run], runs.end_ns[pieces.run]
    node, down_ns, up_ns = out.stretches()
    latest = _latest(node, down_ns, pieces.node, start_ns)
    wrong = {"starts on node {}, which is out": (latest >= 0) & (up_ns[latest] > start_ns)}
    order = np.lexsort((out.down_ns, out.node))
    order = order[~out.drain[order]]
    if len(order):
        node, down_ns = out.node[order], out.down_ns[order]
        latest = _latest(node, down_ns, pieces.node, end_ns - 1)  # a job that ends at a fault has ended
        wrong["goes on after a fault of its node {}"] = (latest >= 0) & (down_ns[latest] > start_ns)
    return [
        f"job {runs.job[pieces.run[at]] + 1} {said.format(pieces.node[at])}"
        for said, where in wrong.items()
        for at in np.flatnonzero(where)[:1].tolist()
    ]


def _latest(node: Int, time_ns: Int, of_node: Int, at_ns: Int) -> Int:
    """Returns which of the times of nodes, in order, is the last one of a node up to a time (n,); -1 for
    none."""
    both, times = np.concatenate((node, of_node)), np.concatenate((time_ns, at_ns))
    asked = np.arange(len(both)) >= len(node)
    order = np.lexsort((asked, times, both))
    given = np.where(asked[order], -1, np.arange(len(order)))
    last = np.maximum.accumulate(given)
    found = np.full(len(both), -1, np.int64)
    known = last >= 0
    found[order[known]] = order[last[known]]
    found = found[len(node) :]
    same = (found >= 0) & (np.append(node, -1)[found] == of_node)
    return np.where(same, found, -1)
