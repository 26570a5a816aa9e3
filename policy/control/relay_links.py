"""Links between domains as messages find them that may pass one other domain, a relay, on their way.

A relay i-k-j is a legal route, and changing routes stops nothing. So where speed alone has weight, plans are
searched and compared under the bandwidth that each pair of domains gets over the best of its direct link and
its relays: a congested link with a way around it is no reason to migrate. On the links of octo-175b and
planet-405b, whose direct paths are often not the fastest (as in Andersen et al., "Resilient overlay
networks", SOSP 2001), the same plan is 11 and 20 % faster with relays.

The best route is the one on which a message arrives first: its bits over the narrowest link of the route,
plus the latencies. The other traffic of a plan is unknown before there is a plan, so a relay is credited with
`RELAY_SHARE` of its bandwidth; `policy.control.knobs` times the routes of a plan with the links that they
share.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE
from policy.control.horizon import Horizon
from twin.core.domain import Cluster, LinkState
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.core.view import Forecast
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]
Int = NDArray[np.int64]

RELAY_SHARE = 0.5
"""Share of its narrowest link credited to a relay, which other messages of the plan may use. On training
windows of mpc 1 is better on storm (101.4 us a token instead of 103.5; two seeds), worse on octo-175b (124.8
instead of 122.3) and planet-405b (70.0 instead of 61.6); no relays in the search is worse on storm (107.0)
and better on the others (120.3, 60.5).
"""
UNLIMITED_BITS = 1e30
"""With so much to send only the bandwidth of a route matters."""
MAX_RELAYS = 6
"""Relays of a pair considered in every scenario of a horizon: the best under its median links. All of them up
to eight domains."""


class MessageLinks(NamedTuple):
    """Inputs of the compiled functions: T link states and the size of a message."""

    bandwidth_bps: Float  # (T, K, K)
    latency_s: Float  # (T, K, K)
    forwarding_bps: Float  # (K,) that each domain can relay
    bits: float


def message_bits(job: JobSpec, plan: Plan) -> float:
    """Returns the bits that a plan sends over a wide-area boundary for one micro-batch."""
    return float(plan.dp * job.message_bytes(plan.micro_batch) * BITS_PER_BYTE)


def forwarding_bps(cluster: Cluster) -> Float:
    """Returns the bandwidth that each domain can relay, (K,)."""
    return np.array([min(domain.egress_bps, domain.ingress_bps) for domain in cluster.domains])


@dataclass(frozen=True, eq=False)
class RelayPaths:
    """Best routes of messages of `bits` between the domains of a cluster; a relay is credited with `share` of
    its narrowest link."""

    cluster: Cluster
    bits: float
    share: float = RELAY_SHARE

    @cached_property
    def _forwarding_bps(self) -> Float:
        return forwarding_bps(self.cluster)

    def best_routes(self, states: States, relays: Int | None = None) -> tuple[States, Int]:
        """Returns the links as messages find them in T states, and the relay of each pair (T, K, K), -1 where
        the direct link is best; `relays` (K, K, R) are those considered, padded with -1."""
        bandwidth, latency = (
            np.array(x, np.float64, order="C") for x in (states.bandwidth_bps, states.latency_s)
        )
        via = np.full(bandwidth.shape, -1, dtype=np.int64)
        if relays is None:
            relays = _all_relays(len(self.cluster.domains))
        bps, latency_s = (
            bandwidth.copy(),
            latency.copy(),
        )  # of read-only arrays the code would be compiled again
        links = MessageLinks(bps, latency_s, self._forwarding_bps, self.bits)
        _take_best(links, self.share, relays, bandwidth, latency, via)
        return States(bandwidth, latency), via

    def horizon(self, horizon: Horizon) -> Horizon:
        """Returns the horizon with the links as messages and the transfers of a migration find them."""
        summary, now = horizon.summary, horizon.migration_links
        relays = self._best_relays(summary.bandwidth_bps[[0, horizon.slices - 1]], summary.latency_s[0])
        states, relayed_summary = (self.best_routes(one, relays)[0] for one in (horizon.states, summary))
        present = States(now.bandwidth_bps[None], now.latency_s[None])
        bulk, _ = replace(self, bits=UNLIMITED_BITS).best_routes(present)
        bulk_links = LinkState(bulk.bandwidth_bps[0], bulk.latency_s[0])
        return replace(horizon, states=states, summary=relayed_summary, bulk_links=bulk_links)

    def forecast(self, forecast: Forecast) -> Forecast:
        """Returns the forecast over the best routes: the deviation of the narrowest link of a route, the
        present latency."""
        shape = forecast.bandwidth_bps.shape
        given = States(forecast.bandwidth_bps, np.broadcast_to(forecast.latency_s, shape))
        found, via = self.best_routes(
            given, self._best_relays(given.bandwidth_bps[[0, -1]], given.latency_s[0])
        )
        h, i, j = np.nonzero(via >= 0)
        k = via[h, i, j]
        first = forecast.bandwidth_bps[h, i, k] <= forecast.bandwidth_bps[h, k, j]
        sd_log = forecast.sd_log.copy()
        sd_log[h, i, j] = np.where(first, forecast.sd_log[h, i, k], forecast.sd_log[h, k, j])
        return replace(
            forecast, bandwidth_bps=found.bandwidth_bps, sd_log=sd_log, latency_s=found.latency_s[0]
        )

    def _best_relays(self, bandwidth_bps: Float, latency_s: Float) -> Int | None:
        """Returns for each pair the relays (K, K, `MAX_RELAYS`) that are best on average over some bandwidths
        (T, K, K); None for all relays."""
        size = len(self.cluster.domains)
        if size <= MAX_RELAYS + 2:
            return None
        relays = np.full((size, size, MAX_RELAYS), -1, dtype=np.int64)
        _rank(bandwidth_bps, latency_s, self._forwarding_bps, self.bits, relays)
        return relays


@lru_cache(maxsize=64)
def _all_relays(size: int) -> Int:
    """Returns every relay of each pair, (K, K, K - 2)."""
    relays = np.full((size, size, max(size - 2, 0)), -1, dtype=np.int64)
    for i, j in permutations(range(size), 2):
        relays[i, j] = [k for k in range(size) if k not in (i, j)]
    return relays


@njit(cache=True, error_model="numpy")
def _take_best(links, share, relays, best_bps, best_s, via):  # type: ignore[no-untyped-def]
    """Replaces each pair's entries of `best_bps`, `best_s` and `via` (T, K, K) by those of its fastest
    route."""
    bandwidth, latency, forwarding, bits = links
    states, size = bandwidth.shape[0], bandwidth.shape[1]
    for t in range(states):
        for i in range(size):
            for j in range(size):
                if i == j:
                    continue
                arrival = bits / bandwidth[t, i, j] + latency[t, i, j]
                for r in range(relays.shape[2]):
                    k = relays[i, j, r]
                    if k < 0:
                        break
                    late = latency[t, i, k] + latency[t, k, j]
                    if late >= arrival:
                        continue
                    width = share * min(bandwidth[t, i, k], bandwidth[t, k, j], forwarding[k])
                    found = bits / width + late
                    if found < arrival:
                        arrival = found
                        best_bps[t, i, j], best_s[t, i, j], via[t, i, j] = width, late, k


@njit(cache=True, error_model="numpy")
def _rank(bandwidth, latency, forwarding, bits, relays):  # type: ignore[no-untyped-def]
    """Fills each pair's row of `relays` with the domains over which messages arrive soonest."""
    states, size = bandwidth.shape[0], bandwidth.shape[1]
    kept = relays.shape[2]
    arrivals = np.empty(kept)
    for i in range(size):
        for j in range(size):
            if i == j:
                continue
            count = 0
            for k in range(size):
                if k in (i, j):
                    continue
                found = 0.0
                for t in range(states):
                    width = min(bandwidth[t, i, k], bandwidth[t, k, j], forwarding[k])
                    found += bits / width + latency[i, k] + latency[k, j]
                if count == kept and found >= arrivals[count - 1]:
                    continue
                rank = count if count < kept else kept - 1
                while rank > 0 and arrivals[rank - 1] > found:
                    arrivals[rank], relays[i, j, rank] = arrivals[rank - 1], relays[i, j, rank - 1]
                    rank -= 1
                arrivals[rank], relays[i, j, rank] = found, k
                count = min(count + 1, kept)


