"""The window of the clairvoyant bound in slots of constant links: rates of plans, least migration times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from policy.control.relay_links import UNLIMITED_BITS, RelayPaths
from twin.core.domain import Cluster
from twin.core.plan import Plan
from twin.costs.migration import holders
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns, per_second, route_bps
from twin.traces.wan_trace import WanTrace

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Route = tuple[tuple[int, int], ...]

MOST_SLOTS = 20_000
"""Most slots of a window, apart from those that its link changes and decision times make."""
BLOCKS = 96
"""Blocks of the window with one table of least transfer times each."""


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """S slots with constant links.

    `edges_s` (S + 1,) are times in seconds; `states` the T link states between changes, `state` (S,) the
    index of each slot's state.
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
        """Returns iterations per second of `plan` in every slot (S,), weighted by their tokens."""
        weight = estimator.tokens(plan) / estimator.tokens_per_iteration
        return weight * per_second(iteration_ns(estimator, plan, self.states))[self.state]


def grid(wan: WanTrace, decision_times_ns: Sequence[int], restart_s: float) -> Grid:
    """Returns the window split at every link change and decision, and further until no slot is longer than a
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


def optimistic(window: Grid, groups: Int, count: int) -> States:
    """Returns the largest bandwidth and smallest latency of each link in each of `count` groups of slots."""
    size = window.states.bandwidth_bps.shape[1]
    bandwidth = np.zeros((count, size, size))
    latency = np.full((count, size, size), np.inf)
    np.maximum.at(bandwidth, groups, window.states.bandwidth_bps[window.state])
    np.minimum.at(latency, groups, window.states.latency_s[window.state])
    return States(bandwidth, latency)


class TransferTimes(NamedTuple):
    """Least seconds of the transfers between P plans, by the block in which they start.

    From plan p to q the transfers are `entry[start[p * P + q]:start[p * P + q + 1]]`. (A sparse form: over
    tens of domains most pairs of plans use few of the links.)
    """

    block: Int  # (S,) block of each slot
    start: Int  # (P * P + 1,)
    entry: Int  # columns of `table`
    table: Float  # (G, E) seconds of a distinct transfer, so many bytes over one link, that starts in a block


def transfer_times(estimator: Estimator, plans: Sequence[Plan], window: Grid) -> TransferTimes:
    """Returns lower bounds of the transfer times of every pair of plans.

    A transfer takes R seconds, or ends within R seconds after the block in which it starts, at no more than
    the best bandwidth there: its time is at least max over R of min(R, bits / best bandwidth until then).
    Resharding inside a domain is free.
    """
    size = estimator.cluster.size
    held = [[[owner[0] for owner in layer] for layer in holders(plan)] for plan in plans]
    first = np.array([[domains[0] for domains in layers] for layers in held])
    has = np.array([[[k in domains for k in range(size)] for domains in layers] for layers in held])
    job = estimator.job
    moved = np.array([job.moved_bytes(layer) for layer in job.model.layers()])
    weight = moved / job.bytes_per_moved_parameter
    start, link, parameters = _sent(first, has, weight)
    distinct, entry = np.unique(np.stack([link, np.round(parameters)]), axis=1, return_inverse=True)
    bits = distinct[1] * estimator.job.bytes_per_moved_parameter * BITS_PER_BYTE
    table = np.zeros((BLOCKS, distinct.shape[1]))
    relayed = replace(window, states=best_links(estimator.cluster, window.states))
    for pair in np.unique(distinct[0]).astype(np.int64).tolist():
        i, j = divmod(pair, size)
        own = distinct[0] == pair
        longer = {plan.route(i, j) for plan in plans if len(plan.route(i, j)) > 2}
        routes = [(relayed, ((i, j),)), *((window, route) for route in longer)]
        table[:, own] = _least_seconds(estimator.cluster, routes, bits[own])
    return TransferTimes(_blocks(window)[0], start, entry.reshape(-1), table)


@njit(cache=True)
def _sent(first, has, weight):  # type: ignore[no-untyped-def]
    """Returns the parameters sent over each link between two plans: the first entry of each pair of plans,
    and link (source * K + target) and parameters of each entry."""
    plans, layers, size = has.shape
    start = np.zeros(plans * plans + 1, np.int64)
    amount, touched = np.zeros(size * size), np.zeros(size * size, np.int64)
    link, parameters = np.zeros(1, np.int64), np.zeros(1)
    for fill in range(2):
        entry = 0
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
                        link[entry], parameters[entry] = touched[k], amount[touched[k]]
                    amount[touched[k]] = 0.0
                    entry += 1
                start[p * plans + q + 1] = entry
        if not fill:
            link, parameters = np.zeros(entry, np.int64), np.zeros(entry)
    return start, link, parameters


def _blocks(window: Grid) -> tuple[Int, Int]:
    """Returns the first and the last of the `BLOCKS` equal blocks that each slot touches (S,)."""
    scaled = window.edges_s / window.edges_s[-1] * BLOCKS
    first = np.minimum(np.floor(scaled[:-1]), BLOCKS - 1).astype(np.int64)
    return first, np.maximum(first, np.ceil(scaled[1:]).astype(np.int64) - 1)


def best_links(cluster: Cluster, states: States) -> States:
    """Returns the most bandwidth and the least latency of each pair, directly or over any one relay."""
    widest, _ = RelayPaths(cluster, UNLIMITED_BITS, share=1.0).best_routes(states)
    latency = np.array(states.latency_s)
    for k in range(cluster.size):
        relayed = states.latency_s[:, :, k, None] + states.latency_s[:, None, k, :]
        np.minimum(latency, relayed, out=latency)
    return States(widest.bandwidth_bps, latency)


def _least_seconds(cluster: Cluster, routes: Sequence[tuple[Grid, Route]], bits: Float) -> Float:
    """Returns least seconds (G, V) of V transfers that start in a block, over the best of the routes, each
    under the links of its grid."""
    table, window = np.zeros((BLOCKS, len(bits))), routes[0][0]
    block_s = float(window.edges_s[-1]) / BLOCKS
    first, last = _blocks(window)
    latency = min(sum(float(of.states.latency_s[:, i, j].min()) for i, j in route) for of, route in routes)
    bandwidth = np.maximum.reduce([route_bps(cluster, of.states, route) for of, route in routes])[
        window.state
    ]
    best = np.zeros(BLOCKS)
    for offset in range(int((last - first).max()) + 1):
        np.maximum.at(best, np.minimum(first + offset, last), bandwidth)
    for g in range(BLOCKS):
        reach = np.maximum.accumulate(best[g:])
        within = np.append(np.arange(1, len(reach)) * block_s, np.inf)  # the last block never ends
        ahead = np.append(reach[1:], reach[-1])
        with np.errstate(divide="ignore"):
            needed = bits[:, None] / ahead
        table[g] = np.minimum(within, needed).max(axis=1) + latency
    return table
