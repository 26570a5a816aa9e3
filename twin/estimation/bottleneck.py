"""The resource that limits an iteration: the one without which the iteration is shortest.

Each resource is made free and the iteration is estimated again, by the same estimator that policies search
with and the simulation runs by. A resource is

* a link between two sites, both ways: infinite bandwidth, no latency; with several links also all of them;
* the uplink or downlink of a site, where the scenario limits it;
* the compute of a stage, its collectives inside the site included; with several stages also all of them;
* the memory of the GPUs: the same cut with less recompute or more micro-batches in flight, where only
  memory forbids it;
* the bubble: the pipeline neither fills nor drains;
* the gradient exchange inside the sites.

What two resources save does not add up: without the first the second may limit more, or no longer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ingest.core.units import NS_PER_S
from twin.core.domain import Cluster, Domain, LinkState, Pair
from twin.core.plan import Plan, Recompute
from twin.core.plan_text import link_text
from twin.costs import replica_sync
from twin.costs.wan_traffic import crossings
from twin.estimation.estimator import DEAD, Estimator
from twin.estimation.pipeline_durations import Slowdown
from twin.pipeline import freed

Kind = Literal["link", "links", "dead link", "site limit", "stage", "stages", "memory", "bubble", "gradients"]
LEAST = 5e-4
"""Share of an iteration below which a gain is not worth a word."""
DEEPEST = 8
"""Extra warm-up depths that are tried where memory is free."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, and the share of the iteration time that is saved without it; 1 for a dead link."""

    kind: Kind
    name: str
    saved: float

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return {"kind": self.kind, "name": self.name, "saved": self.saved}


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """All resources of an iteration, that with the largest saving first."""

    resources: tuple[Resource, ...]

    @property
    def limiting(self) -> Resource:
        """The resource without which the iteration is shortest."""
        return self.resources[0]

    @property
    def text(self) -> str:
        """The limiting resource and the time saved without it; of a group also its worst member."""
        first = self.limiting
        member = {"links": "link", "stages": "stage"}.get(first.kind)
        worst = next((one for one in self.resources if one.kind == member), None)
        more = "" if worst is None or worst.saved < LEAST else f"; most {worst.name}, {_less(worst)}"
        return f"{first.name} ({_less(first)}{more})"

    def to_json(self) -> dict[str, Any]:
        """The limiting resource, then all of them."""
        return {
            **self.limiting.to_json(),
            "text": self.text,
            "resources": [one.to_json() for one in self.resources],
        }


def _less(one: Resource) -> str:
    return f"-{100 * one.saved:.1f} %" if one.saved >= LEAST else "0 %"


def bottleneck(estimator: Estimator, plan: Plan, links: LinkState, slowdown: Slowdown = None) -> Bottleneck:
    """Every resource of `plan` with what is saved without it, under these links."""
    names = [domain.name for domain in estimator.cluster.domains]
    whole = estimator.iter_ns(plan, links, slowdown)
    if whole == DEAD:
        return Bottleneck((Resource("dead link", _dead_links(estimator, plan, links, names), 1.0),))
    found = list(_links(estimator, plan, links, slowdown, whole, names))
    found += _stages(estimator, plan, links, slowdown, whole, names)
    found += _waits(estimator, plan, links, slowdown, whole)
    found += _memory(estimator, plan, links, slowdown, whole)
    return Bottleneck(ranked(found))


def _dead_links(estimator: Estimator, plan: Plan, links: LinkState, names: Sequence[str]) -> str:
    """The links that carry nothing one way or both; all, where each carries too little."""
    used = used_links(estimator, plan)
    dead = [pair for pair in used if min(links.bandwidth_bps[pair], links.bandwidth_bps[pair[::-1]]) <= 0]
    return "dead " + ", ".join(link_text(pair, names) for pair in dead or used)


def ranked(found: Sequence[Resource]) -> tuple[Resource, ...]:
    """Resources by falling saving; of equals a single one before its group."""
    return tuple(sorted(found, key=lambda one: (-one.saved, one.kind in ("links", "stages"))))


def saved(whole: int, without: int) -> float:
    """Share of `whole` nanoseconds that is saved."""
    return max(0.0, 1.0 - without / whole)


def _links(
    estimator: Estimator, plan: Plan, links: LinkState, slowdown: Slowdown, whole: int, names: Sequence[str]
) -> Iterator[Resource]:
    pairs = used_links(estimator, plan)
    for pair in pairs:
        free = estimator.iter_ns(plan, _freed(links, [pair]), slowdown)
        yield Resource("link", link_text(pair, names), saved(whole, free))
    yield from _site_limits(estimator, plan, links, slowdown, whole)
    if len(pairs) > 1:
        free = _unlimited(estimator).iter_ns(plan, _freed(links, pairs), slowdown)
        yield Resource("links", f"all {len(pairs)} links", saved(whole, free))


def used_links(estimator: Estimator, plan: Plan) -> list[Pair]:
    """Links over which a plan sends, relays included: each once, the lower site first."""
    between = crossings(estimator.job, plan) if plan.sync is None else replica_sync.ring(plan)
    legs = (leg for i, j in between for leg in plan.route(i, j))
    return list(dict.fromkeys((min(leg), max(leg)) for leg in legs))


def _freed(links: LinkState, pairs: Sequence[Pair]) -> LinkState:
    bandwidth, latency = links.bandwidth_bps.copy(), links.latency_s.copy()
    for i, j in pairs:
        bandwidth[[i, j], [j, i]] = np.inf
        latency[[i, j], [j, i]] = 0.0
    return LinkState(bandwidth, latency)


