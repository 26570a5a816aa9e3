"""The nodes of a queue run in its header, their outages, and what its jobs ask of them, to and from JSON."""

from itertools import groupby
from typing import Any

import numpy as np

from ingest.core.errors import DamageError, UsageError
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.outages import NO_OUTAGES, FaultLaw, NodeOutages
from twin.nodes.runs import pieces_of, runs_of
from twin.placement.cluster import MILLI, NodeCluster
from twin.placement.demands import Demands, Mix, Wants
from twin.placement.recipe import Int

Json = dict[str, Any]
NODES, OUTAGES = "nodes", "outages"
"""Key of the header's scenario, and key of the outages in it."""
MOST_OUTAGES = 250_000
"""Outages that a header holds."""


def to_json(done: NodeSchedule) -> Json:
    """Returns the nodes, equal neighbours counted as [nodes, model, GPUs, CPU, memory, rack], and the classes
    of demands with their tasks, all in the order in which the simulator has them; and the outages, if any.

    Raises:
        UsageError: there are too many outages for a header.
    """
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
        **({OUTAGES: _outages_to_json(done)} if len(done.outages) or done.outages.law else {}),
    }


def cluster_from(stored: Json) -> NodeCluster:
    """Returns the nodes of a header."""
    groups = np.array(stored["groups"], np.int64)
    if groups.shape[1] == 5:  # a log from before racks were known
        groups = np.column_stack((groups, np.zeros(len(groups), np.int64)))
    columns = (np.repeat(groups[:, at], groups[:, 0]) for at in range(1, 6))
    return NodeCluster(tuple(stored["models"]), *(np.ascontiguousarray(column) for column in columns))


def _outages_to_json(done: NodeSchedule) -> Json:
    """Rows of [node, begin, end, whether it is a drain], nanoseconds; of drawn faults those up to the last
    end, with the law by which others follow."""
    out = done.outages if done.outages.law is None else done.outages.begun_by(int(done.end_ns.max()))
    if len(out) > MOST_OUTAGES:
        raise UsageError(
            f"{len(out):,} outages, more than the {MOST_OUTAGES:,} that a run keeps: take fewer jobs or "
            "longer times between faults, or leave --keep out"
        )
    columns = (out.node, out.down_ns, out.up_ns, out.drain.astype(np.int64))
    law = out.law
    return {
        "rows": np.column_stack(columns).tolist(),
        "checkpoint_interval_ns": done.checkpoint_interval_ns,
        "drawn": law and {"mtbf_s": law.mtbf_s, "mttr_s": law.mttr_s, "seed": law.seed},
    }


def outages_from(stored: Json) -> tuple[NodeOutages, int]:
    """Returns the outages of the nodes of a header, and the nanoseconds between checkpoints; 0: none.

    Raises:
        DamageError: one ends before it begins.
    """
    if OUTAGES not in stored:
        return NO_OUTAGES, 0
    said = stored[OUTAGES]
    rows, law = np.array(said["rows"], np.int64).reshape(-1, 4), said["drawn"]
    node, down_ns, up_ns, drain = (np.ascontiguousarray(column) for column in rows.T)
    if (down_ns >= up_ns).any():
        raise DamageError("the header holds an outage that ends before it begins")
    found = NodeOutages(node, down_ns, up_ns, drain > 0, None if law is None else FaultLaw(**law))
    return found, int(said["checkpoint_interval_ns"])


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
    runs = runs_of(done)
    pieces = pieces_of(done, runs)
    times = np.concatenate((runs.start_ns[pieces.run], runs.end_ns[pieces.run]))
    steps, slots = np.concatenate((pieces.milli, -pieces.milli)), np.tile(pieces.slot, 2)
    order = np.lexsort((steps, times, slots))  # at one instant jobs end before others start
    used = np.cumsum(steps[order])  # every GPU is empty in the end, so that the sum starts anew with each
    wrong = np.flatnonzero(used > MILLI)
    if not len(wrong):
        return []
    node, gpu = divmod(int(slots[order][wrong[0]]), int(done.cluster.gpus.max()))
    return [f"GPU {gpu} of node {node} holds {used[wrong[0]]} thousandths of itself"]
