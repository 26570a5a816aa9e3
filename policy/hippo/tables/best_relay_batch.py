"""The links as the messages of many plans find them that choose their relays anew in every link state.

As `policy.control.best_relay_times` for one plan: every message takes the direct link or the relay by which
it arrives first, once for its pair alone and once beside the other messages of the plan; messages that share
a link get what the others leave, and at least an even share.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE
from policy.control.best_relay_times import assign_relays, fill_routes
from policy.control.relay_links import MessageLinks, add_users
from twin.costs.tied_embeddings import STEPS
from twin.estimation.mixed_shapes_kernel import Lines, both_ends

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bool = NDArray[np.bool_]


class TrueLinks(NamedTuple):
    """The links of P plans in X states each, and what domains relay."""

    bandwidth_bps: Float  # (P, X, K, K)
    latency_s: Float  # (P, X, K, K)
    forwarding_bps: Float  # (K,)

    def at(self, p: Int, x: Int) -> "TrueLinks":
        """Returns the states `x` of the plans `p`, one state for each (P, 1, K, K)."""
        return TrueLinks(
            self.bandwidth_bps[p, x][:, None], self.latency_s[p, x][:, None], self.forwarding_bps
        )


class ChosenRelays(NamedTuple):
    """Relays of the messages of P plans in X states each."""

    via: Int  # (P, X, F) domain that relays a flow, -1 for its direct link
    relayed: Bool  # (P, X) some flow is relayed
    shared: Bool  # (P, X) some flow is relayed, and some link carries more than one

    def at(self, p: Int, x: Int) -> "ChosenRelays":
        """Returns those of the states `x` of the plans `p`, one state for each (P, 1, ...)."""
        return ChosenRelays._make(column[p, x][:, None] for column in self)


def best_routes(lines: Lines, links: TrueLinks, rounds: int) -> ChosenRelays:
    """Returns the relays by which messages arrive first: with `rounds`, each chosen so many times beside the
    others; with 0 for its pair alone."""
    plans, states = links.bandwidth_bps.shape[:2]
    routes = ChosenRelays(
        np.full((plans, states, _most_flows(lines)), -1, dtype=np.int64),
        np.zeros((plans, states), np.bool_),
        np.zeros((plans, states), np.bool_),
    )
    _choose(lines, links, rounds, routes)
    return routes


def routed(lines: Lines, links: TrueLinks, via: Int, mean_bps: Float) -> tuple[Float, Float]:
    """Returns bandwidth and latency (P, X, K, K) as messages find them over their relays, where each flow of
    a plan sends `mean_bps` (P, X)."""
    width, late = links.bandwidth_bps.copy(), links.latency_s.copy()
    _fill(lines, links, via, mean_bps, width, late)
    return width, late


def traffic_bytes(lines: Lines, domains: int) -> Float:
    """Returns the bytes of an iteration from each domain to each other (P, K, K), relays aside."""
    sent = np.zeros((len(lines.stages), domains, domains))
    _add_traffic(lines, sent)
    return sent


def _most_flows(lines: Lines) -> int:
    """Returns the most flows of any plan: two directions a boundary, and two between the ends."""
    return 2 * (int((lines.source >= 0).sum(axis=1).max(initial=0)) + 1)


@njit(cache=True, nogil=True)
def _add_traffic(lines, sent):  # type: ignore[no-untyped-def]
    """Adds messages and exchanges of gradients to `sent` (P, K, K)."""
    for p in range(len(lines.stages)):
        each = lines.message_bytes[p] * lines.micro_batches[p]
        for b in range(lines.stages[p] - 1):
            i, j = lines.source[p, b], lines.target[p, b]
            if i >= 0:
                sent[p, i, j] += each
                sent[p, j, i] += each
        first, last = both_ends(p, lines)
        if first >= 0:
            sent[p, first, last] += STEPS * lines.tied_bytes[p]
            sent[p, last, first] += STEPS * lines.tied_bytes[p]


@njit(inner=True, cache=True, nogil=True)
def _flows_of(p, lines, source, target):  # type: ignore[no-untyped-def]
    """Fills the ends of the flows of plan p in the order of `twin.costs.wan_traffic.crossings`; returns their
    number."""
    count = 0
    for b in range(lines.stages[p] - 1):
        if lines.source[p, b] >= 0:
            source[count], target[count] = lines.source[p, b], lines.target[p, b]
            source[count + 1], target[count + 1] = target[count], source[count]
            count += 2
    first, last = both_ends(p, lines)
    if count > 2 and first >= 0:  # between two domains the exchange takes the boundary's way
        source[count], target[count] = last, first
        source[count + 1], target[count + 1] = first, last
        count += 2
    return count


@njit(cache=True, nogil=True)
def _choose(lines, links, rounds, routes):  # type: ignore[no-untyped-def]
    """Fills `routes`."""
    via, relayed, shared = routes  # once: each access of a field counts references
    flows, size = via.shape[2], links.forwarding_bps.shape[0]
    source, target, users = np.empty(flows, np.int64), np.empty(flows, np.int64), np.empty((size, size))
    for p in range(len(lines.stages)):
        n = _flows_of(p, lines, source, target)
        if n == 0:
            continue
        bits = lines.message_bytes[p] * BITS_PER_BYTE
        own = MessageLinks(links.bandwidth_bps[p], links.latency_s[p], links.forwarding_bps, bits)
        assign_relays(own, source[:n], target[:n], rounds, via[p, :, :n])
        for x in range(via.shape[1]):
            users[:] = 0.0
            for f in range(n):
                add_users(users, source[f], via[p, x, f], target[f], 1.0)
                relayed[p, x] |= via[p, x, f] >= 0
            shared[p, x] = relayed[p, x] and users.max() > 1.0


@njit(cache=True, nogil=True)
def _fill(lines, links, via, mean_bps, width, late):  # type: ignore[no-untyped-def]
    """Replaces the entries of the pairs that send in `width` and `late` (P, X, K, K)."""
    flows, states = via.shape[2], via.shape[1]
    source, target = np.empty(flows, np.int64), np.empty(flows, np.int64)
    bps, seconds = np.empty((flows, states)), np.empty((flows, states))
    for p in range(len(lines.stages)):
        n = _flows_of(p, lines, source, target)
        own = MessageLinks(links.bandwidth_bps[p], links.latency_s[p], links.forwarding_bps, 0.0)
        fill_routes(own, (source[:n], target[:n], via[p : p + 1, :, :n]), mean_bps[p], bps, seconds)
        for f in range(n):
            for x in range(states):
                width[p, x, source[f], target[f]] = bps[f, x]
                late[p, x, source[f], target[f]] = seconds[f, x]
