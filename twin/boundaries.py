"""What a message costs at each stage boundary: wide-area links between domains, the fabric inside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.units import NS_PER_S, transmission_s
from twin.domain import Cluster, LinkState
from twin.kernel import LONGEST_NS
from twin.placement import Layout
from twin.plan import Plan

Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Occupancy and latency of each boundary, downstream (`of`, `lf`) and upstream (`ob`, `lb`): (S - 1, 1)
    ns."""

    of: Int
    lf: Int
    ob: Int
    lb: Int

    @classmethod
    def none(cls, stages: int) -> "Crossings":
        """Boundaries that cost nothing."""
        zero = np.zeros((stages - 1, 1), np.int64)
        return cls(zero, zero, zero, zero)


def crossings(
    cluster: Cluster, plan: Plan, layouts: Sequence[Layout], message_bytes: int, links: LinkState
) -> Crossings | None:
    """Boundary costs of `plan`; None when a used link is dead (or so slow that it might as well be).

    Over a wide-area link the dp pipelines of the plan share the bandwidth in lockstep: occupancy dp*A/B.
    Inside a domain every GPU sends its own tensor slice, A/tp, over its own port.
    """
    rows: list[tuple[float, float, float, float]] = []
    for n, (share, shape) in enumerate(zip(plan.shares, layouts, strict=True)):
        if n:
            i, j = plan.shares[n - 1].domain, share.domain
            size = plan.dp * message_bytes
            there, back = plan.route(i, j), plan.route(j, i)
            rows.append((*_wide(size, cluster, links, there), *_wide(size, cluster, links, back)))
        domain = cluster.domains[share.domain]
        for crosses in shape.crosses:
            bps = domain.inter_node_bps if crosses else domain.intra_node_bps
            latency = domain.inter_node_latency_s if crosses else domain.intra_node_latency_s
            rows.append((transmission_s(message_bytes / share.tp, bps), latency) * 2)
    ns = np.array(rows).reshape(-1, 4).T * NS_PER_S
    if not np.all(ns < LONGEST_NS):
        return None
    return Crossings(*np.rint(ns).astype(np.int64)[:, :, None])


def _wide(
    size_bytes: float, cluster: Cluster, links: LinkState, route: Sequence[tuple[int, int]]
) -> tuple[float, float]:
    """Occupancy and one-way latency in seconds of a message over `route`: bandwidths and domain limits take
    the minimum, latencies add up."""
    bps = route_bps(cluster, links, route)
    return transmission_s(size_bytes, bps), sum(float(links.latency_s[pair]) for pair in route)


def route_bps(cluster: Cluster, links: LinkState, route: Sequence[tuple[int, int]]) -> float:
    """What a single transfer over `route` gets at most."""
    return min(
        min(float(links.bandwidth_bps[i, j]), cluster.domains[i].egress_bps, cluster.domains[j].ingress_bps)
        for i, j in route
    )
