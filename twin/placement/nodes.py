"""The compiled state of nodes: what is free, and whether a class of jobs could be placed there.

A job holds slots: slot = node x width + GPU, one for each GPU; a job without GPUs has the slot node x width.
CPU and memory go with the slots, each the same part of the job."""

from typing import NamedTuple

import numpy as np

from ingest.core.compiled import njit
from twin.placement.cluster import MILLI, NodeCluster
from twin.placement.demands import Wants
from twin.placement.recipe import CONSOLIDATED, RACK, SCATTERED, Int

TAKE, GIVE = np.int64(-1), np.int64(1)
"""Signs of `take`."""
ANY, ONE, NONE = np.int64(-1), np.int64(1), np.int64(0)
"""Any model or rack, one GPU or node, none. Not plain numbers: numba compiles a function anew for each
literal."""


class Nodes(NamedTuple):
    """One element a node: GPUs, model, rack, thousandths left of each GPU (nodes, width), of all GPUs, whole
    GPUs left, CPU and memory left, how many GPUs hold jobs of each size (nodes, width + 1; 0: shares), and a
    number that changes with the node.

    `whole_of` counts nodes of a model by whole GPUs left (models, width + 1); `largest` is the largest node
    of a model; `most` are the CPU and the GPUs of the largest nodes, by which scores are normalised; `able`
    is where nodes are listed that fit (nodes,), `racked` where nodes of a rack are counted (racks, 3)."""

    gpus: Int
    model: Int
    rack: Int
    left: Int
    total: Int
    whole: Int
    cpu: Int
    memory: Int
    held: Int
    version: Int
    whole_of: Int
    largest: Int
    most: Int
    able: Int
    racked: Int


def idle(cluster: NodeCluster) -> Nodes:
    """Returns the nodes of a cluster on which nothing runs."""
    width, models = int(cluster.gpus.max()), len(cluster.models)
    left = np.where(np.arange(width) < cluster.gpus[:, None], MILLI, 0).astype(np.int64)
    whole_of = np.zeros((models, width + 1), np.int64)
    np.add.at(whole_of, (cluster.model, cluster.gpus), 1)
    count = len(cluster)
    return Nodes(
        cluster.gpus.copy(), cluster.model.copy(), cluster.rack.copy(), left, cluster.gpus * MILLI,
        cluster.gpus.copy(),
        cluster.cpu_milli.copy(), cluster.memory_mib.copy(), np.zeros((count, width + 1), np.int64),
        np.zeros(count, np.int64), whole_of, cluster.largest(),
        np.array([cluster.cpu_milli.max(), width], np.int64), np.zeros(count, np.int64),
        np.zeros((cluster.racks, 3), np.int64),
    )  # fmt: skip


class Drafts(NamedTuple):
    """States of the same nodes to compute with, one element of the first axis a state.

    What is the same in all of them stands in `Nodes` alone: a compiled function passes on every array of its
    arguments one by one, and with five states of fifteen arrays that was most of what was compiled."""

    left: Int
    total: Int
    whole: Int
    cpu: Int
    memory: Int
    held: Int
    version: Int
    whole_of: Int


def drafts(nodes: Nodes, count: int) -> Drafts:
    """Returns so many states, each as the nodes are."""
    columns = (getattr(nodes, name) for name in Drafts._fields)
    return Drafts(*(np.stack([column] * count) for column in columns))


@njit(inline="always")
def draft(nodes: Nodes, states: Drafts, which: int) -> Nodes:
    """Returns the nodes in one of the states, as views; they list what they find where the nodes do."""
    return Nodes(
        nodes.gpus, nodes.model, nodes.rack, states.left[which], states.total[which], states.whole[which],
        states.cpu[which], states.memory[which], states.held[which], states.version[which],
        states.whole_of[which], nodes.largest, nodes.most, nodes.able, nodes.racked,
    )  # fmt: skip


@njit(inner=True, cache=True, nogil=True)
def assign(nodes: Nodes, other: Nodes) -> None:
    """Gives nodes the state of others of the same cluster."""
    nodes.left[:], nodes.total[:], nodes.whole[:] = other.left, other.total, other.whole
    nodes.cpu[:], nodes.memory[:] = other.cpu, other.memory
    nodes.held[:], nodes.whole_of[:] = other.held, other.whole_of


