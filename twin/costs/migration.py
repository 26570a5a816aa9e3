"""Migration to another plan: bytes per directed link, bytes resharded inside a domain, and seconds.

Stop-and-copy: training pauses while every layer that changes domain is sent from its old domain to its new
one; each directed link serialises its own bytes, and all links work at once, within the limits of the
domains that send and receive; then the job restarts.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np

from ingest.core.units import BITS_PER_BYTE, transmission_s
from twin.core import schedules
from twin.core.domain import Cluster, LinkState, Matrix
from twin.core.job import JobSpec
from twin.core.layer_split import stage_layers
from twin.core.plan import Plan
from twin.costs.stage_boundaries import route_bps

Resource = tuple[str, int, int]
"""("link", source, target), or a domain's limit ("egress" or "ingress", domain, domain)."""


@dataclass(frozen=True, slots=True, eq=False)
class Migration:
    """Bytes per directed link (K, K), the diagonal holding bytes resharded inside a domain, and expected
    seconds.

    `seconds` is infinite when a needed link is dead.
    """

    bytes: Matrix
    seconds: float


def owners(plan: Plan) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """Owner of each layer: (domain, tp, GPUs of its stage in rank order)."""
    stages = []
    for share in plan.shares:
        width = plan.dp * share.tp
        for stage in range(share.pp):
            stages.append((share.domain, share.tp, share.gpus[stage * width : (stage + 1) * width]))
    counts, last = [], 0 if schedules.turns(plan.schedule) else len(plan.shares) - 1
    for n, share in enumerate(plan.shares):
        parts = stage_layers(share.pp * plan.chunks, share.layers, n == 0, n == last)
        dealt = schedules.way(share.pp, plan.chunks, plan.schedule)
        of_part = dict(zip(dealt, parts, strict=True))
        counts.append([[of_part[c * share.pp + q] for q in range(share.pp)] for c in range(plan.chunks)])
    layers = [some for c in range(plan.chunks) for of_share in counts for some in of_share[c]]
    way = schedules.way(len(stages), plan.chunks, plan.schedule)
    return tuple(stages[part % len(stages)] for part in way for _ in range(layers[part]))


@lru_cache(maxsize=4096)
def holders(plan: Plan) -> tuple[tuple[tuple[int, int, tuple[int, ...]], ...], ...]:
    """Owners of each layer, as in `owners`: one in a pipeline, one in each domain for replicas."""
    if plan.sync is None:
        return tuple((owner,) for owner in owners(plan))
    return tuple(zip(*(owners(plan.replica(n)) for n in range(plan.replicas)), strict=True))


def needs_restart(old: Plan | None, new: Plan) -> bool:
    """True where going from `old` to `new` stops the job. Changes that move no state do not: schedule (not
    where its chunks lie), warm-up depth, point-to-point mode, routes, inner steps of replicas."""
    return old is not None and state_of(old) != state_of(new)


def state_of(plan: Plan) -> tuple[object, ...]:
    """Returns what two plans have in common between which nothing stops."""
    return (
        plan.shares, plan.dp, plan.micro_batch, plan.recompute, plan.zero, plan.sync is None, plan.chunks,
        plan.sequence_parallel, plan.context_parallel, plan.ep, schedules.turns(plan.schedule),
    )  # fmt: skip


def move_bytes(job: JobSpec, old: Plan | None, new: Plan, domains: int) -> Matrix:
    """Bytes per directed link (K, K) that `new` needs moved; 0 when nothing was placed before.

    Off the diagonal: layers that a domain needs and did not have, `job.bytes_per_moved_parameter` each
    parameter, from the first domain that had them. On the diagonal: layers that stay in their domain but
    change GPUs or tensor width, once per data-parallel replica, experts once for each of dp / ep copies.
    """
    moved = np.zeros((domains, domains))
    if old is None:
        return moved
    copies = new.dp // new.ep
    for layer, had, have in zip(job.model.layers(), holders(old), holders(new), strict=True):
        if had == have and (old.ep == new.ep or not layer.routed):
            continue
        size = job.moved_bytes(layer)
        each = job.model.bytes_per_element if layer.frozen else job.bytes_per_moved_parameter
        routed = layer.routed * each
        by_domain = {owner[0]: owner for owner in had}
        for now in have:
            if now[0] not in by_domain:
                moved[had[0][0], now[0]] += size
            elif by_domain[now[0]] != now:
                moved[now[0], now[0]] += (size - routed) * new.dp + routed * copies
            elif old.ep != new.ep:
                moved[now[0], now[0]] += routed * copies
    return moved


def _passed(route: Sequence[tuple[int, int]]) -> Iterator[Resource]:
    """Resources that a transfer over `route` shares with others."""
    for i, j in route:
        yield from (("link", i, j), ("egress", i, i), ("ingress", j, j))


def _capacity_bps(cluster: Cluster, links: LinkState, resource: Resource) -> float:
    kind, i, j = resource
    if kind == "link":
        return float(links.bandwidth_bps[i, j])
    return cluster.domains[i].egress_bps if kind == "egress" else cluster.domains[i].ingress_bps


def move_s(cluster: Cluster, moved: Matrix, new: Plan, links: LinkState) -> float:
    """Seconds until the last byte has arrived: max over links of latency + bytes/B, over domains with a limit
    the same for all that they send or receive, fabrics included.

    Resharding inside a domain spreads over all GPUs of its share, each sending at its fabric's speed (the
    network between nodes where the share spans several).
    """
    slowest = 0.0
    carried: dict[Resource, float] = defaultdict(float)
    soonest: dict[Resource, float] = defaultdict(lambda: inf)
    for i, j in zip(*np.nonzero(moved), strict=True):
        if i != j:
            route = new.route(int(i), int(j))
            latency_s = sum(float(links.latency_s[link]) for link in route)
            slowest = max(slowest, latency_s + transmission_s(moved[i, j], route_bps(cluster, links, route)))
            for resource in _passed(route):
                carried[resource] += moved[i, j]
                soonest[resource] = min(soonest[resource], latency_s)
    for resource, size in carried.items():
        bps = _capacity_bps(cluster, links, resource)
        slowest = max(slowest, soonest[resource] + transmission_s(size, bps))
    for share in new.shares:
        domain = cluster.domains[share.domain]
        size = moved[share.domain, share.domain]
        nodes = {gpu // domain.gpus_per_node for gpu in share.gpus}
        speed = domain.intra_node_bps if len(nodes) == 1 else domain.inter_node_bps
        slowest = max(slowest, size * BITS_PER_BYTE / (len(share.gpus) * speed))
    return float(slowest)
