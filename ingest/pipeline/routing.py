"""Routes of traffic in a network: shortest paths by inverse capacity, one path or all equal ones (ECMP).

Inverse capacity is the weight that operators set when they do not engineer traffic (Fortz and Thorup,
Internet Traffic Engineering by Optimizing OSPF Weights, INFOCOM 2000, call it InvCap).
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError
from ingest.parsing.dataset import Routing

Link = tuple[str, str]
_WEIGHT = 10**18
"""Weights are whole numbers, so that equal paths are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Shares of the traffic of each ordered pair of nodes on each link.

    share: (pairs, links), 0 to 1; `capacity_bps`: (links,).
    """

    pairs: tuple[Link, ...]
    links: tuple[Link, ...]
    capacity_bps: NDArray[np.float64]
    share: NDArray[np.float64]

    def load_bps(self, offered_bps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Load of every link, (times, links), from what each pair offers, (times, pairs)."""
        return offered_bps @ self.share

    def available_bps(self, load_bps: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rate that still fits between each pair, (times, pairs), along its own shares of the links.

        The largest x with load + x * share <= capacity on every link of the pair; 0 where one is overloaded.
        """
        left = np.maximum(self.capacity_bps - load_bps, 0.0)
        columns = [np.min(left[:, used] / row[used], axis=1) for row in self.share for used in (row > 0,)]
        return np.stack(columns, axis=1)


def routes(capacity_bps: Mapping[Link, float], routing: Routing) -> Routes:
    """Routes between all nodes of a network of directed links.

    Of equal paths `shortest` takes the one over the neighbour that comes first in order, `ecmp` splits evenly
    at every node.

    Raises:
        InputError: a node cannot be reached from another, or a link has no capacity.
    """
    links = tuple(sorted(capacity_bps))
    weights = {link: _weight(link, capacity_bps[link]) for link in links}
    nodes = sorted({node for link in links for node in link})
    at = {link: n for n, link in enumerate(links)}
    pairs, rows = [], []
    for dst in nodes:
        distance = _distances(weights, dst)
        onward = {node: _onward(weights, distance, node, routing) for node in distance if node != dst}
        for src in nodes:
            if src == dst:
                continue
            if src not in distance:
                raise InputError(f"no path from {src} to {dst} in the topology; leave a node out by `nodes`")
            pairs.append((src, dst))
            rows.append(_shares(src, distance, onward, at))
    order = sorted(range(len(pairs)), key=pairs.__getitem__)
    capacities = np.array([capacity_bps[link] for link in links])
    return Routes(tuple(pairs[n] for n in order), links, capacities, np.array([rows[n] for n in order]))


def _weight(link: Link, capacity_bps: float) -> int:
    if not capacity_bps > 0:
        raise InputError(f"the link from {link[0]} to {link[1]} has no capacity")
    return round(_WEIGHT / capacity_bps)


def _distances(weights: Mapping[Link, int], dst: str) -> dict[str, int]:
    """Length of the shortest path from every node to `dst` (Dijkstra, backwards)."""
    into: dict[str, list[tuple[str, int]]] = {}
    for (a, b), weight in weights.items():
        into.setdefault(b, []).append((a, weight))
    found: dict[str, int] = {}
    queue = [(0, dst)]
    while queue:
        length, node = heapq.heappop(queue)
        if node not in found:
            found[node] = length
            for before, weight in into.get(node, ()):
                heapq.heappush(queue, (length + weight, before))
    return found


def _onward(
    weights: Mapping[Link, int], distance: Mapping[str, int], node: str, routing: Routing
) -> list[str]:
    """Neighbours of `node` on a shortest path, in order; one of them unless traffic is split."""
    here = distance[node]
    best = [b for (a, b), w in weights.items() if a == node and distance.get(b, -1) + w == here]
    return best if routing == "ecmp" else best[:1]


def _shares(
    src: str, distance: Mapping[str, int], onward: Mapping[str, Sequence[str]], at: Mapping[Link, int]
) -> NDArray[np.float64]:
    """Share of one unit of traffic from `src` on every link: nodes pass it on, the furthest first."""
    row = np.zeros(len(at))
    here = {src: 1.0}
    for node in sorted(distance, key=lambda n: (-distance[n], n)):
        if node not in here or node not in onward:
            continue
        for neighbour in onward[node]:
            part = here[node] / len(onward[node])
            row[at[node, neighbour]] += part
            here[neighbour] = here.get(neighbour, 0.0) + part
    return row