def _site_limits(
    estimator: Estimator, plan: Plan, links: LinkState, slowdown: Slowdown, whole: int
) -> Iterator[Resource]:
    for k in plan.order:
        domain = estimator.cluster.domains[k]
        for field, word in (("egress_bps", "uplink"), ("ingress_bps", "downlink")):
            if getattr(domain, field) < np.inf:
                free = _unlimited(estimator, k, field).iter_ns(plan, links, slowdown)
                yield Resource("site limit", f"{word} of {domain.name}", saved(whole, free))


def _unlimited(estimator: Estimator, site: int | None = None, field: str | None = None) -> Estimator:
    """The same estimator where a site, or each, may send and receive without its limit."""

    def freed_site(k: int, domain: Domain) -> Domain:
        if site not in (None, k):
            return domain
        return replace(
            domain,
            egress_bps=domain.egress_bps if field == "ingress_bps" else np.inf,
            ingress_bps=domain.ingress_bps if field == "egress_bps" else np.inf,
        )

    domains = tuple(freed_site(k, domain) for k, domain in enumerate(estimator.cluster.domains))
    if domains == estimator.cluster.domains:
        return estimator
    cluster = Cluster(domains, estimator.cluster.usd_per_gb)
    return Estimator(cluster, estimator.job, restart_s=estimator.restart_s, compute=estimator.compute)


def _pipelines(plan: Plan) -> list[Plan]:
    return [plan] if plan.sync is None else [plan.replica(n) for n in range(plan.replicas)]


def _stages(
    estimator: Estimator, plan: Plan, links: LinkState, slowdown: Slowdown, whole: int, names: Sequence[str]
) -> list[Resource]:
    parts = _pipelines(plan)
    times = [estimator.iter_ns(part, links, slowdown) for part in parts]
    exchange, found, none, first = whole - max(times), [], [], 0
    for n, part in enumerate(parts):
        timing = estimator.pipeline(part, links, slowdown)
        assert timing is not None, "an iteration that ends has no dead link"
        free = freed.without_compute(timing)
        others = max((ns for k, ns in enumerate(times) if k != n), default=0)
        where = [names[share.domain] for share in part.shares for _ in range(share.pp)]
        found += [
            Resource("stage", f"compute of stage {first + i} in {where[i]}",
                     saved(whole, max(others, int(ns)) + exchange))
            for i, ns in enumerate(free[:-1])
        ]  # fmt: skip
        first += len(where)
        none.append(int(free[-1]))
    if first > 1:
        found.append(Resource("stages", f"compute of all {first} stages", saved(whole, max(none) + exchange)))
    return found


def _waits(
    estimator: Estimator, plan: Plan, links: LinkState, slowdown: Slowdown, whole: int
) -> Iterator[Resource]:
    """The bubble, and the exchange of gradients inside the sites."""
    parts = _pipelines(plan)
    exchange = whole - max(estimator.iter_ns(part, links, slowdown) for part in parts)
    steady, alone = [], []
    for part in parts:
        timing = estimator.pipeline(part, links, slowdown)
        assert timing is not None, "an iteration that ends has no dead link"
        sync = np.rint(estimator.stage_costs(part).sync_s * NS_PER_S).astype(np.int64)
        steady.append(freed.without_bubble(timing))
        alone.append(freed.without_tail(timing, sync))
    yield Resource("bubble", "bubble", saved(whole, max(steady) + exchange))
    if plan.dp > 1:
        yield Resource("gradients", "gradient exchange inside sites", saved(whole, max(alone) + exchange))


def _memory(
    estimator: Estimator, plan: Plan, links: LinkState, slowdown: Slowdown, whole: int
) -> Iterator[Resource]:
    """The memory of the GPUs, where a plan of the same cut is faster and only memory forbids it."""
    depths: tuple[int, ...] = (plan.extra_warmup,)
    if plan.schedule == "1f1b" and plan.sync is None:
        most = max(0, min(plan.micro_batches - plan.stages, DEEPEST))
        depths = tuple(range(max(most, plan.extra_warmup) + 1))
    kinds: tuple[Recompute, ...] = ("none", "selective", "full")
    groups = [
        [replace(plan, recompute=kind, extra_warmup=depth) for depth in depths]
        for kind in kinds[: kinds.index(plan.recompute) + 1]  # what recomputes more is slower
    ]
    legal = [fits(estimator, one) for group in groups for one in group]
    if all(legal):  # the usual case, without timing anything
        yield Resource("memory", "GPU memory", 0.0)
        return
    times = [ns for group in groups for ns in _times(estimator, group, links, slowdown)]
    allowed = [whole, *(ns for ns, fine in zip(times, legal, strict=True) if fine)]
    forbidden = [whole, *(ns for ns, fine in zip(times, legal, strict=True) if not fine)]
    gain = max(0, min(allowed) - min(forbidden))
    yield Resource("memory", "GPU memory", gain / whole)


def _times(estimator: Estimator, plans: Sequence[Plan], links: LinkState, slowdown: Slowdown) -> list[int]:
    """Iteration times of plans that differ in their warm-up depth alone."""
    if len(plans) == 1:  # also of replicas
        return [estimator.iter_ns(plans[0], links, slowdown)]
    return estimator.iter_ns_deepened(plans, links, slowdown)


def fits(estimator: Estimator, plan: Plan) -> bool:
    """True where every stage has the memory that it needs."""
    have = [estimator.cluster.domains[slot.domain].gpu.memory_bytes for slot in estimator.stage_slots(plan)]
    return all(need <= most for need, most in zip(estimator.peak_mem_bytes(plan), have, strict=True))
