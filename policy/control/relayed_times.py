"""How fast plans are whose messages take relays: on the links that they share exactly as the world shares
them."""

from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE
from twin.estimate.link_state_times import States, iteration_ns, per_second, route_bps
from twin.core.domain import LinkState
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.costs.wan_traffic import crossings, iteration_bytes

Float = NDArray[np.float64]


def times_ns(
    estimator: Estimator, plan: Plan, states: States, slowdown: Float | None = None
) -> NDArray[np.int64]:
    """Iteration time in T states (T,) of a pipeline whose messages share the links that they meet on.

    As in `twin.rate_training`: a flow that meets others of the plan gets what they leave, each sending its
    mean traffic, and at least an even share. Of plans whose messages do not meet it is that of
    `policy.rates.iteration_ns`. Where a flow that others meet is held back elsewhere they get what it leaves,
    which is not counted here, nor are limits of domains that several flows share.
    """
    if not plan.routes:
        return iteration_ns(estimator, plan, states, slowdown)
    direct, pairs = replace(plan, routes=()), crossings(estimator.job, plan)
    ways = [plan.route(*pair) for pair in pairs]
    bandwidth, latency = states.bandwidth_bps.copy(), np.array(states.latency_s, dtype=np.float64)
    for (i, j), way in zip(pairs, ways, strict=True):
        latency[:, i, j] = sum(states.latency_s[:, a, b] for a, b in way)
        bandwidth[:, i, j] = route_bps(estimator.cluster, states, way)
    alone = iteration_ns(estimator, direct, States(bandwidth, latency), slowdown)
    users = Counter(link for way in ways for link in way)
    if max(users.values(), default=0) < 2:
        return alone
    mean_bps = iteration_bytes(estimator.job, plan) * BITS_PER_BYTE * per_second(alone)
    for (i, j), way in zip(pairs, ways, strict=True):
        for a, b in way:
            whole, others = states.bandwidth_bps[:, a, b], users[a, b] - 1
            left = np.maximum(whole / (others + 1), whole - others * mean_bps)
            bandwidth[:, i, j] = np.minimum(bandwidth[:, i, j], left)
    return iteration_ns(estimator, direct, States(bandwidth, latency), slowdown)


def time_ns(estimator: Estimator, plan: Plan, links: LinkState, slowdown: Float | None = None) -> int:
    """`times_ns` under one link state; that of the estimator where no routes are given."""
    if not plan.routes:
        return estimator.iter_ns(plan, links, slowdown)
    return int(times_ns(estimator, plan, States.of([links]), slowdown)[0])
