"""What a message costs at each stage boundary: wide-area links between domains, the fabric inside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, transmission_s
from twin.costs import tied_embeddings as tied
from twin.core.domain import Cluster, LinkState
from twin.core.job import JobSpec
from twin.pipeline.kernel import LONGEST_NS
from twin.pipeline.pipeline import boundary_count
from twin.core.placement import Layout
from twin.core.plan import Plan, Share

Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Occupancy and latency of each boundary, downstream (`of`, `lf`) and upstream (`ob`, `lb`): (S - 1, 1)
    ns; with chunks (S, 1), the last one joining the last stage to the first. `tied_ns`: what the first and
    the last stage take for the gradient of a tied embedding."""

    of: Int
    lf: Int
    ob: Int
    lb: Int
    tied_ns: int = 0

    @classmethod
    def none(cls, stages: int, chunks: int = 1) -> "Crossings":
        """Boundaries that cost nothing."""
        zero = np.zeros((boundary_count(stages, chunks), 1), np.int64)
        return cls(zero, zero, zero, zero)


def crossings(
    cluster: Cluster, job: JobSpec, plan: Plan, layouts: Sequence[Layout], links: LinkState
) -> Crossings | None:
    """Boundary costs of `plan`; None when a used link is dead (or so slow that it might as well be).

    Over a wide-area link the dp pipelines of the plan share the bandwidth in lockstep: occupancy dp*A/B.
    Inside a domain every GPU sends its own tensor slice, A/tp, over its own port.
    """
    message_bytes, tied_bytes = job.message_bytes(plan.micro_batch), tied.step_bytes(job, plan.stages)

    def wide(i: int, j: int, size_bytes: int) -> tuple[float, float, float, float]:
        size, there, back = plan.dp * size_bytes, plan.route(i, j), plan.route(j, i)
        return (*_wide(size, cluster, links, there), *_wide(size, cluster, links, back))

    def inside(share: Share, crosses: bool, size_bytes: int) -> tuple[float, ...]:
        domain = cluster.domains[share.domain]
        bps = domain.inter_node_bps if crosses else domain.intra_node_bps
        latency = domain.inter_node_latency_s if crosses else domain.intra_node_latency_s
        return (transmission_s(size_bytes / share.tp, bps), latency) * 2

    def around(size_bytes: int) -> tuple[float, ...]:
        if len(plan.shares) == 1:
            return inside(plan.shares[0], layouts[0].around, size_bytes)
        return wide(plan.order[-1], plan.order[0], size_bytes)

    rows: list[tuple[float, ...]] = []
    for n, (share, shape) in enumerate(zip(plan.shares, layouts, strict=True)):
        if n:
            rows.append(wide(plan.shares[n - 1].domain, share.domain, message_bytes))
        rows += [inside(share, crosses, message_bytes) for crosses in shape.crosses]
    if plan.chunks > 1:
        rows.append(around(message_bytes))
    if tied_bytes:
        rows.append(around(tied_bytes))
    ns = np.array(rows).reshape(-1, 4).T * NS_PER_S
    if not np.all(ns < LONGEST_NS):
        return None
    whole = np.rint(ns).astype(np.int64)
    joints = whole.shape[1] - (tied_bytes > 0)
    steps = whole[:2, joints:].sum(axis=0), whole[2:, joints:].sum(axis=0)
    of, lf, ob, lb = whole[:, :joints, None]
    return Crossings(of, lf, ob, lb, tied.STEPS * int(np.max(steps, initial=0)))


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


def shared_boundary(domains: Sequence[int]) -> int:
    """Between two domains the way back from the last stage to the first takes the reverse of the link that
    joins them: the boundary that has that link, -1 where there are not two; `domains` (S,) of the stages."""
    changes = [b for b, (i, j) in enumerate(pairwise(domains)) if i != j]
    return changes[0] if len(changes) == 1 else -1
