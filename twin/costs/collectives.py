"""Collectives by alpha-beta: seconds from bytes, ranks, link speed and latency; ring, double binary tree,
hierarchical forms, all-to-all.

Ring all-reduce of x bytes over n ranks: 2(n-1) alpha + 2(n-1)/n x/B (Thakur, Rabenseifner, Gropp 2005). The
bandwidth term has no factor log2(n): the bus bandwidth of nccl-tests is flat in n.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE

Size = TypeVar("Size", float, NDArray[np.float64])
"""Bytes, of one plan or of an array of plans."""


@dataclass(frozen=True, slots=True)
class Path:
    """The links of a collective: bits per second per rank and direction, and seconds per hop."""

    bandwidth_bps: float
    latency_s: float

    @property
    def bytes_s(self) -> float:
        """Bytes per second."""
        return self.bandwidth_bps / BITS_PER_BYTE


Level = tuple[int, Path]
"""Ranks of one level of a hierarchy, and the links between them."""


def levels_of(ranks: int, per_node: int, intra: Path, inter: Path) -> tuple[Level, Level]:
    """Levels of a group of `ranks` neighbours on nodes of `per_node` GPUs: ranks inside a node, then nodes.

    Groups of a width that no node is a multiple of lie in equal parts of nodes.
    """
    local = ranks if ranks <= per_node else gcd(ranks, per_node)
    return (local, intra), (ranks // local, inter)


def all_gather_s(size_bytes: Size, ranks: int, path: Path) -> Size:
    """Ring all-gather (or reduce-scatter) of `size_bytes` in all: (n-1) alpha + (n-1)/n x/B."""
    return (ranks - 1) * path.latency_s + (ranks - 1) / ranks * size_bytes / path.bytes_s


def all_reduce_s(size_bytes: Size, ranks: int, path: Path) -> Size:
    """Ring all-reduce of `size_bytes` over `ranks`: a reduce-scatter and an all-gather."""
    return 2 * all_gather_s(size_bytes, ranks, path)


def tree_all_reduce_s(size_bytes: Size, ranks: int, path: Path) -> Size:
    """Double binary tree all-reduce: 2 ceil(log2 n) alpha + 2 x/B, nothing for one rank.

    Two trees carry half of the data each, up and down again, and every rank is a leaf of one of them
    (Sanders, Speck, Traff 2009); NCCL has it since 2.4 (Jeaugey 2019).
    """
    depth = (ranks - 1).bit_length()
    return 2 * depth * path.latency_s + (2 if ranks > 1 else 0) * size_bytes / path.bytes_s


def hierarchical_all_gather_s(size_bytes: Size, levels: Sequence[Level]) -> Size:
    """All-gather (or reduce-scatter) level by level: ranks of a node, nodes, domains, the innermost first.

    Level l gathers the x / (n_0 ... n_(l-1)) bytes that one rank of the levels inside it holds; every rank
    drives its own share of the network, as NCCL does with one ring per NIC.
    """
    held, total = size_bytes, 0 * size_bytes
    for ranks, path in levels:
        total = total + all_gather_s(held, ranks, path)
        held = held / ranks
    return total


def hierarchical_all_reduces_s(size_bytes: Size, levels: Sequence[Level]) -> tuple[Size, Size]:
    """All-reduce level by level, scattered inwards to outwards and gathered on the way back: with a ring at
    the outermost level, and with a double binary tree there.

    NCCL estimates both and takes the faster for each size (`ncclTopoTuneModel` in src/graph/tuning.cc: the
    latency of its tree is 2 ((ranks per node - 1) intra + log2(nodes) inter)). Inside a node its tree is a
    chain, which is never faster, so a single level is a ring either way.
    """
    outermost = max((n for n, (ranks, _) in enumerate(levels) if ranks > 1), default=0)
    ring = 2 * hierarchical_all_gather_s(size_bytes, levels)
    if outermost == 0:
        return ring, ring
    held = size_bytes / prod(ranks for ranks, _ in levels[:outermost])
    inside = 2 * hierarchical_all_gather_s(size_bytes, levels[:outermost])
    return ring, inside + tree_all_reduce_s(held, *levels[outermost])


def all_to_all_s(size_bytes: float, levels: tuple[Level, Level]) -> float:
    """All-to-all in which every rank sends `size_bytes` / n to each of n ranks, itself included:
    (n-1) alpha + (n-1)/n x/B (pairwise exchange: Thakur, Rabenseifner, Gropp 2005).

    Over nodes what stays in a node and what leaves it travel at once, the latter over the rank's own adapter.
    """
    (local, inside), (nodes, between) = levels
    ranks = local * nodes
    near, far = (
        count * (path.latency_s + size_bytes / ranks / path.bytes_s)
        for count, path in ((local - 1, inside), (ranks - local, between))
    )
    return max(near, far)
