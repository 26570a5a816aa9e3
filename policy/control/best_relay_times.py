"""Iteration times of a plan whose relays are chosen anew in every link state.

In each state every message takes the direct link or the relay by which it arrives first, once for the pair
alone and once beside the other messages of the plan; the faster result counts. Messages share links as in
`policy.control.relayed_times.times_ns`.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE
from policy.control.relay_links import (
    MessageLinks,
    add_users,
    choose_relays,
    forwarding_bps,
    message_bits,
)
from twin.core.plan import Plan
from twin.costs.wan_traffic import crossings, iteration_bytes
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns, per_second

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ROUNDS = 2
"""Times that every message chooses its relay anew beside the others."""


def best_relay_rates(estimator: Estimator, plan: Plan, states: States) -> Float | None:
    """Returns iterations per second in each state (T,) with the best relays there, at the plan's own warm-up
    depth; None where direct links are best for every message, or there are no messages of a pipeline."""
    if plan.sync is not None or len(plan.shares) < 2:
        return None
    relayed = best_relay_ns(estimator, replace(plan, routes=()), states)
    return None if relayed is None else per_second(relayed)


def best_relay_ns(estimator: Estimator, plan: Plan, states: States) -> Int | None:
    """Returns the iteration time of a pipeline in each state (T,) with the best relays there; None where the
    direct links are best for every message."""
    pairs = crossings(estimator.job, plan)
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
    bits, sent = message_bits(estimator.job, plan), iteration_bytes(estimator.job, plan) * BITS_PER_BYTE
    bandwidth, latency = (np.ascontiguousarray(x) for x in (states.bandwidth_bps, states.latency_s))
    links = MessageLinks(bandwidth, latency, forwarding_bps(estimator.cluster), bits)
    best: Int | None = None
    for rounds in (0, ROUNDS):
        via = np.full((len(states), len(pairs)), -1, dtype=np.int64)
        assign_relays(links, source, target, rounds, via)
        if (via < 0).all():
            continue

        def timed(mean_bps: Float, via: Int = via) -> Int:
            width, late = bandwidth.copy(), latency.copy()
            fill_routes(links, (source, target, via), mean_bps, width, late)
            return iteration_ns(estimator, plan, States(width, late))

        alone = timed(np.zeros(len(states)))
        found = timed(sent * per_second(alone))
        best = found if best is None else np.minimum(best, found)
    return best


@njit(cache=True, error_model="numpy")
def assign_relays(links, source, target, rounds, via):  # type: ignore[no-untyped-def]
    """Fills the relay of each flow in each state, `via` (T, F); without `rounds` the best for its pair
    alone."""
    for t in range(links.bandwidth_bps.shape[0]):
        for _ in range(max(rounds, 1)):
            now, late = links.bandwidth_bps[t : t + 1], links.latency_s[t : t + 1]
            state = MessageLinks(now, late, links.forwarding_bps, links.bits)
            choose_relays(state, source, target, rounds > 0, 0.0, via[t])


@njit(cache=True, error_model="numpy")
def fill_routes(links, flows, mean_bps, width, late):  # type: ignore[no-untyped-def]
    """Replaces the entries of the flows' pairs in `width` and `late` (T, K, K) by those of their routes. On a
    shared link a flow gets what the others leave, each sending `mean_bps` (T,), and at least an even share.

    `flows` are the arrays source (F,), target (F,) and relay (T, F).
    """
    bandwidth, latency, forwarding, _ = links
    source, target, via = flows
    states, size = bandwidth.shape[0], bandwidth.shape[1]
    for t in range(states):
        users = np.zeros((size, size))
        for f in range(len(source)):
            add_users(users, source[f], via[t, f], target[f], 1.0)
        for f in range(len(source)):
            i, j, k = source[f], target[f], via[t, f]
            if k < 0:
                width[t, i, j] = _left(bandwidth[t, i, j], users[i, j], mean_bps[t])
            else:
                first = _left(bandwidth[t, i, k], users[i, k], mean_bps[t])
                second = _left(bandwidth[t, k, j], users[k, j], mean_bps[t])
                width[t, i, j] = min(min(first, second), forwarding[k])
                late[t, i, j] = latency[t, i, k] + latency[t, k, j]


@njit(cache=True, error_model="numpy")
def _left(whole_bps, users, mean_bps):  # type: ignore[no-untyped-def]
    return max(whole_bps / users, whole_bps - (users - 1.0) * mean_bps)
