"""Resources that a plan uses: per iteration, and per nanosecond that it holds its GPUs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import GB, NS_PER_S, to_ns
from twin.core.domain import Cluster, LinkState, Pair
from twin.core.plan import Plan
from twin.costs.energy import wait_w
from twin.estimation.estimator import Estimator


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resource use of a plan; it does not depend on the links.

    An iteration of t seconds takes `busy_j + wait_w * t` joules: GPUs draw the power of waiting throughout
    and `busy_j` more for the computation, however long the links make them wait. A paused job draws `idle_w`.
    """

    gpus: tuple[int, ...]  # (K,)
    compute_ns: tuple[int, ...]  # (K,), one iteration
    gpu_compute_ns: int  # one iteration, over all GPUs
    wan_bytes: dict[Pair, int]  # one iteration
    busy_j: float
    wait_w: float
    idle_w: float
    usd_per_hour: float

    @property
    def gpu_count(self) -> int:
        """GPUs held."""
        return sum(self.gpus)

    def gpu_usd(self, held_ns: int) -> float:
        """Price of holding the GPUs."""
        return self.usd_per_hour * (held_ns / NS_PER_S) / 3600.0

    def energy_j(self, held_ns: int, iterations: float | None) -> float:
        """Energy of `iterations`, or a fraction of one, that took `held_ns` in all; None: of a pause."""
        held_s = held_ns / NS_PER_S
        return self.idle_w * held_s if iterations is None else self.busy_j * iterations + self.wait_w * held_s


def plan_costs(estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64]) -> ResourceUse:
    """Resource use of `plan` when domain k computes `slowdown[k]` times slower than nominal."""
    cluster = estimator.cluster
    estimate = estimator.iteration(plan, open_links(cluster.size), slowdown)
    gpus, compute = [0] * cluster.size, [0] * cluster.size
    for share, seconds in zip(plan.shares, estimate.compute_s, strict=True):
        gpus[share.domain], compute[share.domain] = len(share.gpus), to_ns(seconds)
    held = list(zip(gpus, cluster.domains, strict=True))
    waiting_w = sum(n * domain.pue * wait_w(domain.gpu) for n, domain in held)
    return ResourceUse(
        gpus=tuple(gpus),
        compute_ns=tuple(compute),
        gpu_compute_ns=sum(n * ns for n, ns in zip(gpus, compute, strict=True)),
        wan_bytes=_whole(estimate.wan_bytes),
        busy_j=estimate.energy_j - waiting_w * estimate.iter_s,
        wait_w=waiting_w,
        idle_w=sum(n * domain.pue * domain.gpu.idle_w for n, domain in held),
        usd_per_hour=sum(n * domain.usd_per_gpu_hour for n, domain in held),
    )


def egress_usd(cluster: Cluster, sizes_bytes: dict[Pair, int]) -> float:
    """Price of sending bytes over links."""
    return sum(size * cluster.usd_per_gb[i][j] / GB for (i, j), size in sizes_bytes.items())


def triples(sizes_bytes: dict[Pair, int]) -> list[list[int]]:
    """[[i, j, bytes], ...] for a payload."""
    return [[i, j, size] for (i, j), size in sizes_bytes.items()]


def _whole(sizes_bytes: NDArray[np.float64]) -> dict[Pair, int]:
    return {(int(i), int(j)): round(float(sizes_bytes[i, j])) for i, j in np.argwhere(sizes_bytes > 0)}


def open_links(size: int) -> LinkState:
    """Links so fast that they do not matter."""
    return LinkState(np.full((size, size), 1e15), np.zeros((size, size)))
