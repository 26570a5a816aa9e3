"""Iteration times of plans with relay routes, whose messages may share links."""

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.costs.wan_traffic import crossings, iteration_bytes
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns, per_second, route_bps

Float = NDArray[np.float64]


def times_ns(
    estimator: Estimator, plan: Plan, states: States, slowdown: Float | None = None
) -> NDArray[np.int64]:
    """Returns the iteration time in T states (T,) of a pipeline whose messages share links.

    As in `twin.engines.kernel_engine`: on a shared link a flow gets the bandwidth that the other flows of
    the plan, each sending its mean traffic, leave, and at least an even share. Without shared links it is
    `twin.estimation.link_state_times.iteration_ns`. Not modelled: bandwidth that a flow leaves because
    another link limits it, and egress limits of domains shared by several flows.
    """
    if not plan.routes:
        return iteration_ns(estimator, plan, states, slowdown)
    direct, pairs = replace(plan, routes=()), crossings(estimator.job, plan)
    routes = [plan.route(*pair) for pair in pairs]
    bandwidth, latency = states.bandwidth_bps.copy(), np.array(states.latency_s, dtype=np.float64)
    for (i, j), route in zip(pairs, routes, strict=True):
        latency[:, i, j] = sum(states.latency_s[:, a, b] for a, b in route)
        bandwidth[:, i, j] = route_bps(estimator.cluster, states, route)
    alone = iteration_ns(estimator, direct, States(bandwidth, latency), slowdown)
    users = Counter(link for route in routes for link in route)
    if max(users.values(), default=0) < 2:
        return alone
    mean_bps = iteration_bytes(estimator.job, plan) * BITS_PER_BYTE * per_second(alone)
    for (i, j), route in zip(pairs, routes, strict=True):
        for a, b in route:
            whole, others = states.bandwidth_bps[:, a, b], users[a, b] - 1
            left = np.maximum(whole / (others + 1), whole - others * mean_bps)
            bandwidth[:, i, j] = np.minimum(bandwidth[:, i, j], left)
    return iteration_ns(estimator, direct, States(bandwidth, latency), slowdown)


def time_ns(estimator: Estimator, plan: Plan, links: LinkState, slowdown: Float | None = None) -> int:
    """Returns `times_ns` under one link state; the Estimator's time for a plan without relays."""
    if not plan.routes:
        return estimator.iter_ns(plan, links, slowdown)
    return int(times_ns(estimator, plan, States.of([links]), slowdown)[0])
