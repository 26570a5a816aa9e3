"""Times of messages at each stage boundary: wide-area links between domains, the fabric inside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from twin.core import schedules
from twin.core.domain import Cluster, LinkState
from twin.core.job import JobSpec
from twin.core.placement import Layout
from twin.core.plan import Plan, Share
from twin.costs import tied_embeddings
from twin.costs.boundary_terms import Terms, ends_ns, fabric_terms, terms_compiled
from twin.pipeline.kernel import LONGEST_NS
from twin.pipeline.pipeline import boundary_count

Int = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BoundaryCosts:
    """Occupancy and latency of each boundary, downstream (`of`, `lf`) and upstream (`ob`, `lb`): (S - 1, 1)
    ns; interleaved (S, 1), the last one joining the last stage to the first. `tied_ns`: nanoseconds that
    the first and the last stage take for the gradient of a tied embedding."""

    of: Int
    lf: Int
    ob: Int
    lb: Int
    tied_ns: int = 0

    @classmethod
    def none(cls, plan: Plan) -> "BoundaryCosts":
        """Boundaries that cost nothing."""
        zero = np.zeros((boundary_count(plan.stages, plan.chunks, plan.schedule), 1), np.int64)
        return cls(zero, zero, zero, zero)


def crossings(
    cluster: Cluster, job: JobSpec, plan: Plan, layouts: Sequence[Layout], links: LinkState
) -> BoundaryCosts | None:
    """Boundary costs of `plan`; None when a used link is dead, or a message would take `LONGEST_NS`.

    Over a wide-area link the dp pipelines of the plan share the bandwidth in lockstep: occupancy dp*A/B.
    Inside a domain every GPU sends its own tensor slice, A/tp, over its own port.
    """
    message_bytes = job.message_bytes(plan.micro_batch)
    tied_bytes = tied_embeddings.step_bytes(job, tied_embeddings.spread(plan))

    def one_way(i: int, j: int, message: int, tied: int) -> Terms:
        route = plan.route(i, j)
        latency_s = sum(float(links.latency_s[pair]) for pair in route)
        sizes, bps = (float(plan.dp * message), float(plan.dp * tied)), route_bps(cluster, links, route)
        found: Terms = terms_compiled(*sizes, bps, latency_s * NS_PER_S)
        return found

    def wide(i: int, j: int, message: int, tied: int = 0) -> tuple[Terms, Terms]:
        return one_way(i, j, message, tied), one_way(j, i, message, tied)

    def inside(share: Share, between_nodes: bool, message: int, tied: int = 0) -> tuple[Terms, Terms]:
        domain = cluster.domains[share.domain]
        return (fabric_terms(domain, between_nodes, message / share.tp, tied / share.tp),) * 2

    def around(message: int) -> tuple[Terms, Terms]:
        if len(plan.shares) == 1:
            return inside(plan.shares[0], layouts[0].around, message, tied_bytes)
        return wide(plan.order[-1], plan.order[0], message, tied_bytes)

    rows: list[tuple[Terms, Terms]] = []
    for n, (share, shape) in enumerate(zip(plan.shares, layouts, strict=True)):
        if n:
            rows.append(wide(plan.shares[n - 1].domain, share.domain, message_bytes))
        known = {crosses: inside(share, crosses, message_bytes) for crosses in set(shape.crosses)}
        rows += [known[crosses] for crosses in shape.crosses]
    returns = schedules.returns(plan.schedule, plan.chunks)
    joints = len(rows) + returns
    if returns or tied_bytes:
        rows.append(around(message_bytes if returns else 0))
    ns = np.array([(*down, *up) for down, up in rows]).reshape(-1, 6)
    if not np.all(ns < LONGEST_NS):
        return None
    of, lf, _, ob, lb, _ = ns[:joints].astype(np.int64).T[:, :, None]
    tied_ns = int(ends_ns(ns[-1, 2], ns[-1, 5])) if tied_bytes else 0
    return BoundaryCosts(of, lf, ob, lb, tied_ns)


def route_bps(cluster: Cluster, links: LinkState, route: Sequence[tuple[int, int]]) -> float:
    """Bandwidth of a single transfer over `route`."""
    return min(
        min(float(links.bandwidth_bps[i, j]), cluster.domains[i].egress_bps, cluster.domains[j].ingress_bps)
        for i, j in route
    )


def shared_boundary(domains: Sequence[int]) -> int:
    """Boundary whose link the way back from the last stage to the first shares: that between two domains,
    -1 if there are not two; `domains` (S,) of the stages."""
    changes = [b for b, (i, j) in enumerate(pairwise(domains)) if i != j]
    return changes[0] if len(changes) == 1 else -1
