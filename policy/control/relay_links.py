"""Links as messages find them that may pass one other domain on their way.

A relay i-k-j is a legal route, and turning to one stops nothing (spec 4.5 d). So where speed alone counts,
plans are searched and compared under what each pair of domains gets over the best of its direct link and its
relays: a congested link with a way around it is no reason to move. On the links of octo-175b and
planet-405b, whose direct paths are often not the fastest (as on those that RON measured: Andersen et al.,
"Resilient overlay networks", SOSP 2001), the same plan is 11 and 20 % faster with relays.

The best way is the one on which a message arrives first: bits over the narrowest link of the way, plus its
latencies. What else of a plan is on these links is not known before there is a plan: `policy.knobs` times it
with the links that its messages share, here a relay counts for `SHARE` of them.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import permutations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE
from policy.control.horizon import Horizon
from twin.estimate.link_state_times import States
from twin.core.domain import Cluster, LinkState
from twin.core.job import JobSpec
from twin.core.plan import Plan
from twin.core.view import Forecast

Float = NDArray[np.float64]
Int = NDArray[np.int64]

SHARE = 0.5
"""Of its narrowest link that a relay counts for: other messages of the plan may be on it. On training windows
of mpc all of it is better on storm (101.4 us a token, not 103.5; two seeds), worse on octo-175b (124.8, not
122.3) and planet-405b (70.0, not 61.6); no relays, but where routes are set, are worse on storm (107.0) and
better on the others (120.3, 60.5).
"""
ENDLESS_BITS = 1e30
"""With so much to send only the width of a way counts."""
LOOKED_AT = 6
"""Relays of a pair that are looked at in every scenario of a horizon: those that are best under its median
links. All of them up to eight domains."""


def message_bits(job: JobSpec, plan: Plan) -> float:
    """What a plan sends over a wide-area boundary for one micro-batch."""
    return float(plan.dp * job.message_bytes(plan.micro_batch) * BITS_PER_BYTE)


def through_bps(cluster: Cluster) -> Float:
    """What each domain can pass on, (K,)."""
    return np.array([min(domain.egress_bps, domain.ingress_bps) for domain in cluster.domains])


@dataclass(frozen=True, eq=False)
class Relays:
    """The ways of messages of so many `bits` between the domains of a cluster; a relay counts for `share` of
    its narrowest link."""

    cluster: Cluster
    bits: float
    share: float = SHARE

    @cached_property
    def _through_bps(self) -> Float:
        return through_bps(self.cluster)

    def ways(self, states: States, relays: Int | None = None) -> tuple[States, Int]:
        """Links as messages find them in T states, and the relay of each pair, -1 where the link itself is
        best, (T, K, K); `relays` (K, K, R) are those to be looked at, -1 at the end of the shorter rows."""
        bandwidth, latency = states.bandwidth_bps.copy(), np.array(states.latency_s, dtype=np.float64)
        via = np.full(bandwidth.shape, -1, dtype=np.int64)
        if relays is None:
            relays = _others(len(self.cluster.domains))
        _take_best(
            np.ascontiguousarray(states.bandwidth_bps), np.ascontiguousarray(states.latency_s),
            self._through_bps, self.share, self.bits, relays, bandwidth, latency, via,
        )  # fmt: skip
        return States(bandwidth, latency), via

    def horizon(self, horizon: Horizon) -> Horizon:
        """The time ahead with the links as messages will find them, and as the layers of a move do now."""
        glimpse, now = horizon.glimpse, horizon.moving
        relays = self._leading(glimpse.bandwidth_bps[[0, horizon.slices - 1]], glimpse.latency_s[0])
        states, seen = self.ways(horizon.states, relays)[0], self.ways(glimpse, relays)[0]
        bulk, _ = replace(self, bits=ENDLESS_BITS).ways(States(now.bandwidth_bps[None], now.latency_s[None]))
        found = LinkState(bulk.bandwidth_bps[0], bulk.latency_s[0])
        return replace(horizon, states=states, glimpse=seen, carriers=found)

    def forecast(self, forecast: Forecast) -> Forecast:
        """The median links of each horizon, the deviation that of the narrowest link of the way, the latency
        that of the present."""
        shape = forecast.bandwidth_bps.shape
        given = States(forecast.bandwidth_bps, np.broadcast_to(forecast.latency_s, shape))
        found, via = self.ways(given, self._leading(given.bandwidth_bps[[0, -1]], given.latency_s[0]))
        h, i, j = np.nonzero(via >= 0)
        k = via[h, i, j]
        first = forecast.bandwidth_bps[h, i, k] <= forecast.bandwidth_bps[h, k, j]
        sd_log = forecast.sd_log.copy()
        sd_log[h, i, j] = np.where(first, forecast.sd_log[h, i, k], forecast.sd_log[h, k, j])
        return replace(
            forecast, bandwidth_bps=found.bandwidth_bps, sd_log=sd_log, latency_s=found.latency_s[0]
        )

    def film(self, bandwidth_bps: Float, latency_s: Float) -> tuple[Float, Float]:
        """Of many states (D, J, K, K) of D periods."""
        bandwidth, latency = np.empty_like(bandwidth_bps), np.empty_like(latency_s)
        for d in range(len(bandwidth_bps)):
            relays = self._leading(bandwidth_bps[d], latency_s[d, 0])
            found, _ = self.ways(States(bandwidth_bps[d], latency_s[d]), relays)
            bandwidth[d], latency[d] = found.bandwidth_bps, found.latency_s
        return bandwidth, latency

    def _leading(self, bandwidth_bps: Float, latency_s: Float) -> Int | None:
        """For each pair the relays that are best in the mean over some bandwidths (T, K, K), (K, K,
        `LOOKED_AT`); None: all there are."""
        size = len(self.cluster.domains)
        if size <= LOOKED_AT + 2:
            return None
        relays = np.full((size, size, LOOKED_AT), -1, dtype=np.int64)
        _rank(bandwidth_bps, latency_s, self._through_bps, self.bits, relays)
        return relays


@lru_cache(maxsize=64)
def _others(size: int) -> Int:
    """Every domain that a pair could pass, (K, K, K - 2)."""
    relays = np.full((size, size, max(size - 2, 0)), -1, dtype=np.int64)
    for i, j in permutations(range(size), 2):
        relays[i, j] = [k for k in range(size) if k not in (i, j)]
    return relays


@njit(cache=True, error_model="numpy")
def _take_best(  # type: ignore[no-untyped-def]
    bandwidth, latency, through, share, bits, relays, best_bps, best_s, via
):
    """Replace each pair's entries of `best_bps`, `best_s` and `via` by those of its fastest way."""
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
                    width = share * min(bandwidth[t, i, k], bandwidth[t, k, j], through[k])
                    found = bits / width + late
                    if found < arrival:
                        arrival = found
                        best_bps[t, i, j], best_s[t, i, j], via[t, i, j] = width, late, k


