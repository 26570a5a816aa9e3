"""Collectives by alpha-beta: seconds from bytes, ranks, link speed and latency; ring and hierarchical forms.

Ring all-reduce of x bytes over n ranks: 2(n-1) alpha + 2(n-1)/n x/B (Thakur, Rabenseifner, Gropp 2005). The
design documents write a log2(n) factor on the bandwidth term; standard texts contradict it and so do the
profiles (the bus bandwidth of nccl-tests is flat in n), hence it is not used.
"""

from dataclasses import dataclass

from ingest.units import BITS_PER_BYTE


@dataclass(frozen=True, slots=True)
class Path:
    """What a collective runs over: bits per second per rank and direction, and seconds per hop."""

    bandwidth_bps: float
    latency_s: float

    @property
    def bytes_s(self) -> float:
        """Bytes per second."""
        return self.bandwidth_bps / BITS_PER_BYTE


def all_gather_s(size_bytes: float, ranks: int, path: Path) -> float:
    """Ring all-gather (or reduce-scatter) of `size_bytes` in all: (n-1) alpha + (n-1)/n x/B."""
    if ranks <= 1:
        return 0.0
    return (ranks - 1) * path.latency_s + (ranks - 1) / ranks * size_bytes / path.bytes_s


def all_reduce_s(size_bytes: float, ranks: int, path: Path) -> float:
    """Ring all-reduce of `size_bytes` over `ranks`: a reduce-scatter and an all-gather."""
    return 2 * all_gather_s(size_bytes, ranks, path)


def hierarchical_all_reduce_s(
    size_bytes: float, ranks_per_node: int, nodes: int, intra: Path, inter: Path
) -> float:
    """All-reduce over `nodes` of `ranks_per_node`: reduce-scatter inside, all-reduce of x/n_local across,
    all-gather.

    Every rank drives its own share of the network, as NCCL does with one ring per NIC.
    """
    inside = 2 * all_gather_s(size_bytes, ranks_per_node, intra)
    return inside + all_reduce_s(size_bytes / ranks_per_node, nodes, inter)


def send_s(size_bytes: float, path: Path) -> float:
    """Point-to-point message: alpha + x/B."""
    return path.latency_s + size_bytes / path.bytes_s
