"""How much of the free GPUs the tasks of a workload cannot use: the fragmentation of FGD.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023, section 3. For one task all that is free on a node is a fragment if the task does not fit
there (or needs no GPU); else what is left of the GPUs that have less than its share. The fragmentation of a
node is the mean over the tasks, weighted by how many jobs have each. Here it is the sum, an integer:
thousandths of a GPU times jobs; the mean is that over the jobs of the mix."""

from typing import Any

import numpy as np

from ingest.core.compiled import njit
from twin.placement.demands import Mix
from twin.placement.nodes import Nodes
from twin.placement.recipe import Int


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def fragments(left: Any, gpus: int, cpu: int, model: int, mix: Mix) -> int:
    """Returns the fragments of a node with so much left of each GPU and of its CPU, summed over the jobs."""
    free = 0
    for gpu in range(gpus):
        free += left[gpu]
    if free == 0:
        return 0
    found = 0
    for task in range(len(mix.gpus)):
        weight = mix.weight[task]
        if weight == 0:
            continue
        share, able, scraps = mix.milli[task], 0, 0
        for gpu in range(gpus):
            if left[gpu] >= share:
                able += 1
            else:
                scraps += left[gpu]
        fit = share > 0 and mix.allowed[task, model] and able >= mix.gpus[task] and cpu >= mix.cpu[task]
        found += weight * (scraps if fit else free)
    return int(found)


@njit(borrowing=True, cache=True, nogil=True)
def of_node(nodes: Nodes, n: int, mix: Mix) -> int:
    """Returns the fragments of a node as it is."""
    return int(fragments(nodes.left[n], nodes.gpus[n], nodes.cpu[n], nodes.model[n], mix))


@njit(inner=True, cache=True, nogil=True)
def of_nodes(nodes: Nodes, mix: Mix) -> Int:
    """Returns the fragments of every node (nodes,)."""
    found = np.zeros(len(nodes.gpus), np.int64)
    for n in range(len(found)):
        found[n] = of_node(nodes, n, mix)
    return found


@njit(inner=True, cache=True, nogil=True)
def share_popular(mix: Mix, counts: Int, share: float) -> None:
    """Sets the weights of a mix to the counts of the most frequent tasks that a share of the jobs have.

    The compiled form of `demands.popular`.
    """
    jobs, reached = counts.sum(), 0
    order = np.argsort(-counts[::-1], kind="mergesort")
    mix.weight[:] = 0
    for place in order:
        if reached >= share * jobs:
            break
        task = len(counts) - 1 - place
        mix.weight[task] = counts[task]
        reached += counts[task]
    mix.total[0] = reached
