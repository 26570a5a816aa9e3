"""Rates of flows over the wide-area links: flows with a resource in common share it max-min fairly.

A resource is a directed link, or what a domain may send (`egress_bps`) or receive (`ingress_bps`) over all
its links. A flow occupies every resource of its route at once: a relay passes bytes on as they come. A flow
that shares no resource gets the narrowest of its own.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Protocol

import numpy as np

from ingest.core.units import NS_PER_S
from twin.core.domain import Cluster, Pair
from twin.network.link_state import Links
from twin.network.max_min_fair import GREEDY, max_min
from twin.traces.wan_trace import Values

Route = tuple[Pair, ...]
"""The directed links that bytes pass one after the other."""


class Owner(Protocol):
    """The sender of flows."""

    def demand_bps(self, flow: "Flow") -> float:
        """Mean rate above which the flow does not send; `GREEDY`: no limit."""
        ...

    def rates_changed(self, flows: Sequence["Flow"]) -> None:
        """Called when the rate or the latency of these flows has changed."""
        ...


class Flow:
    """Bytes sent over `route` while it is open, at `rate_bps`.

    A greedy flow has its max-min fair rate. A flow with a demand takes its demand at most from the others,
    but sends each message at the rate that it would have as a greedy flow beside them.
    """

    __slots__ = ("owner", "rate_bps", "resources", "route")

    def __init__(self, owner: Owner, route: Route, network: "Network") -> None:
        self.owner = owner
        self.route = route
        self.resources = network.resources(route)
        self.rate_bps = 0.0


class Network:
    """All open flows over the links of a world."""

    def __init__(self, links: Links, cluster: Cluster) -> None:
        self.env = links.env
        self.links = links
        size = self._size = cluster.size
        domains = list(enumerate(cluster.domains))
        self._caps = {size * size + k: domain.egress_bps for k, domain in domains}
        self._caps |= {size * (size + 1) + k: domain.ingress_bps for k, domain in domains}
        self._users: dict[int, list[Flow]] = {}
        self._numbers: dict[Route, tuple[int, ...]] = {}
        self._contention = 0  # how often a flow joined others
        links.watchers.append(self._links_changed)

    def resources(self, route: Route) -> tuple[int, ...]:
        """Numbers of the links of `route` and of the finite domain limits on it."""
        if route not in self._numbers:
            self._numbers[route] = self._number(route)
        return self._numbers[route]

    def _number(self, route: Route) -> tuple[int, ...]:
        size, found = self._size, []
        for i, j in route:
            limits = (size * size + i, size * (size + 1) + j)
            found += [i * size + j, *(limit for limit in limits if self._caps[limit] < inf)]
        return tuple(dict.fromkeys(found))

    def open(self, flows: Sequence[Flow]) -> None:
        """Add flows: sets their rates and those of the flows that they share resources with."""
        for flow in flows:
            for resource in flow.resources:
                users = self._users.setdefault(resource, [])
                users.append(flow)
                self._contention += len(users) > 1
        self._share(flows, silent=flows)

    def close(self, flows: Sequence[Flow]) -> None:
        """Remove flows."""
        met: dict[Flow, None] = {}
        for flow in flows:
            for resource in flow.resources:
                users = self._users[resource]
                self._contention -= len(users) > 1
                users.remove(flow)
                met |= dict.fromkeys(users)
        remaining = [flow for flow in met if flow not in flows]
        if remaining:
            self._share(remaining)

    def alone_bps(self, route: Route) -> float:
        """Rate of a flow over `route` that shares no resource."""
        return min(self._capacity(resource) for resource in self.resources(route))

    def latency_ns(self, route: Route) -> int:
        """One-way latency of `route`, the sum over its links."""
        return sum(self.links.latency_ns(pair) for pair in route)

    @property
    def contended(self) -> bool:
        """True while any two flows share a resource."""
        return self._contention > 0

    def ahead(self, routes: Sequence[Route]) -> tuple[list[int], Values, Values]:
        """Rates and latencies of `routes` at the next changes of links, if no flows share a resource.

        Returns: the instants (n,), rate in bit/s and latency in ns (len(routes), n).
        """
        pairs = list(dict.fromkeys(pair for route in routes for pair in route))
        times, bandwidth, latency = self.links.ahead(pairs)
        which = [[pairs.index(pair) for pair in route] for route in routes]
        limits = [
            min((self._caps[r] for r in self.resources(route) if r in self._caps), default=inf)
            for route in routes
        ]
        rates = [
            np.minimum(bandwidth[rows].min(axis=0), limit) for rows, limit in zip(which, limits, strict=True)
        ]
        delays = [np.rint(latency[rows] * NS_PER_S).sum(axis=0) for rows in which]
        return times, np.array(rates), np.array(delays)

    def _capacity(self, resource: int) -> float:
        size = self._size
        if resource < size * size:
            return float(self.links.state.bandwidth_bps[divmod(resource, size)])
        return self._caps[resource]

    def _links_changed(self, changed: Sequence[Pair]) -> None:
        touched: dict[Flow, None] = {}
        for i, j in changed:
            touched |= dict.fromkeys(self._users.get(i * self._size + j, ()))
        if touched and not self.contended:
            for flow in touched:
                flow.rate_bps = min(map(self._capacity, flow.resources))
            self._notify(touched)
        elif touched:
            self._share(list(touched), always=touched)

    def _share(
        self, flows: Sequence[Flow], *, silent: Iterable[Flow] = (), always: Iterable[Flow] = ()
    ) -> None:
        """Set the rates of `flows` and of all flows connected with them.

        Owners are called for flows whose rate changes, except those in `silent`, and for those in `always`.
        """
        changed = dict.fromkeys(always)
        done: set[Flow] = set()
        for flow in flows:
            if flow not in done:
                together = self._connected(flow)
                done.update(together)
                for member, rate in zip(together, self._rates(together), strict=True):
                    if rate != member.rate_bps:
                        member.rate_bps = rate
                        changed[member] = None
        for flow in silent:
            changed.pop(flow, None)
        self._notify(changed)

    def _notify(self, changed: Iterable[Flow]) -> None:
        """Call each owner once with all its flows in `changed`."""
        owners: dict[int, list[Flow]] = {}
        for flow in changed:
            owners.setdefault(id(flow.owner), []).append(flow)
        for flows_of_owner in owners.values():
            flows_of_owner[0].owner.rates_changed(flows_of_owner)

    def _connected(self, flow: Flow) -> list[Flow]:
        """`flow` and all flows that share a resource with it, directly or through others."""
        if all(len(self._users[resource]) == 1 for resource in flow.resources):
            return [flow]
        found, waiting = {flow: None}, [flow]
        while waiting:
            for resource in waiting.pop().resources:
                for other in self._users[resource]:
                    if other not in found:
                        found[other] = None
                        waiting.append(other)
        return list(found)

    def _rates(self, flows: Sequence[Flow]) -> list[float]:
        if len(flows) == 1:
            return [min(map(self._capacity, flows[0].resources))]
        routes = [flow.resources for flow in flows]
        capacity = {resource: self._capacity(resource) for route in routes for resource in route}
        demands = [flow.owner.demand_bps(flow) for flow in flows]
        rates = max_min(demands, routes, capacity)
        for n, demand in enumerate(demands):
            if demand < GREEDY:
                alone = [*demands[:n], GREEDY, *demands[n + 1 :]]
                rates[n] = max_min(alone, routes, capacity)[n]
        return rates
