"""Domains, GPU types and the state of the wide-area links between them."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
"""(K, K) array, row = source domain, column = destination domain."""
Pair = tuple[int, int]
"""Source and destination domain of a directed link."""


@dataclass(frozen=True, slots=True)
class GpuType:
    """One GPU model: peak rates, memory and power.

    `power_cap_w`, `clock_cap`: limits set by its owner, the latter a share of the clock of the peak; what
    they leave is in `twin.costs.energy`.
    """

    name: str
    peak_flops: float  # dense bf16/fp16 tensor FLOP/s
    fp32_flops: float  # the same of fp32 products: TF32, without tensor cores before Ampere
    memory_bytes: int
    memory_bandwidth_bytes_s: float
    idle_w: float
    peak_w: float
    power_cap_w: float = inf
    clock_cap: float = 1.0

    @property
    def limited(self) -> bool:
        """True under a limit."""
        return self.power_cap_w < inf or self.clock_cap < 1


@dataclass(frozen=True, slots=True)
class Domain:
    """A data centre: `gpus` identical GPUs in nodes of `gpus_per_node`."""

    name: str
    gpu: GpuType
    gpus: int
    gpus_per_node: int
    intra_node_bps: float  # per GPU and direction
    inter_node_bps: float  # per GPU and direction
    intra_node_latency_s: float
    inter_node_latency_s: float
    usd_per_gpu_hour: float
    egress_bps: float = inf  # to all other domains together
    ingress_bps: float = inf  # from all other domains together
    pue: float = 1.0  # energy of the site over that of its GPUs


@dataclass(frozen=True, slots=True)
class Cluster:
    """All domains and the price of a gigabyte between each pair."""

    domains: tuple[Domain, ...]
    usd_per_gb: tuple[tuple[float, ...], ...]  # (K, K), 1 GB = 1e9 bytes

    @property
    def size(self) -> int:
        """K, the number of domains."""
        return len(self.domains)


@dataclass(frozen=True, slots=True, eq=False)
class LinkState:
    """Bandwidth and one-way latency of every directed link at one instant.

    `bandwidth_bps` (K, K): 0 is a dead link, the diagonal is infinite.
    `latency_s` (K, K): one way, the diagonal is 0.
    """

    bandwidth_bps: Matrix
    latency_s: Matrix
