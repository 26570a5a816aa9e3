"""Which rows of a log, or of a list of pods, are jobs that nodes can run, and what they ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError, UsageError
from ingest.parsing.reader import Reject
from ingest.readers.clusters.openb_lists import NodeList, PodList
from ingest.readers.clusters.swf_log import SwfLog
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands, mask_of, possible
from twin.placement.recipe import Gang, Int
from twin.queue.jobs import QueueJobs
from twin.queue.rules import QueueRules
from twin.queue.selection import by_reason, select

NOWHERE = "fits on no nodes of the cluster"
"""Reason of a job that the empty cluster cannot run."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class NodeJobs:
    """The jobs of a log on the nodes of a cluster, the rows left out with their reasons, and what else is to
    be known."""

    name: str
    cluster: NodeCluster
    jobs: QueueJobs
    demands: Demands
    rejects: tuple[Reject, ...]
    notes: tuple[str, ...]
    ids: Mapping[int, str] = field(default_factory=dict)
    users: Mapping[int, str] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, int]:
        """Rows left out by reason, most first."""
        return by_reason(self.rejects)


def select_log(log: SwfLog, cluster: NodeCluster, rules: QueueRules, gangs: Sequence[Gang]) -> NodeJobs:
    """Returns the jobs of a log on nodes: a processor is a GPU of any model; CPU and memory are not asked
    for.

    Raises:
        InputError: no job is left.
    """
    found = select(log, rules, cluster.total_gpus)
    demands = Demands.of_jobs(cluster, found.jobs.processors)
    line = dict(zip(log.column("job").astype(np.int64).tolist(), log.line.tolist(), strict=True))
    fit = _fit(cluster, demands, gangs)
    nowhere = [
        Reject(line[int(number)], "job", f"{number} with {gpus} GPUs", NOWHERE)
        for number, gpus in zip(found.jobs.number[~fit], found.jobs.processors[~fit], strict=True)
    ]
    notes = (*found.notes, f"GPUs of any model; nodes: {cluster.describe()}")
    made = _kept(log.name, cluster, found.jobs, demands, fit, (*found.rejects, *nowhere), notes)
    return replace(made, ids=found.ids, users=found.users)


def select_pods(pods: PodList, cluster: NodeCluster, gangs: Sequence[Gang]) -> NodeJobs:
    """Returns the pods of a list with times: created, and run from their start to their deletion.

    Raises:
        UsageError: the list has no times. InputError: no pod is left.
    """
    created, started, deleted = pods.times.T
    if not np.isfinite(created).any():
        raise UsageError(
            f"{pods.name}: pods without times are an order of arrival, no queue; name a list with times"
        )
    run = deleted - started
    strange = {one: _unknown_model(cluster, one) for one in dict.fromkeys(pods.models)}
    rejects, sound = list(pods.rejects), np.ones(len(pods), np.bool_)
    faults = {
        "never started, so its run time is not known": ~np.isfinite(started),
        "run time not positive": ~(run > 0),
        "submit time negative or not known": ~(created >= 0),
    }
    for reason, mask in faults.items():
        rejects += [
            Reject(int(pods.row[at]), "pod", pods.names[at], reason) for at in np.flatnonzero(sound & mask)
        ]
        sound &= ~mask
    for at in np.flatnonzero(sound):
        if reason := strange[pods.models[at]]:
            rejects.append(Reject(int(pods.row[at]), "gpu_spec", pods.models[at][:80], reason))
            sound[at] = False
    order = np.flatnonzero(sound)
    order = order[np.lexsort((pods.row[order], created[order]))]
    if not len(order):
        raise InputError(f"{pods.name}: no pod is left of {pods.rows_in:,}; {rejects[0].reason}")
    demands = demands_of(pods, cluster, order)
    jobs = QueueJobs.of_seconds(
        created[order], run[order], np.maximum(pods.gpus[order], 1), number=pods.row[order]
    )
    fit = _fit(cluster, demands, gangs)
    rejects += [Reject(int(row), "pod", pods.names[row - 1], NOWHERE) for row in pods.row[order][~fit]]
    notes = "the list has no estimates: run times are taken for them", f"nodes: {cluster.describe()}"
    made = _kept(pods.name, cluster, jobs, demands, fit, rejects, notes)
    return replace(made, ids={row: pods.names[row - 1] for row in made.jobs.number.tolist()})


def cluster_of(nodes: NodeList, order: Int | None = None) -> NodeCluster:
    """Returns the cluster of a list of nodes, in the order of the list or in another one."""
    chosen = np.arange(len(nodes.gpus)) if order is None else order
    models = [nodes.models[one] for one in chosen]
    racks = [nodes.racks[one] for one in chosen]
    return NodeCluster.of_nodes(
        nodes.gpus[chosen], models, nodes.cpu_milli[chosen], nodes.memory_mib[chosen], racks
    )


def demands_of(pods: PodList, cluster: NodeCluster, order: Sequence[int] | Int | None = None) -> Demands:
    """Returns what pods ask for, in the order of the list or of indices."""
    chosen = np.arange(len(pods)) if order is None else np.asarray(order, np.int64)
    return Demands.of_jobs(
        cluster, pods.gpus[chosen], pods.milli[chosen], pods.cpu_milli[chosen], pods.memory_mib[chosen],
        [pods.models[one] for one in chosen],
    )  # fmt: skip


def _unknown_model(cluster: NodeCluster, models: str) -> str:
    """Why no node has a model that is named; "" if some node has."""
    try:
        mask_of(cluster, models)
    except UsageError as error:
        return str(error)
    return ""


def _fit(cluster: NodeCluster, demands: Demands, gangs: Sequence[Gang]) -> Mask:
    """Which jobs the empty cluster can run, however gangs are cut (n,)."""
    fit = np.ones(len(demands.class_of), np.bool_)
    for gang in dict.fromkeys(gangs):
        fit &= possible(cluster, demands.wants, gang)[demands.class_of]
    return fit


def _kept(
    name: str, cluster: NodeCluster, jobs: QueueJobs, demands: Demands, fit: Mask, rejects: Sequence[Reject],
    notes: Sequence[str],
) -> NodeJobs:  # fmt: skip
    """The jobs that fit."""
    found = tuple(sorted(rejects, key=lambda reject: reject.row))
    if not fit.any():
        raise InputError(f"{name}: no job is left; {NOWHERE}: {int((~fit).sum()):,}")
    kept = Demands(np.ascontiguousarray(demands.class_of[fit]), demands.wants, demands.tasks)
    return NodeJobs(name, cluster, jobs.select(fit), kept, found, tuple(notes))
