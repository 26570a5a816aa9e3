"""Time for the clairvoyant bound: slots of constant links, rates of plans in them, and least moving times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from twin.estimate.link_state_times import States, iteration_ns, per_second, route_bps
from policy.control.relay_links import ENDLESS_BITS, Relays
from twin.core.domain import Cluster
from twin.estimate.estimator import Estimator
from twin.costs.migration import holders
from twin.core.plan import Plan
from twin.traces.wan_trace import WanTrace

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Route = tuple[tuple[int, int], ...]

MOST_SLOTS = 20_000
"""Slots that a window is split into at most beyond its own link changes and decision times."""
BLOCKS = 96
"""Stretches of the window with one table of least transfer times each."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """S slots with constant links.

    `edges_s` (S + 1,) are times in seconds; `states` the T link states between changes, `state` (S,) the
    index of the slot's one.
    """

    edges_s: Float
    states: States
    state: Int

    @property
    def slots(self) -> int:
        """S."""
        return len(self.state)

    @property
    def lengths_s(self) -> Float:
        """Seconds of each slot (S,)."""
        return np.diff(self.edges_s)

    def rate(self, estimator: Estimator, plan: Plan) -> Float:
        """Iterations per second of `plan` in every slot (S,), weighed by the tokens that they are worth."""
        worth = estimator.tokens(plan) / estimator.tokens_per_iteration
        return worth * per_second(iteration_ns(estimator, plan, self.states))[self.state]


def grid(wan: WanTrace, decision_times_ns: Sequence[int], restart_s: float) -> Grid:
    """Split the window at every link change and decision, and further until no slot is longer than a
    restart.
    """
    changes = wan.breakpoints()
    start, end = wan.start_ns, wan.end_ns
    shorter = int(restart_s * NS_PER_S) - 10  # so that rounding leaves no slot longer than a restart
    longest = max(shorter, (end - start) // MOST_SLOTS, 1)
    inside = [t for t in decision_times_ns if start < t < end]
    coarse = np.unique(np.concatenate([changes, np.array([*inside, end], dtype=np.int64)]))
    pieces = [
        np.linspace(a, b, -(-(b - a) // longest), endpoint=False).round().astype(np.int64)
        for a, b in zip(coarse[:-1].tolist(), coarse[1:].tolist(), strict=True)
    ]
    edges = np.concatenate([*pieces, [end]])
    states = [wan.at(int(t)) for t in changes]
    index = np.searchsorted(changes, edges[:-1], side="right") - 1
    return Grid((edges - start) / NS_PER_S, States.of(states), index)


def optimistic(made: Grid, groups: Int, count: int) -> States:
    """The best that each link ever has (largest bandwidth, smallest latency) in each of `count` groups of
    slots.
    """
    size = made.states.bandwidth_bps.shape[1]
    bandwidth = np.zeros((count, size, size))
    latency = np.full((count, size, size), np.inf)
    np.maximum.at(bandwidth, groups, made.states.bandwidth_bps[made.state])
    np.minimum.at(latency, groups, made.states.latency_s[made.state])
    return States(bandwidth, latency)


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """Least seconds of the transfers between P plans, by when they start.

    `block` (S,): the stretch of each slot. From plan p to q the transfers are `entry[start[p * P + q]:
    start[p * P + q + 1]]`, each a column of `table` (G, E): least seconds of so much over one link when it
    starts in a stretch. Over tens of domains most pairs of plans use few of the links.
    """

    block: Int
    start: Int
    entry: Int
    table: Float


def moves(estimator: Estimator, plans: Sequence[Plan], made: Grid) -> Moves:
    """Transfer times of every pair of plans from below: bytes over the best bandwidth of the stretches
    touched.

    With R seconds after the stretch in which a transfer starts, it either takes R or ends within them, at no
    more than the best bandwidth there: its time is at least max over R of min(R, bits / best bandwidth until
    then). Resharding inside a domain is taken as free.
    """
    size = estimator.cluster.size
    held = [[[owner[0] for owner in layer] for layer in holders(plan)] for plan in plans]
    first = np.array([[domains[0] for domains in layers] for layers in held])
    has = np.array([[[k in domains for k in range(size)] for domains in layers] for layers in held])
    weight = np.array([layer.parameters for layer in estimator.job.model.layers()], dtype=np.float64)
    start, link, parameters = _sent(first, has, weight)
    distinct, entry = np.unique(np.stack([link, np.round(parameters)]), axis=1, return_inverse=True)
    bits = distinct[1] * estimator.job.bytes_per_moved_parameter * BITS_PER_BYTE
    table = np.zeros((BLOCKS, distinct.shape[1]))
    relayed = replace(made, states=fastest(estimator.cluster, made.states))
    for pair in np.unique(distinct[0]).astype(np.int64).tolist():
        i, j = divmod(pair, size)
        own = distinct[0] == pair
        longer = {plan.route(i, j) for plan in plans if len(plan.route(i, j)) > 2}
        ways = [(relayed, ((i, j),)), *((made, way) for way in longer)]
        table[:, own] = _least_seconds(estimator.cluster, ways, bits[own])
    return Moves(_blocks(made)[0], start, entry.reshape(-1), table)


@njit(cache=True)
def _sent(first, has, weight):  # type: ignore[no-untyped-def]
    """Parameters that go over each link from plan to plan: where the entries of a pair of plans start, and
    link (source * K + target) and parameters of each."""
    plans, layers, size = has.shape
    start = np.zeros(plans * plans + 1, np.int64)
    amount, touched = np.zeros(size * size), np.zeros(size * size, np.int64)
    link, parameters = np.zeros(1, np.int64), np.zeros(1)
    for fill in range(2):
        at = 0
        for p in range(plans):
            for q in range(plans):
                count = 0
                for n in range(layers):
                    for j in range(size):
                        if has[q, n, j] and not has[p, n, j]:
                            pair = first[p, n] * size + j
                            if amount[pair] == 0.0:
                                touched[count] = pair
                                count += 1
                            amount[pair] += weight[n]
                for k in range(count):
                    if fill:
                        link[at], parameters[at] = touched[k], amount[touched[k]]
                    amount[touched[k]] = 0.0
                    at += 1
                start[p * plans + q + 1] = at
        if not fill:
            link, parameters = np.zeros(at, np.int64), np.zeros(at)
    return start, link, parameters


def _blocks(made: Grid) -> tuple[Int, Int]:
    """First and last of the `BLOCKS` equal stretches of the window that each slot touches (S,)."""
    scaled = made.edges_s / made.edges_s[-1] * BLOCKS
    first = np.minimum(np.floor(scaled[:-1]), BLOCKS - 1).astype(np.int64)
    return first, np.maximum(first, np.ceil(scaled[1:]).astype(np.int64) - 1)


def fastest(cluster: Cluster, states: States) -> States:
    """The most bandwidth and the least latency that each pair has directly or over any one relay."""
    widest, _ = Relays(cluster, ENDLESS_BITS, share=1.0).ways(states)
    latency = np.array(states.latency_s)
    for k in range(cluster.size):
        over = states.latency_s[:, :, k, None] + states.latency_s[:, None, k, :]
        np.minimum(latency, over, out=latency)
    return States(widest.bandwidth_bps, latency)


def _least_seconds(cluster: Cluster, ways: Sequence[tuple[Grid, Route]], bits: Float) -> Float:
    """(G, V) least seconds of V transfers that start in a stretch, over the best of the ways, each under the
    links of its grid."""
    table, made = np.zeros((BLOCKS, len(bits))), ways[0][0]
    block_s = float(made.edges_s[-1]) / BLOCKS
    first, last = _blocks(made)
    latency = min(sum(float(of.states.latency_s[:, i, j].min()) for i, j in way) for of, way in ways)
    bandwidth = np.maximum.reduce([route_bps(cluster, of.states, way) for of, way in ways])[made.state]
    best = np.zeros(BLOCKS)
    for offset in range(int((last - first).max()) + 1):
        np.maximum.at(best, np.minimum(first + offset, last), bandwidth)
    for g in range(BLOCKS):
        reach = np.maximum.accumulate(best[g:])
        within = np.append(np.arange(1, len(reach)) * block_s, np.inf)  # the last one is never left
        ahead = np.append(reach[1:], reach[-1])
        with np.errstate(divide="ignore"):
            needed = bits[:, None] / ahead
        table[g] = np.minimum(within, needed).max(axis=1) + latency
    return table
