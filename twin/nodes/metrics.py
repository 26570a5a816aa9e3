"""Figures of a schedule on nodes: those of a pool, and what placement makes of the cluster."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.core.compiled import njit
from ingest.core.units import NS_PER_S
from twin.nodes.on_nodes import NodeSchedule
from twin.placement import fragmentation
from twin.placement.cluster import MILLI
from twin.placement.demands import Mix, Wants
from twin.placement.nodes import Nodes, idle, take
from twin.placement.recipe import Int
from twin.queue.metrics import QueueFigures, figures


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
    return 1.0 - done.outages.out_gpu_s(done.cluster, begin_ns, end_ns) / total_s if total_s else 1.0


def mean_fragmentation(done: NodeSchedule) -> float:
    """Returns the mean fragmentation over the makespan, event by event, as a share of all GPUs; nodes that
    are out count as others."""
    mix, broken, many = done.demands.counted(), done.broken, len(done.jobs)
    end_ns = np.concatenate((done.end_ns, broken.end_ns))
    start_ns = np.concatenate((done.start_ns, broken.start_ns))
    class_of = np.concatenate((done.demands.class_of, done.demands.class_of[broken.job]))
    first = np.concatenate((done.first, done.first[many] + broken.first[1:]))
    slots = np.concatenate((done.slots, broken.slots))
    times, jobs = np.concatenate((end_ns, start_ns)), np.tile(np.arange(len(end_ns)), 2)
    signs = np.repeat((1, -1), len(end_ns))
    order = np.lexsort((signs * -1, times))  # ends before starts
    span_ns = int(end_ns.max() - done.jobs.submit_ns.min())
    if not span_ns:
        return 0.0
    sums = _integral(
        idle(done.cluster), done.demands.wants, class_of, mix, first, slots,
        np.ascontiguousarray(times[order]), np.ascontiguousarray(jobs[order]),
        np.ascontiguousarray(signs[order]), int(done.jobs.submit_ns.min()),
    )  # fmt: skip
    return float(sums) / (span_ns * int(mix.total[0]) * done.cluster.total_gpus * MILLI)


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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _integral(
    nodes: Nodes, wants: Wants, class_of: Int, mix: Mix, first: Int, slots: Int, times: Int, jobs: Int,
    signs: Int, begin: int,
) -> float:  # fmt: skip
    """The fragments of all nodes over time: thousandths of a GPU times jobs of the mix times nanoseconds."""
    width = nodes.left.shape[1]
    of_nodes = fragmentation.of_nodes(nodes, mix)
    lost, found, last = of_nodes.sum(), 0.0, begin
    for event in range(len(times)):
        found += float(lost) * float(times[event] - last)
        last = times[event]
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
    return found
