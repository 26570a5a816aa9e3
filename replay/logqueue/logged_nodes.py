"""The nodes of a queue run in its header, and what its jobs ask of them, to and from JSON values."""

from itertools import groupby
from typing import Any

import numpy as np

from twin.placement.cluster import MILLI, NodeCluster
from twin.placement.demands import Demands, Mix, Wants
from twin.placement.recipe import Int
from twin.queue.on_nodes import NodeSchedule

Json = dict[str, Any]
NODES = "nodes"
"""Key of the header's scenario."""


def to_json(done: NodeSchedule) -> Json:
    """Returns the nodes, equal neighbours counted as [nodes, model, GPUs, CPU, memory, rack], and the classes
    of demands with their tasks, all in the order in which the simulator has them."""
    one, asked = done.cluster, done.demands
    rows = zip(
        *(column.tolist() for column in (one.model, one.gpus, one.cpu_milli, one.memory_mib, one.rack)),
        strict=True,
    )
    return {
        "models": list(one.models),
        "groups": [[len(list(same)), *kind] for kind, same in groupby(rows)],
        "classes": _columns(asked.wants),
        "tasks": _columns(asked.tasks),
    }


def cluster_from(stored: Json) -> NodeCluster:
    """Returns the nodes of a header."""
    groups = np.array(stored["groups"], np.int64)
    if groups.shape[1] == 5:  # a log from before racks were known
        groups = np.column_stack((groups, np.zeros(len(groups), np.int64)))
    columns = (np.repeat(groups[:, at], groups[:, 0]) for at in range(1, 6))
    return NodeCluster(tuple(stored["models"]), *(np.ascontiguousarray(column) for column in columns))


def demands_from(stored: Json, class_of: Int) -> Demands:
    """Returns the demands of jobs of these classes."""
    wants, tasks = stored["classes"], stored["tasks"]
    return Demands(class_of, Wants(**_arrays(wants)), Mix(**_arrays(tasks)))


def _columns(held: Wants | Mix) -> Json:
    return {name: column.tolist() for name, column in held._asdict().items()}


def _arrays(stored: Json) -> Json:
    return {
        name: np.array(column, np.bool_ if name == "allowed" else np.int64) for name, column in stored.items()
    }


def overfull(done: NodeSchedule) -> list[str]:
    """Returns what cannot be: a GPU that at some time holds more than it has."""
    milli = done.demands.wants.milli[done.demands.class_of]
    sizes = np.diff(done.first)
    job = np.repeat(np.arange(len(sizes)), sizes)
    held = milli[job] > 0
    slot, job = done.slots[held], job[held]
    times = np.concatenate((done.start_ns[job], (done.start_ns + done.jobs.run_ns)[job]))
    steps = np.concatenate((milli[job], -milli[job]))
    slots = np.tile(slot, 2)
    order = np.lexsort((steps, times, slots))  # at one instant jobs end before others start
    used = np.cumsum(steps[order])  # every GPU is empty in the end, so that the sum starts anew with each
    wrong = np.flatnonzero(used > MILLI)
    if not len(wrong):
        return []
    node, gpu = divmod(int(slots[order][wrong[0]]), int(done.cluster.gpus.max()))
    return [f"GPU {gpu} of node {node} holds {used[wrong[0]]} thousandths of itself"]
