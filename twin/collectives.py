"""Collectives by alpha-beta: seconds from bytes, ranks, link speed and latency; ring and hierarchical forms.

Ring all-reduce of x bytes over n ranks: 2(n-1) alpha + 2(n-1)/n x/B (Thakur, Rabenseifner, Gropp 2005). The
design documents write a log2(n) factor on the bandwidth term; standard texts contradict it and so do the
profiles (the bus bandwidth of nccl-tests is flat in n), hence it is not used.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.units import BITS_PER_BYTE

Size = TypeVar("Size", float, NDArray[np.float64])
"""Bytes, or bytes of many plans at once."""


@dataclass(frozen=True, slots=True)
class Path:
    """What a collective runs over: bits per second per rank and direction, and seconds per hop."""

    bandwidth_bps: float
    latency_s: float

    @property
    def bytes_s(self) -> float:
        """Bytes per second."""
        return self.bandwidth_bps / BITS_PER_BYTE


def all_gather_s(size_bytes: Size, ranks: int, path: Path) -> Size:
    """Ring all-gather (or reduce-scatter) of `size_bytes` in all: (n-1) alpha + (n-1)/n x/B."""
    return (ranks - 1) * path.latency_s + (ranks - 1) / ranks * size_bytes / path.bytes_s


def all_reduce_s(size_bytes: Size, ranks: int, path: Path) -> Size:
    """Ring all-reduce of `size_bytes` over `ranks`: a reduce-scatter and an all-gather."""
    return 2 * all_gather_s(size_bytes, ranks, path)


def hierarchical_all_gather_s(
    size_bytes: Size, ranks_per_node: int, nodes: int, intra: Path, inter: Path
) -> Size:
    """All-gather (or reduce-scatter) over `nodes` of `ranks_per_node`: across nodes x/n_local, then inside
    them.

    Every rank drives its own share of the network, as NCCL does with one ring per NIC. Twice this, a
    reduce-scatter and an all-gather, is the hierarchical all-reduce.
    """
    across = all_gather_s(size_bytes / ranks_per_node, nodes, inter)
    return all_gather_s(size_bytes, ranks_per_node, intra) + across
