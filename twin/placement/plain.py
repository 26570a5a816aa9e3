"""The same placements in plain Python, which tests hold the compiled code equal to: lists, and no counts
kept."""

from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import reduce
from math import exp
from operator import or_

from twin.placement.cluster import MILLI, NodeCluster
from twin.placement.demands import Demands, Mix, Wants
from twin.placement.recipe import PlacementRecipe

WORD = 2**64 - 1


@dataclass
class PlainNode:
    """One node: its model and rack, what is left of each GPU, of CPU and memory, and the sizes of jobs on its
    GPUs."""

    model: int
    rack: int
    left: list[int]
    cpu: int
    memory: int
    sizes: Counter[int] = field(default_factory=Counter)

    @property
    def whole(self) -> int:
        """Returns the GPUs that nobody uses."""
        return self.left.count(MILLI)


def at_least(states: Sequence[Sequence[PlainNode]]) -> list[PlainNode]:
    """Returns nodes with the least that is left in any of their states, and the most jobs of each size."""
    found = []
    for seen in zip(*states, strict=True):
        left = [min(one) for one in zip(*(node.left for node in seen), strict=True)]
        sizes = reduce(or_, (node.sizes for node in seen), Counter[int]())
        cpu, memory = min(node.cpu for node in seen), min(node.memory for node in seen)
        found.append(PlainNode(seen[0].model, seen[0].rack, left, cpu, memory, sizes))
    return found


Piece = tuple[int, int]
"""A node and one of its GPUs."""
Cut = tuple[int | None, int | None, list[int]]
"""A model and a rack (None: any), and the GPUs of each node."""


