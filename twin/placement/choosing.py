"""The compiled choice of nodes and GPUs for a job: alone on one node, or as a gang over several."""

from typing import NamedTuple

import numpy as np

from ingest.core.compiled import njit
from twin.placement.cluster import MILLI, NodeCluster
from twin.placement.demands import Demands, Mix, Wants, gangs_of
from twin.placement.nodes import ANY, NONE, ONE, TAKE, Nodes, find_able, gang_place, single, take
from twin.placement.recipe import SCATTERED, SCORES, Int, PlacementRecipe
from twin.placement.scores import FIRST, RANDOM, score

CACHED = 5_000_000
"""Scores that are kept; of a cluster with more classes times nodes each is computed anew."""
_A, _B, _C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Chooser(NamedTuple):
    """Score and the gang of each class as numbers, and the scores found before with their GPUs (classes,
    nodes): they hold while the node has the version that is `seen`. Empty where they would be too many."""

    code: int
    gang: Int
    seed: int
    score: Int
    gpu: Int
    seen: Int


def chooser(recipe: PlacementRecipe, demands: Demands, cluster: NodeCluster, seed: int = 0) -> Chooser:
    """Returns the compiled form of a placement."""
    code, kinds, nodes = SCORES.index(recipe.score), len(demands.wants.gpus), len(cluster)
    rows = kinds if code not in (FIRST, RANDOM) and kinds * nodes <= CACHED else 0
    tables = [np.full((rows, nodes), -1, np.int64) for _ in range(3)]
    return Chooser(code, gangs_of(cluster, demands.wants, recipe.gang), seed, *tables)


def uncached(chosen: Chooser) -> Chooser:
    """Returns the same placement without scores found before, for nodes in several states."""
    return chosen._replace(score=chosen.score[:0], gpu=chosen.gpu[:0], seen=chosen.seen[:0])


@njit(borrowing=True, cache=True, nogil=True)
def drawn(seed: int, ticket: int, turn: int, count: int) -> int:
    """Returns a number below `count` that the three others decide (SplitMix64; Steele, Lea and Flood, OOPSLA
    2014)."""
    bits = np.uint64(seed) * _C + np.uint64(ticket) * _B + np.uint64(turn + 1) * _A
    bits = (bits ^ (bits >> np.uint64(30))) * _B
    bits = (bits ^ (bits >> np.uint64(27))) * _C
    return int((bits ^ (bits >> np.uint64(31))) % np.uint64(count))


@njit(borrowing=True, cache=True, nogil=True)
def put(nodes: Nodes, wants: Wants, kind: int, mix: Mix, chosen: Chooser, ticket: int, slots: Int) -> None:
    """Takes the slots of a job that could be placed, and writes them down; `ticket` is its number."""
    gpus, gang = wants.gpus[kind], chosen.gang[kind]
    spread = gang == SCATTERED and gpus > 1
    if not spread and single(nodes, wants, kind):
        _put_piece(nodes, wants, kind, mix, chosen, ticket, ANY, ANY, gpus, slots, NONE)
        return
    model, rack = gang_place(nodes, wants, kind, gang)
    at = NONE
    while at < gpus:
        piece = ONE if spread else min(gpus - at, nodes.largest[model])
        _put_piece(nodes, wants, kind, mix, chosen, ticket, model, rack, piece, slots, at)
        at += piece


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _put_piece(
    nodes: Nodes, wants: Wants, kind: int, mix: Mix, chosen: Chooser, ticket: int, model: int, rack: int,
    gpus: int, slots: Int, at: int,
) -> None:  # fmt: skip
    """Takes the slots of a piece on the best node, and writes them down from place `at`."""
    width = nodes.left.shape[1]
    n, gpu = _best(nodes, wants, kind, mix, chosen, ticket, model, rack, gpus, at)
    if gpus == 0:
        slots[at] = n * width
        take(nodes, wants, kind, n * width, TAKE)
    elif wants.milli[kind] < MILLI:
        if gpu < 0:
            gpu = _shared(nodes, wants.milli[kind], n, chosen, ticket)
        slots[at] = n * width + gpu
        take(nodes, wants, kind, n * width + gpu, TAKE)
    else:
        for one in range(nodes.gpus[n]):
            if gpus and nodes.left[n, one] == MILLI:
                slots[at] = n * width + one
                take(nodes, wants, kind, n * width + one, TAKE)
                gpus -= 1
                at += 1


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _best(
    nodes: Nodes,
    wants: Wants,
    kind: int,
    mix: Mix,
    chosen: Chooser,
    ticket: int,
    model: int,
    rack: int,
    gpus: int,
    at: int,
) -> tuple[int, int]:
    """The node with the highest score among those that fit, and the GPU that its score is for."""
    first = chosen.code == FIRST
    able = find_able(nodes, wants, kind, gpus, model, rack, ONE if first else len(nodes.gpus))
    if first:
        return nodes.able[0], -1
    if chosen.code == RANDOM:
        return nodes.able[drawn(chosen.seed, ticket, at, able)], -1
    best, best_score, best_gpu = -1, 0, -1
    kept = len(chosen.seen) > 0 and (gpus == wants.gpus[kind] or chosen.gang[kind] == SCATTERED)
    scores, seen, version = chosen.score, chosen.seen, nodes.version
    for n in nodes.able[:able]:
        if kept:
            if seen[kind, n] != version[n]:
                scores[kind, n], chosen.gpu[kind, n] = score(chosen.code, nodes, wants, kind, n, gpus, mix)
                seen[kind, n] = version[n]
            found, gpu = scores[kind, n], chosen.gpu[kind, n]
        else:
            found, gpu = score(chosen.code, nodes, wants, kind, n, gpus, mix)
        if best < 0 or found > best_score:
            best, best_score, best_gpu = n, found, gpu
    return best, best_gpu


@njit(inner=True, borrowing=True, cache=True, nogil=True)
def _shared(nodes: Nodes, milli: int, n: int, chosen: Chooser, ticket: int) -> int:
    """The fullest GPU of a node that has room for a share, the first of equals; a drawn one for `random`."""
    best, able = -1, 0
    for gpu in range(nodes.gpus[n]):
        if nodes.left[n, gpu] >= milli:
            able += 1
            if best < 0 or nodes.left[n, gpu] < nodes.left[n, best]:
                best = gpu
    if chosen.code != RANDOM:
        return best
    place = drawn(chosen.seed, ticket, ANY, able)
    for gpu in range(nodes.gpus[n]):
        if nodes.left[n, gpu] >= milli:
            if place == 0:
                return gpu
            place -= 1
    return best
