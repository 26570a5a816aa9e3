"""Figures of a schedule on nodes: those of a pool, and what placement makes of the cluster."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.core.compiled import njit
from twin.placement import fragmentation
from twin.placement.cluster import MILLI
from twin.placement.demands import Mix, Wants
from twin.placement.nodes import Nodes, idle, take
from twin.placement.recipe import Int
from twin.queue.metrics import QueueFigures, figures
from twin.queue.on_nodes import NodeSchedule


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The figures of a pool, where utilisation counts shares of GPUs, and:

    fragmentation: share of all GPUs that is free but that the mix of all jobs cannot use (FGD's measure),
        the mean over the makespan. The mix is that of the whole log: a measure in hindsight, unknown to
        placements.
    nodes_per_gang: mean nodes of jobs of several GPUs; None if there are none.
    racks_per_gang: mean racks of jobs on several nodes; None if there are none, or one rack."""

    of_pool: QueueFigures
    fragmentation: float
    nodes_per_gang: float | None
    racks_per_gang: float | None

    def to_json(self) -> dict[str, Any]:
        """Returns the figures by name."""
        return {
            **self.of_pool.to_json(), "fragmentation": self.fragmentation,
            "nodes_per_gang": self.nodes_per_gang, "racks_per_gang": self.racks_per_gang,
        }  # fmt: skip


def node_figures(done: NodeSchedule) -> NodeFigures:
    """Returns the figures of a schedule of at least one job."""
    return NodeFigures(
        figures(done.as_pool), mean_fragmentation(done), nodes_per_gang(done), racks_per_gang(done)
    )


def mean_fragmentation(done: NodeSchedule) -> float:
    """Returns the mean fragmentation over the makespan, event by event, as a share of all GPUs."""
    end_ns, mix = done.start_ns + done.jobs.run_ns, done.demands.counted()
    times, jobs = np.concatenate((end_ns, done.start_ns)), np.tile(np.arange(len(end_ns)), 2)
    signs = np.repeat((1, -1), len(end_ns))
    order = np.lexsort((signs * -1, times))  # ends before starts
    span_ns = int(end_ns.max() - done.jobs.submit_ns.min())
    if not span_ns:
        return 0.0
    sums = _integral(
        idle(done.cluster), done.demands.wants, done.demands.class_of, mix, done.first, done.slots,
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