class PlainNodes:
    """The nodes of a cluster, and where jobs lie."""

    def __init__(
        self, cluster: NodeCluster, demands: Demands, placement: PlacementRecipe, seed: int = 0
    ) -> None:
        columns = zip(
            cluster.model.tolist(), cluster.rack.tolist(), cluster.gpus.tolist(), cluster.cpu_milli.tolist(),
            cluster.memory_mib.tolist(), strict=True,
        )  # fmt: skip
        self.nodes = [
            PlainNode(model, rack, [MILLI] * gpus, cpu, memory) for model, rack, gpus, cpu, memory in columns
        ]
        self.largest = [
            max(len(node.left) for node in self.nodes if node.model == model)
            for model in range(len(cluster.models))
        ]
        self.most_cpu, self.width = int(cluster.cpu_milli.max()), int(cluster.gpus.max())
        self.wants: Wants = demands.wants
        self.mix: Mix = demands.tasks
        self.placement, self.seed = placement, seed
        kinds = range(len(self.wants.gpus))
        self.waits_for_rack = [
            placement.gang == "rack" and self.tried(kind, self.in_racks(kind)) for kind in kinds
        ]

    def copy(self) -> "PlainNodes":
        """Returns nodes of their own in the same state."""
        return self.but(deepcopy(self.nodes))

    def but(self, nodes: list[PlainNode]) -> "PlainNodes":
        """Returns the same cluster with other nodes."""
        other = object.__new__(PlainNodes)
        other.__dict__.update(self.__dict__, nodes=nodes)
        return other

    def pieces(self, kind: int) -> list[Cut]:
        """Returns how a job of a class may be cut, in the order in which it is tried."""
        gpus, models = int(self.wants.gpus[kind]), self.models(kind)
        if self.placement.gang == "scattered" and gpus > 1:
            return [(model, None, [1] * gpus) for model in models]
        if gpus == 0 or any(gpus <= self.largest[model] for model in models):
            return [(None, None, [gpus])]
        anywhere: list[Cut] = [(model, None, self.cut(gpus, model)) for model in models]
        if self.placement.gang == "rack":
            return self.in_racks(kind) if self.waits_for_rack[kind] else anywhere
        return (self.in_racks(kind) if self.placement.gang == "rack-first" else []) + anywhere

    def models(self, kind: int) -> list[int]:
        """Returns the models that a job of a class accepts."""
        return [model for model in range(len(self.largest)) if self.wants.allowed[kind, model]]

    def cut(self, gpus: int, model: int) -> list[int]:
        """Returns the GPUs of each node: whole nodes, and the rest."""
        return [self.largest[model]] * (gpus // self.largest[model]) + [gpus % self.largest[model]]

    def in_racks(self, kind: int) -> list[Cut]:
        """Returns the same cut in each rack, by model, the rack with the least free first."""
        racks = sorted({node.rack for node in self.nodes})
        return [
            (model, rack, self.cut(int(self.wants.gpus[kind]), model))
            for model in self.models(kind)
            for rack in sorted(racks, key=lambda rack: (self.free(model, rack), rack))
        ]

    def free(self, model: int, rack: int) -> int:
        """Returns what is left of the GPUs of a model in a rack."""
        return sum(sum(node.left) for node in self.nodes if (node.model, node.rack) == (model, rack))

    def could(self, kind: int) -> bool:
        """Returns True if a job of a class can be placed now."""
        return self.tried(kind, self.pieces(kind))

    def tried(self, kind: int, cuts: list[Cut]) -> bool:
        """Returns True if one of the cuts can be placed: tries it on a copy, each piece on the first node."""
        return any(self.copy().lay(kind, one, first=True) is not None for one in cuts)

    def put(self, kind: int, ticket: int) -> list[Piece]:
        """Places a job; returns its GPUs."""
        for one in self.pieces(kind):
            if self.copy().lay(kind, one, first=True) is not None:
                laid = self.lay(kind, one, ticket=ticket)
                assert laid is not None
                return laid
        raise AssertionError("the job does not fit")

    def lay(self, kind: int, one: Cut, *, ticket: int = 0, first: bool = False) -> list[Piece] | None:
        """Places the pieces of a job; returns their GPUs, or None if one does not fit."""
        model, rack, cut = one
        laid: list[Piece] = []
        for gpus in cut:
            if gpus == 0 and len(cut) > 1:
                continue
            able = [n for n in range(len(self.nodes)) if self.holds(kind, n, gpus, model, rack)]
            if not able:
                return None
            n = able[0] if first else self.best(kind, able, gpus, ticket, len(laid))
            for gpu in self.gpus_on(kind, n, gpus, ticket):
                self.move(kind, (n, gpu), -1)
                laid.append((n, gpu))
        return laid

    def holds(self, kind: int, n: int, gpus: int, model: int | None, rack: int | None) -> bool:
        """Returns True if so many GPUs of a job fit on a node."""
        node, wants, units = self.nodes[n], self.wants, max(gpus, 1)
        if node.cpu < wants.cpu[kind] * units or node.memory < wants.memory[kind] * units:
            return False
        if (model is not None and node.model != model) or (rack is not None and node.rack != rack):
            return False
        able = [left for left in node.left if left >= wants.milli[kind]]
        return gpus == 0 or (bool(wants.allowed[kind, node.model]) and len(able) >= gpus)

    def best(self, kind: int, able: list[int], gpus: int, ticket: int, turn: int) -> int:
        """Returns the node with the highest score, of equals the first."""
        if self.placement.score == "random":
            return able[drawn(self.seed, ticket, turn, len(able))]
        return max(able, key=lambda n: (self.score(kind, n, gpus), -n))

    def gpus_on(self, kind: int, n: int, gpus: int, ticket: int) -> list[int]:
        """Returns which GPUs of a node a piece gets; 0 for a job without GPUs."""
        left, milli = self.nodes[n].left, int(self.wants.milli[kind])
        able = [gpu for gpu, one in enumerate(left) if one >= milli]
        if gpus == 0:
            return [0]
        if milli == MILLI:
            return able[:gpus]
        if self.placement.score == "random":
            return [able[drawn(self.seed, ticket, -1, len(able))]]
        if self.placement.score == "fragments":
            return [max(able, key=lambda gpu: (self.points(kind, n, [gpu]), -gpu))]
        return [min(able, key=lambda gpu: (left[gpu], gpu))]

    def move(self, kind: int, piece: Piece, sign: int) -> None:
        """Takes one GPU of a job (sign -1), or gives it back (sign 1)."""
        node, wants = self.nodes[piece[0]], self.wants
        node.cpu += sign * int(wants.cpu[kind])
        node.memory += sign * int(wants.memory[kind])
        if wants.gpus[kind]:
            node.left[piece[1]] += sign * int(wants.milli[kind])
            node.sizes[self.size(kind)] -= sign

    def size(self, kind: int) -> int:
        """Returns the size of a job for affinity: 0 for a share, else its GPUs, up to those of a node."""
        return 0 if self.wants.milli[kind] < MILLI else min(int(self.wants.gpus[kind]), self.width)

    def score(self, kind: int, n: int, gpus: int) -> int:
        """Returns the score of a node."""
        match self.placement.score:
            case "leftover-least":
                return int((1.0 - self.leftover(kind, n, gpus)) * 100)
            case "leftover-most":
                return int(self.leftover(kind, n, gpus) * 100)
            case "dot-least":
                return int(100 * (1.0 - self.dot(kind, n, gpus) / 2))
            case "dot-most":
                return int(100 * self.dot(kind, n, gpus) / 2)
            case "affinity":
                return self.affinity(kind, n) if gpus else 0
            case "packing":
                return self.packing(kind, n, gpus) if gpus else 0
            case "fragments":
                return self.points(kind, n, self.gpus_on(kind, n, gpus, 0) if gpus else [])
        return 0

    def leftover(self, kind: int, n: int, gpus: int) -> float:
        """Returns what stays free on a node, the mean of CPU and GPUs."""
        node = self.nodes[n]
        of_gpus = (sum(node.left) - gpus * int(self.wants.milli[kind])) / (self.width * MILLI)
        if not self.most_cpu:
            return of_gpus
        return (node.cpu - int(self.wants.cpu[kind]) * max(gpus, 1)) / self.most_cpu * 0.5 + of_gpus * 0.5

    def dot(self, kind: int, n: int, gpus: int) -> float:
        """Returns the product of what is asked for and what is free."""
        node, most = self.nodes[n], self.width * MILLI
        of_gpus = sum(node.left) / most * (gpus * int(self.wants.milli[kind]) / most)
        if not self.most_cpu:
            return of_gpus * 2
        return node.cpu / self.most_cpu * (int(self.wants.cpu[kind]) * max(gpus, 1) / self.most_cpu) + of_gpus

    def affinity(self, kind: int, n: int) -> int:
        """Returns the points for jobs of one size together, and for how full the node is."""
        node, most = self.nodes[n], self.width * MILLI
        sizes = {size for size, count in node.sizes.items() if count > 0}
        full = 25 * (most - sum(node.left)) // most
        if self.size(kind) in sizes:
            return full + (75 if len(sizes) == 1 else 50)
        return full + (0 if sizes else 25)

    def packing(self, kind: int, n: int, gpus: int) -> int:
        """Returns the points for GPUs in use, nodes in use, and idle nodes."""
        node, milli = self.nodes[n], int(self.wants.milli[kind])
        if node.whole == len(node.left):
            return max(33 - node.whole, node.whole)
        shared = [left for left in node.left if milli <= left < MILLI]
        if shared:
            return max(100 - min(shared) * 100 // MILLI // 10, 50)
        return max(50 - gpus, 33)

    def points(self, kind: int, n: int, gpus: list[int]) -> int:
        """Returns 100 x sigmoid of the GPUs by which fragmentation falls if a job takes these GPUs."""
        node, milli = self.nodes[n], int(self.wants.milli[kind])
        after = list(node.left)
        for gpu in gpus:
            after[gpu] -= milli
        rest = node.cpu - int(self.wants.cpu[kind]) * max(len(gpus), 1)
        fall = self.fragments(node.left, node.cpu, node.model) - self.fragments(after, rest, node.model)
        return int(1.0 / (1.0 + exp(-fall / max(int(self.mix.total[0]), 1) / MILLI)) * 100)

    def fragments(self, left: list[int], cpu: int, model: int) -> int:
        """Returns the fragments of a node, thousandths of a GPU times jobs of the mix."""
        found = 0
        for task in range(len(self.mix.gpus)):
            share = int(self.mix.milli[task])
            able = [one for one in left if one >= share]
            fit = share and self.mix.allowed[task, model] and len(able) >= self.mix.gpus[task]
            lost = sum(left) - sum(able) if fit and cpu >= self.mix.cpu[task] else sum(left)
            found += int(self.mix.weight[task]) * lost
        return found


def drawn(seed: int, ticket: int, turn: int, count: int) -> int:
    """Returns a number below `count` that the three others decide (SplitMix64)."""
    bits = seed * 0x94D049BB133111EB + ticket * 0xBF58476D1CE4E5B9 + (turn + 1) * 0x9E3779B97F4A7C15 & WORD
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & WORD
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & WORD
    return (bits ^ bits >> 31) % count
