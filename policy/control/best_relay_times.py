"""Iteration times of a plan whose relays are chosen anew in every link state.

In each state every message takes the direct link or the relay by which it arrives first, once for the pair
alone and once beside the other messages of the plan; the faster result counts. Messages share links as in
`policy.control.relayed_times.times_ns`.
"""

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from policy.control.relay_links import (
    MessageLinks,
    add_users,
    choose_in_states,
    forwarding_bps,
    message_bits,
)
from twin.core.domain import Pair
from twin.core.plan import Plan
from twin.costs.wan_traffic import iteration_bytes
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import (
    States,
    costs_by_state,
    crossed_ns,
    over_open_links,
    per_second,
    sent,
)

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ROUNDS = 2
"""Times that every message chooses its relay anew beside the others."""
_known_relays: WeakKeyDictionary[States, dict[tuple[object, ...], Int]] = WeakKeyDictionary()
"""Relays by the messages of a plan: cuts and warm-up depths do not change them."""


def best_relay_rates(
    estimator: Estimator, plan: Plan, states: States, slowdown: Float | None = None
) -> Float | None:
    """Returns iterations per second in each state (T,) with the best relays there, at the plan's own warm-up
    depth; None where direct links are best for every message, or there are no messages of a pipeline."""
    if plan.sync is not None or len(plan.shares) < 2:
        return None
    relayed = best_relay_ns(estimator, replace(plan, routes=()) if plan.routes else plan, states, slowdown)
    return None if relayed is None else per_second(relayed)


def best_relay_ns(
    estimator: Estimator, plan: Plan, states: States, slowdown: Float | None = None
) -> Int | None:
    """Returns the iteration time of a pipeline in each state (T,) with the best relays there; None where the
    direct links are best for every message."""
    via = best_relays(estimator, plan, states)
    if (via < 0).all():
        return None
    shared: Int = relayed_ns(estimator, plan, states, via, slowdown).min(axis=0)
    return shared


def best_relays(estimator: Estimator, plan: Plan, states: States) -> Int:
    """Returns the relays (2, T, F) of the F messages of a pipeline in each state, -1 for the direct link: the
    best for each message alone, and beside the others."""
    pairs, links = _pairs(estimator, plan), _message_links(estimator, plan, states)
    key = (tuple(pairs), links.bits, estimator)
    known = _known_relays.setdefault(states, {})
    if key not in known:
        source, target = _ends(pairs)
        via = np.full((2, len(states), len(source)), -1, dtype=np.int64)
        for n, rounds in enumerate((0, ROUNDS)):
            assign_relays(links, source, target, rounds, via[n])
        known[key] = via
    return known[key]


def relayed_ns(
    estimator: Estimator, plan: Plan, states: States, via: Int, slowdown: Float | None = None
) -> Int:
    """Returns the iteration time (R, T) of a pipeline in T states with R choices of relays `via` (R, T, F),
    as `best_relays` has them."""
    sizes, used = sent(estimator, plan)
    pairs = _pairs(estimator, plan)
    domains, of_pair = estimator.cluster.domains, [pairs.index(pair) for pair in used]
    own_bps = np.array([min(domains[i].egress_bps, domains[j].ingress_bps) for i, j in pairs])
    pipeline, flows = over_open_links(estimator, plan, slowdown), (*_ends(pairs), via)
    links, rows = _message_links(estimator, plan, states), len(via) * len(states)
    late = np.empty((len(pairs), rows))

    def widths(mean_bps: Float) -> Float:
        found = np.empty((len(pairs), rows))
        fill_routes(links, flows, mean_bps, found, late)
        narrowest: Float = np.minimum(found, own_bps[:, None])
        return narrowest

    def timed(width: Float, chosen: NDArray[np.bool_]) -> Int:
        of_chosen = width[of_pair][:, chosen], late[of_pair][:, chosen] * NS_PER_S
        return crossed_ns(pipeline, plan, costs_by_state(*sizes, *of_chosen))

    alone = widths(np.zeros(rows))
    times = timed(alone, np.ones(rows, dtype=np.bool_))
    beside = widths(iteration_bytes(estimator.job, plan) * BITS_PER_BYTE * per_second(times))
    shared = (beside != alone).any(axis=0)
    if shared.any():
        times[shared] = timed(beside, shared)
    return times.reshape(len(via), len(states))


def _pairs(estimator: Estimator, plan: Plan) -> list[Pair]:
    """Returns the directed pairs of domains between which messages go, each once."""
    return list(dict.fromkeys(sent(estimator, plan)[1]))


def _ends(pairs: Sequence[Pair]) -> tuple[Int, Int]:
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
    return source, target


def _message_links(estimator: Estimator, plan: Plan, states: States) -> MessageLinks:
    # Of read-only arrays the code would be compiled again.
    bandwidth, latency = (
        np.require(x, np.float64, ["C", "W"]) for x in (states.bandwidth_bps, states.latency_s)
    )
    bits = message_bits(estimator.job, plan)
    return MessageLinks(bandwidth, latency, forwarding_bps(estimator.cluster), bits)


@njit(cache=True, error_model="numpy")
def assign_relays(links, source, target, rounds, via):  # type: ignore[no-untyped-def]
    """Fills the relay of each flow in each state, `via` (T, F); without `rounds` the best for its pair
    alone."""
    states, size = links.bandwidth_bps.shape[0], links.bandwidth_bps.shape[1]
    users = np.empty((size, size))
    for t in range(states):
        for _ in range(max(rounds, 1)):
            choose_in_states(links, (t, t + 1), (source, target), rounds > 0, 0.0, users, via[t])


@njit(cache=True, error_model="numpy")
def fill_routes(links, flows, mean_bps, width, late):  # type: ignore[no-untyped-def]
    """Fills the bandwidth and latency of the flows' routes, `width` and `late` (F, R * T). On a shared link a
    flow gets what the others leave, each sending `mean_bps` (R * T,), and at least an even share.

    `flows` are the arrays source (F,), target (F,) and relay (R, T, F).
    """
    bandwidth, latency, forwarding, _ = links
    source, target, via = flows
    states, size = bandwidth.shape[0], bandwidth.shape[1]
    users = np.empty((size, size))
    for row in range(len(mean_bps)):
        r, t = row // states, row % states
        users[:] = 0.0
        for f in range(len(source)):
            add_users(users, source[f], via[r, t, f], target[f], 1.0)
        for f in range(len(source)):
            i, j, k = source[f], target[f], via[r, t, f]
            if k < 0:
                width[f, row] = _left(bandwidth[t, i, j], users[i, j], mean_bps[row])
                late[f, row] = latency[t, i, j]
            else:
                first = _left(bandwidth[t, i, k], users[i, k], mean_bps[row])
                second = _left(bandwidth[t, k, j], users[k, j], mean_bps[row])
                width[f, row] = min(min(first, second), forwarding[k])
                late[f, row] = latency[t, i, k] + latency[t, k, j]


@njit(inner=True, borrowing=True, cache=True, error_model="numpy")
def _left(whole_bps, users, mean_bps):  # type: ignore[no-untyped-def]
    return max(whole_bps / users, whole_bps - (users - 1.0) * mean_bps)