@njit(cache=True, error_model="numpy")
def choose_relays(links, source, target, shared, gain, via):  # type: ignore[no-untyped-def]
    """Replaces in `via` (F,) the relay of each flow, -1 for its direct link, where messages arrive sooner
    over another route by more than the share `gain`, on average over the states. With `shared` a link is
    divided evenly among the flows on it."""
    states, size = links.bandwidth_bps.shape[0], links.bandwidth_bps.shape[1]
    choose_in_states(links, (0, states), (source, target), shared, gain, np.empty((size, size)), via)


@njit(inner=True, borrowing=True, cache=True, error_model="numpy")
def choose_in_states(links, span, flows, shared, gain, users, via):  # type: ignore[no-untyped-def]
    """`choose_relays` for the states from the first of `span` to before its last; `flows` are their sources
    and targets (F,), `users` (K, K) is room."""
    source, target = flows
    size = users.shape[0]
    users[:] = 1.0
    if shared:
        for f in range(len(source)):
            add_users(users, source[f], via[f], target[f], 1.0)
    for f in range(len(source)):
        i, j, before = source[f], target[f], via[f]
        if shared:
            add_users(users, i, before, j, -1.0)
        kept = _arrival_s(links, span, users, i, before, j)
        best, chosen = kept * (1.0 - gain), before
        for k in range(-1, size):
            if k not in (i, j, before):
                found = _arrival_s(links, span, users, i, k, j)
                if found < best:
                    best, chosen = found, k
        via[f] = chosen
        if shared:
            add_users(users, i, chosen, j, 1.0)


@njit(inner=True, borrowing=True, cache=True, error_model="numpy")
def add_users(users, i, k, j, by):  # type: ignore[no-untyped-def]
    """Adds `by` users to the links of the route i-k-j; to the link i-j where `k` is -1."""
    if k < 0:
        users[i, j] += by
    else:
        users[i, k] += by
        users[k, j] += by


@njit(inner=True, borrowing=True, cache=True, error_model="numpy")
def _arrival_s(links, span, users, i, k, j):  # type: ignore[no-untyped-def]
    """Returns mean seconds over the states until a message has arrived via `k`, or directly where that is
    -1."""
    bandwidth, latency, forwarding, bits = links
    total = 0.0
    for t in range(span[0], span[1]):
        if k < 0:
            total += bits / (bandwidth[t, i, j] / users[i, j]) + latency[t, i, j]
        else:
            width = min(bandwidth[t, i, k] / users[i, k], bandwidth[t, k, j] / users[k, j])
            total += bits / min(width, forwarding[k]) + latency[t, i, k] + latency[t, k, j]
    return total
