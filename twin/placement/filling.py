"""A cluster that fills up: jobs arrive one by one and none leaves; one that fits nowhere is dropped."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from twin.placement import choosing, fragmentation
from twin.placement.choosing import Chooser, chooser
from twin.placement.cluster import NodeCluster
from twin.placement.demands import Demands, Mix, Wants
from twin.placement.nodes import Nodes, could, idle
from twin.placement.recipe import Int, PlacementRecipe


@dataclass(frozen=True, eq=False)
class Filling:
    """After each arrival (n,): thousandths of a GPU that are given, fragments, and if the job found a
    place."""

    allocated_milli: Int
    fragments_milli: NDArray[np.float64]
    placed: NDArray[np.bool_]


def fill(
    cluster: NodeCluster, demands: Demands, mix: Mix, placement: PlacementRecipe, seed: int = 0
) -> Filling:
    """Returns how a cluster fills up with the jobs in their order; fragments are those of the mix."""
    nodes, count = idle(cluster), len(demands.class_of)
    allocated, left_over = np.zeros(count, np.int64), np.zeros(count, np.int64)
    placed = np.zeros(count, np.bool_)
    rule = chooser(placement, demands, cluster, seed)
    _fill(nodes, demands.wants, demands.class_of, mix, rule, allocated, left_over, placed)
    return Filling(allocated, left_over / max(int(mix.total[0]), 1), placed)


@njit(cache=True, nogil=True)
def _fill(
    nodes: Nodes, wants: Wants, class_of: Int, mix: Mix, rule: Chooser, allocated: Int, left_over: Int,
    placed: NDArray[np.bool_],
) -> None:  # fmt: skip
    width = nodes.left.shape[1]
    slots = np.zeros(max(wants.gpus.max(), 1), np.int64)
    of_nodes = fragmentation.of_nodes(nodes, mix)
    given, lost = 0, of_nodes.sum()
    for job in range(len(class_of)):
        kind = class_of[job]
        if could(nodes, wants, kind, rule.gang[kind]):
            choosing.put(nodes, wants, kind, mix, rule, job, slots)
            placed[job] = True
            given += wants.gpus[kind] * wants.milli[kind]
            for slot in slots[: max(wants.gpus[kind], 1)]:
                n = slot // width
                found = fragmentation.of_node(nodes, n, mix)
                lost += found - of_nodes[n]
                of_nodes[n] = found
        allocated[job], left_over[job] = given, lost