@njit(cache=True, error_model="numpy")
def _rank(bandwidth, latency, through, bits, relays):  # type: ignore[no-untyped-def]
    """Fill each pair's row of `relays` with the domains over which messages arrive soonest."""
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
                    width = min(bandwidth[t, i, k], bandwidth[t, k, j], through[k])
                    found += bits / width + latency[i, k] + latency[k, j]
                if count == kept and found >= arrivals[count - 1]:
                    continue
                at = count if count < kept else kept - 1
                while at > 0 and arrivals[at - 1] > found:
                    arrivals[at], relays[i, j, at] = arrivals[at - 1], relays[i, j, at - 1]
                    at -= 1
                arrivals[at], relays[i, j, at] = found, k
                count = min(count + 1, kept)


@njit(cache=True, error_model="numpy")
def soonest(  # type: ignore[no-untyped-def]
    bandwidth, latency, through, bits, source, target, beside, worth, via
):
    """Replace in `via` (F,) the relay of each flow, -1 for its link, where messages arrive sooner on another
    way by more than the share `worth`, in the mean over states (T, K, K). With `beside` links that other
    flows take count as divided evenly."""
    size = bandwidth.shape[1]
    users = np.ones((size, size))
    if beside:
        for f in range(len(source)):
            add_users(users, source[f], via[f], target[f], 1.0)
    for f in range(len(source)):
        i, j, before = source[f], target[f], via[f]
        if beside:
            add_users(users, i, before, j, -1.0)
        kept = _arrival(bandwidth, latency, users, through, bits, i, before, j)
        best, chosen = kept * (1.0 - worth), before
        for k in range(-1, size):
            if k not in (i, j, before):
                found = _arrival(bandwidth, latency, users, through, bits, i, k, j)
                if found < best:
                    best, chosen = found, k
        via[f] = chosen
        if beside:
            add_users(users, i, chosen, j, 1.0)


@njit(cache=True, error_model="numpy")
def add_users(users, i, k, j, by):  # type: ignore[no-untyped-def]
    """So many more users on the links of the way i-k-j; of the link i-j where `k` is -1."""
    if k < 0:
        users[i, j] += by
    else:
        users[i, k] += by
        users[k, j] += by


@njit(cache=True, error_model="numpy")
def _arrival(bandwidth, latency, users, through, bits, i, k, j):  # type: ignore[no-untyped-def]
    """Mean seconds over the states until a message has arrived over `k`, or directly where that is -1."""
    total = 0.0
    for t in range(bandwidth.shape[0]):
        if k < 0:
            total += bits / (bandwidth[t, i, j] / users[i, j]) + latency[t, i, j]
        else:
            width = min(bandwidth[t, i, k] / users[i, k], bandwidth[t, k, j] / users[k, j])
            total += bits / min(width, through[k]) + latency[t, i, k] + latency[t, k, j]
    return total
