"""Placement of ranks on GPUs: the default packed one, and the nodes that the groups of a placement span."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from twin.core.domain import Domain

Gpus = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Nodes that the groups of a share span.

    `dp_local[q]`, `dp_nodes[q]`: ranks of a data-parallel group of stage q in one node, and nodes it spans.
    `crosses[q]`: stages q and q + 1 lie in different nodes; `around`: the last and the first do.
    `tp_split`: a tensor group spans nodes.
    """

    dp_local: tuple[int, ...]
    dp_nodes: tuple[int, ...]
    crosses: tuple[bool, ...]
    tp_split: bool
    around: bool


def packed(dp: int, tp: int, pp: int) -> Gpus:
    """GPUs 0 .. dp*tp*pp - 1 in rank order: tensor groups inside nodes, data-parallel groups next, stages
    last."""
    return tuple(range(dp * tp * pp))


def layout(gpus: Gpus, domain: Domain, dp: int, tp: int, pp: int) -> Layout:
    """Layout of rank order (stage, d, t) when rank r runs on `gpus[r]`."""
    return _layout(gpus, domain.gpus_per_node, dp, tp, pp)


@lru_cache(maxsize=8192)
def _layout(gpus: Gpus, gpus_per_node: int, dp: int, tp: int, pp: int) -> Layout:
    nodes = (np.array(gpus) // gpus_per_node).reshape(pp, dp, tp)
    spans = [max(len(set(group)) for group in stage.T.tolist()) for stage in nodes]
    apart = (nodes != np.roll(nodes, -1, axis=0)).any(axis=(1, 2)).tolist()
    return Layout(
        dp_local=tuple(max(1, dp // nodes_of_group) for nodes_of_group in spans),
        dp_nodes=tuple(spans),
        crosses=tuple(apart[:-1]),
        tp_split=bool((nodes != nodes[:, :, :1]).any()),
        around=apart[-1],
    )


def choices(domain: Domain, dp: int, heads: int, layers: int) -> tuple[tuple[int, int], ...]:
    """Legal (tp, pp) for `dp` replicas: tp a power of two that divides the node and the heads, pp 1, 2, 4,
    ... and the largest that fits; ordered by GPUs used, then tp, largest first."""
    result: set[tuple[int, int]] = set()
    tp = 1
    while tp <= domain.gpus_per_node and domain.gpus_per_node % tp == 0 and heads % tp == 0:
        deepest = min(domain.gpus // (dp * tp), layers)
        pp = 1
        while pp < deepest:
            result.add((tp, pp))
            pp *= 2
        if deepest >= 1:
            result.add((tp, deepest))
        tp *= 2
    return tuple(sorted(result, key=lambda c: (-c[0] * c[1], -c[0])))
