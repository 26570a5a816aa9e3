"""Figures of a schedule on nodes: those of a pool, and what placement makes of the cluster."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.runs import pieces_of, runs_of
from twin.placement import fragmentation
from twin.placement.cluster import MILLI
from twin.placement.demands import Mix, Wants
from twin.placement.nodes import Nodes, idle, take
from twin.placement.recipe import Int
from twin.queue.jobs import Float
from twin.queue.metrics import QueueFigures, figures

OUT_MILLI = 2**40
"""Thousandths of a GPU that an outage takes of a node: more than any node has."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The figures of a pool, where utilisation counts shares of GPUs, and:

    fragmentation: share of all GPUs that is free but that the mix of all jobs cannot use (FGD's measure),
        the mean over the makespan. The mix is that of the whole log: a measure in hindsight, unknown to
        placements.
    nodes_per_gang: mean nodes of jobs of several GPUs; None if there are none.
    racks_per_gang: mean racks of jobs on several nodes; None if there are none, or one rack.
    restarts, most_restarts: runs that faults ended, of all jobs and of one.
    lost_gpu_s: GPU-seconds of work that faults lost.
    availability: share of GPU time, from the first submission to the last end, on nodes that are not out."""

    of_pool: QueueFigures
    fragmentation: float
    nodes_per_gang: float | None
    racks_per_gang: float | None
    restarts: int = 0
    most_restarts: int = 0
    lost_gpu_s: float = 0.0
    availability: float = 1.0

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return {
            **self.of_pool.to_json(), "fragmentation": self.fragmentation,
            "nodes_per_gang": self.nodes_per_gang, "racks_per_gang": self.racks_per_gang,
            "restarts": self.restarts, "most_restarts": self.most_restarts, "lost_gpu_s": self.lost_gpu_s,
            "availability": self.availability,
        }  # fmt: skip


def node_figures(done: NodeSchedule) -> NodeFigures:
    """Returns the figures of a schedule of at least one job."""
    often = done.broken.of_jobs(len(done.jobs))
    return NodeFigures(
        figures(done.as_pool), mean_fragmentation(done), nodes_per_gang(done), racks_per_gang(done),
        len(done.broken), int(often.max()), lost_gpu_s(done), availability(done),
    )  # fmt: skip


def lost_gpu_s(done: NodeSchedule) -> float:
    """Returns the GPU-seconds of work that faults lost."""
    milli = (done.demands.wants.gpus * done.demands.wants.milli)[done.demands.class_of]
    return float((done.broken.lost_ns / NS_PER_S * milli[done.broken.job]).sum()) / MILLI


def availability(done: NodeSchedule) -> float:
    """Returns the share of GPU time over the makespan on nodes that are not out."""
    begin_ns, end_ns = int(done.jobs.submit_ns.min()), int(done.end_ns.max())
    total_s = (end_ns - begin_ns) / NS_PER_S * done.cluster.total_gpus
    return 1.0 - done.outages.out_gpu_s(done.cluster.gpus, begin_ns, end_ns) / total_s if total_s else 1.0


def mean_fragmentation(done: NodeSchedule) -> float:
    """Returns the mean fragmentation over the makespan, event by event, as a share of all GPUs; nodes that
    are out count as others."""
    times, lost, whole = _lost_over_time(done)
    begin_ns = int(done.jobs.submit_ns.min())
    span_ns = int(times[-1]) - begin_ns
    if not span_ns:
        return 0.0
    lengths = np.diff(times, prepend=begin_ns).astype(np.float64)
    return float(np.cumsum(lost[:-1].astype(np.float64) * lengths)[-1]) / (span_ns * whole)


def fragmentation_over_time(done: NodeSchedule) -> tuple[Int, Float]:
    """Returns the times of events, nanoseconds, and the fragmentation from each on: a share of all GPUs."""
    times, lost, whole = _lost_over_time(done)
    return times, lost[1:] / whole


def node_use(done: NodeSchedule) -> tuple[Int, Int]:
    """Returns the times at which the use of nodes changes (t,), nanoseconds, and how many nodes are idle,
    partly used, full and out from each on (t, 4), by the shares of GPUs that runs hold; a node that drains is
    out, whatever still runs there."""
    runs = runs_of(done)
    pieces, (node, down_ns, up_ns) = pieces_of(done, runs), done.outages.stretches()
    gone = np.full(len(node), OUT_MILLI)
    times = np.concatenate((runs.start_ns[pieces.run], runs.end_ns[pieces.run], down_ns, up_ns))
    steps = np.concatenate((pieces.milli, -pieces.milli, gone, -gone))
    nodes = np.concatenate((np.tile(pieces.node, 2), np.tile(node, 2)))
    order = np.lexsort((times, nodes))
    times, nodes, used = times[order], nodes[order], np.cumsum(steps[order])  # each node is idle in the end
    last = np.append((np.diff(times) != 0) | (np.diff(nodes) != 0), np.ones(min(1, len(times)), np.bool_))
    times, nodes, used = times[last], nodes[last], used[last]
    state = np.select((used == 0, used >= OUT_MILLI, used < MILLI * done.cluster.gpus[nodes]), (0, 3, 1), 2)
    before = np.where(np.diff(nodes, prepend=-1) != 0, 0, np.concatenate(([0], state))[:-1])
    changed, at = np.unique(times, return_inverse=True)
    net = np.zeros((len(changed), 4), np.int64)
    np.add.at(net, (at, state), 1)
    np.add.at(net, (at, before), -1)
    return changed, np.cumsum(net, axis=0) + np.array((len(done.cluster), 0, 0, 0))


def _lost_over_time(done: NodeSchedule) -> tuple[Int, Int, int]:
    """The times of events (e,), what is lost before the first and from each on (e + 1,), and all there is."""
    mix, runs = done.demands.counted(), runs_of(done)
    times, which = np.concatenate((runs.end_ns, runs.start_ns)), np.tile(np.arange(len(runs)), 2)
    signs = np.repeat((1, -1), len(runs))
    order = np.lexsort((signs * -1, times))  # ends before starts
    lost = _fragments(
        idle(done.cluster), done.demands.wants, done.demands.class_of[runs.job], mix, runs.first, runs.slots,
        np.ascontiguousarray(which[order]), np.ascontiguousarray(signs[order]),
    )  # fmt: skip
    return times[order], lost, int(mix.total[0]) * done.cluster.total_gpus * MILLI


def nodes_per_gang(done: NodeSchedule) -> float | None:
    """Returns the mean number of nodes of jobs of several GPUs."""
    gangs = np.diff(done.first) > 1
    return float(_places(done, _node_of(done))[gangs].mean()) if gangs.any() else None


def racks_per_gang(done: NodeSchedule) -> float | None:
    """Returns the mean number of racks of jobs on several nodes."""
    node = _node_of(done)
    gangs = _places(done, node) > 1
    if done.cluster.racks == 1 or not gangs.any():
        return None
    return float(_places(done, done.cluster.rack[node])[gangs].mean())


def _node_of(done: NodeSchedule) -> Int:
    """The node of each slot."""
    return done.slots // int(done.cluster.gpus.max())


def _places(done: NodeSchedule, place: Int) -> Int:
    """How many different places of its slots each job has (n,)."""
    sizes = np.diff(done.first)
    job = np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.unique(np.column_stack((job, place)), axis=0)
    return np.bincount(pairs[:, 0], minlength=len(sizes))


@njit(cache=True, nogil=True)
def _fragments(
    nodes: Nodes, wants: Wants, class_of: Int, mix: Mix, first: Int, slots: Int, jobs: Int, signs: Int
) -> Int:
    """The fragments of all nodes before the first event and after each: thousandths of a GPU times jobs of
    the mix."""
    width = nodes.left.shape[1]
    of_nodes = fragmentation.of_nodes(nodes, mix)
    lost = of_nodes.sum()
    found = np.empty(len(jobs) + 1, np.int64)
    for event in range(len(jobs)):
        found[event] = lost
        job = jobs[event]
        before = -1
        for place in range(first[job], first[job + 1]):
            take(nodes, wants, class_of[job], slots[place], signs[event])
        for place in range(first[job], first[job + 1]):
            n = slots[place] // width
            if n != before:
                now = fragmentation.of_node(nodes, n, mix)
                lost += now - of_nodes[n]
                of_nodes[n] = now
                before = n
    found[len(jobs)] = lost
    return found
