"""Max-min fair rates by water filling (Bertsekas and Gallager, Data Networks, section 6.5.2)."""

from collections.abc import Mapping, Sequence

GREEDY = float("inf")
"""Demand of a flow without a limit of its own."""


def max_min(
    demands_bps: Sequence[float], routes: Sequence[Sequence[int]], capacity_bps: Mapping[int, float]
) -> list[float]:
    """Max-min fair rate of every flow; `routes[f]` lists the resources that flow f occupies, at least one.

    All rates rise together; a flow stops at its demand, or when a resource that it uses is full. No resource
    carries more than its capacity, and no rate can grow unless one that is no larger shrinks.
    """
    rates = [0.0] * len(routes)
    left = {resource: capacity_bps[resource] for route in routes for resource in route}
    rising = list(range(len(routes)))
    while rising:
        users: dict[int, int] = {}
        for flow in rising:
            for resource in routes[flow]:
                users[resource] = users.get(resource, 0) + 1
        fair = {resource: max(0.0, left[resource]) / count for resource, count in users.items()}
        level = min(min(fair.values()), min(demands_bps[flow] for flow in rising))
        still = []
        for flow in rising:
            if demands_bps[flow] <= level or any(fair[resource] <= level for resource in routes[flow]):
                rates[flow] = level
                for resource in routes[flow]:
                    left[resource] -= level
            else:
                still.append(flow)
        rising = still
    return rates