@njit(borrowing=True, cache=True, nogil=True)
def take(nodes: Nodes, wants: Wants, kind: int, slot: int, sign: int) -> None:
    """Takes a slot for a job of a class (sign -1), or gives it back (sign 1)."""
    width = nodes.left.shape[1]
    n, gpu = slot // width, slot % width
    nodes.cpu[n] += sign * wants.cpu[kind]
    nodes.memory[n] += sign * wants.memory[kind]
    nodes.version[n] += 1
    if wants.gpus[kind] == 0:
        return
    milli = wants.milli[kind]
    before = nodes.left[n, gpu]
    nodes.left[n, gpu] += sign * milli
    nodes.total[n] += sign * milli
    nodes.held[n, 0 if milli < MILLI else min(wants.gpus[kind], width)] -= sign
    change = int(nodes.left[n, gpu] == MILLI) - int(before == MILLI)
    if change:
        nodes.whole_of[nodes.model[n], nodes.whole[n]] -= 1
        nodes.whole[n] += change
        nodes.whole_of[nodes.model[n], nodes.whole[n]] += 1


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def find_able(nodes: Nodes, wants: Wants, kind: int, gpus: int, model: int, rack: int, most: int) -> int:
    """Writes the first nodes, `most` at most, that can hold so many GPUs of a job into `nodes.able`; returns
    how many. `model` -1 is any that the job accepts, `rack` -1 any."""
    share, units = wants.milli[kind], max(gpus, 1)
    cpu, memory, allowed = wants.cpu[kind] * units, wants.memory[kind] * units, wants.allowed[kind]
    node_cpu, node_memory, node_model, able = nodes.cpu, nodes.memory, nodes.model, nodes.able
    whole, count, found = nodes.whole, nodes.gpus, 0
    for n in range(len(count)):
        if node_cpu[n] < cpu or node_memory[n] < memory or (model >= 0 and node_model[n] != model):
            continue
        if rack >= 0 and nodes.rack[n] != rack:
            continue
        if gpus > 0:
            if not allowed[node_model[n]]:
                continue
            if share == MILLI:
                if whole[n] < gpus:
                    continue
            elif whole[n] == 0:
                roomy = False
                for gpu in range(count[n]):
                    if nodes.left[n, gpu] >= share:
                        roomy = True
                        break
                if not roomy:
                    continue
        able[found] = n
        found += 1
        if found == most:
            break
    return found


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def rooms(nodes: Nodes, wants: Wants, kind: int, model: int) -> int:
    """Returns how many whole GPUs of a job the nodes of a model can hold, one by one."""
    cpu, memory, found = wants.cpu[kind], wants.memory[kind], 0
    if not cpu and not memory:
        for whole in range(nodes.whole_of.shape[1]):
            found += whole * nodes.whole_of[model, whole]
        return int(found)
    for n in range(len(nodes.gpus)):
        if nodes.model[n] == model:
            most = nodes.whole[n]
            if most == 0:  # nor CPU, where the node is out
                continue
            if cpu:
                most = min(most, nodes.cpu[n] // cpu)
            if memory:
                most = min(most, nodes.memory[n] // memory)
            found += most
    return int(found)


@njit(borrowing=True, cache=True, nogil=True)
def single(nodes: Nodes, wants: Wants, kind: int) -> bool:
    """Returns True if a job of a class lies on one node: it is not larger than a node of a model that it
    accepts."""
    for model in range(len(nodes.largest)):
        if wants.allowed[kind, model] and wants.gpus[kind] <= nodes.largest[model]:
            return True
    return bool(wants.gpus[kind] == 0)


@njit(borrowing=True, cache=True, nogil=True)
def could(nodes: Nodes, wants: Wants, kind: int, gang: int) -> bool:
    """Returns True if a job of a class can be placed now."""
    gpus = wants.gpus[kind]
    if (gang == SCATTERED and gpus > 1) or not single(nodes, wants, kind):
        return bool(gang_place(nodes, wants, kind, gang if gang <= RACK else CONSOLIDATED)[0] >= 0)
    if gpus and wants.milli[kind] == MILLI:
        roomy = False
        for model in range(len(nodes.largest)):
            if wants.allowed[kind, model]:
                for whole in range(gpus, nodes.whole_of.shape[1]):
                    roomy = roomy or nodes.whole_of[model, whole] > 0
        if not roomy or (wants.cpu[kind] == 0 and wants.memory[kind] == 0):
            return roomy
    return bool(find_able(nodes, wants, kind, gpus, ANY, ANY, ONE) == 1)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def gang_place(nodes: Nodes, wants: Wants, kind: int, gang: int) -> tuple[int, int]:
    """Returns the first model of the cluster whose nodes can hold a gang, and the rack (-1: any); -1 as model
    if there is none."""
    if gang >= RACK:
        for model in range(len(nodes.largest)):
            if wants.allowed[kind, model]:
                rack = _rack_for(nodes, wants, kind, model)
                if rack >= 0:
                    return model, rack
        if gang == RACK:
            return -1, -1
    for model in range(len(nodes.largest)):
        if wants.allowed[kind, model] and _model_could(nodes, wants, kind, model, gang == SCATTERED):
            return model, -1
    return -1, -1


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _model_could(nodes: Nodes, wants: Wants, kind: int, model: int, scattered: bool) -> bool:
    """Returns True if the nodes of a model can hold a gang: whole nodes and one with the rest, or GPUs one by
    one."""
    gpus, large = wants.gpus[kind], nodes.largest[model]
    if scattered:
        return bool(rooms(nodes, wants, kind, model) >= gpus)
    full, rest = gpus // large, gpus % large
    if find_able(nodes, wants, kind, large, model, ANY, full) < full:
        return False
    return bool(rest == 0 or find_able(nodes, wants, kind, rest, model, ANY, full + 1) == full + 1)


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _rack_for(nodes: Nodes, wants: Wants, kind: int, model: int) -> int:
    """Returns the rack that can hold a gang on nodes of a model and has the least free there, of equals the
    first; -1 if none can. Large free racks are left for large jobs (best fit).
    """
    large, most = nodes.largest[model], len(nodes.gpus)
    full, rest = wants.gpus[kind] // large, wants.gpus[kind] % large
    count = nodes.racked
    count[:] = 0
    for at in range(find_able(nodes, wants, kind, large, model, ANY, most)):
        count[nodes.rack[nodes.able[at]], 0] += 1
    if rest:
        for at in range(find_able(nodes, wants, kind, rest, model, ANY, most)):
            count[nodes.rack[nodes.able[at]], 1] += 1
    for n in range(most):
        if nodes.model[n] == model and nodes.cpu[n] >= 0:  # a node that is out has less than none
            count[nodes.rack[n], 2] += nodes.total[n]
    best = -1
    for rack in range(len(count)):
        fits = count[rack, 0] >= full and (rest == 0 or count[rack, 1] > full)
        if fits and (best < 0 or count[rack, 2] < count[best, 2]):
            best = rack
    return best
