"""How fast a plan is whose relays are turned at every instant: what the clairvoyant bound counts it for.

In each link state every message takes the link or the one relay by which it arrives first, once looking at
the pair alone and once beside the other messages of the plan; the faster of the two counts. Messages that
meet on a link share it, as in `policy.routed.times_ns`.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE
from twin.estimate.link_state_times import States, iteration_ns, per_second
from policy.control.relay_links import add_users, message_bits, soonest, through_bps
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.costs.wan_traffic import crossings, iteration_bytes

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ROUNDS = 2
"""Times that every message chooses again beside the others."""


def turned_ns(estimator: Estimator, plan: Plan, states: States) -> Int | None:
    """Iteration time of a pipeline with direct routes in each state (T,), its relays turned; None where links
    are the best way for every message."""
    pairs = crossings(estimator.job, plan)
    source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
    bits, sent = message_bits(estimator.job, plan), iteration_bytes(estimator.job, plan) * BITS_PER_BYTE
    bandwidth, latency = (np.ascontiguousarray(x) for x in (states.bandwidth_bps, states.latency_s))
    through = through_bps(estimator.cluster)
    best: Int | None = None
    for rounds in (0, ROUNDS):
        via = np.full((len(states), len(pairs)), -1, dtype=np.int64)
        _assign(bandwidth, latency, through, bits, source, target, rounds, via)
        if (via < 0).all():
            continue

        def timed(mean_bps: Float, via: Int = via) -> Int:
            width, late = bandwidth.copy(), latency.copy()
            _find(bandwidth, latency, through, source, target, via, mean_bps, width, late)
            return iteration_ns(estimator, plan, States(width, late))

        alone = timed(np.zeros(len(states)))
        found = timed(sent * per_second(alone))
        best = found if best is None else np.minimum(best, found)
    return best


@njit(cache=True, error_model="numpy")
def _assign(  # type: ignore[no-untyped-def]
    bandwidth, latency, through, bits, source, target, rounds, via
):
    """Each flow's relay in each state into `via` (T, F); without `rounds` the best for its pair alone."""
    for t in range(bandwidth.shape[0]):
        for _ in range(max(rounds, 1)):
            now, late = bandwidth[t : t + 1], latency[t : t + 1]
            soonest(now, late, through, bits, source, target, rounds > 0, 0.0, via[t])


@njit(cache=True, error_model="numpy")
def _find(  # type: ignore[no-untyped-def]
    bandwidth, latency, through, source, target, via, mean_bps, width, late
):
    """Replace the entries of the flows' pairs in `width` and `late` (T, K, K) by what their ways give, each
    leaving to others on a link what these send on average, and taking an even share at least."""
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
                width[t, i, j] = min(min(first, second), through[k])
                late[t, i, j] = latency[t, i, k] + latency[t, k, j]


@njit(cache=True, error_model="numpy")
def _left(whole, users, mean_bps):  # type: ignore[no-untyped-def]
    return max(whole / users, whole - (users - 1.0) * mean_bps)
