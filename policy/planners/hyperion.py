"""`hyperion`: Hyperion-style splitting of consecutive layers over tiers with the least bottleneck.

Hyperion is published for pipelined inference over tiers of devices. Its first stage, HypSplit-DP, searches
the least bottleneck theta by bisection; a dynamic program decides whether the layers fit into the tiers in
order with no tier above theta and within memory. Adapted to training: tiers are domains, a layer costs its
forward and backward, and a link counts in both directions. Its second stage routes requests to the least
loaded node; in training all GPUs of a stage work on every micro-batch, so there is no such choice. Sizes
inside a domain, which Hyperion takes as given, are Megatron's.

Both variants split by theta. `hyperion` ranks the splits of all orders and sizes by the twin's estimate.
`hyperion-native` takes for each order Megatron's first size that fits, and the order with the least objective
of the paper, the slowest tier once for each of the m micro-batches of an iteration, plus the links:

    m theta + sum over boundaries (2 L + dp A / B there + dp A / B back)
"""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import transmission_s
from policy.kit.even_stages import ClosestFit, domains_with_gpus, micro_batch_sizes
from policy.kit.planner_base import Planner, fastest
from policy.kit.stage_cost_tables import DomainStages, domain_stages
from policy.planners.megatron import levels
from policy.search.plan_shapes import orders
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator

ENUMERATE_UP_TO = 4
"""Domains up to which every order of every subset is tried; with more, index order only."""


class Hyperion(Planner):
    """Ranks Hyperion's splits by the twin's estimate; planned once."""

    name = "hyperion"

    def plans(self, view: View) -> list[Plan]:
        """Returns the split of each order and size, the fastest by the twin's estimate first."""
        return fastest(self.estimator, view, [plan for every in self._fitting(view) for _, plan in every])

    def _fitting(self, view: View, sizes: int | None = None) -> list[list[tuple[float, Plan]]]:
        """Returns for each order its legal splits with their objective, at most `sizes`."""
        closest, found = ClosestFit(self.estimator), []
        for order in tier_orders(domains_with_gpus(self.estimator, view.free_gpus)):
            legal = (entry for entry in self._sized(view, order) if closest.fits(entry[1], view.free_gpus))
            found.append(list(islice(legal, sizes)))
        if not any(found):
            raise closest.error("Hyperion's split", view.free_gpus)
        return found

    def _sized(self, view: View, order: tuple[int, ...]) -> Iterator[tuple[float, Plan]]:
        """Yields the splits of one order under Megatron's sizes, in Megatron's order."""
        job = self.estimator.job
        points = range(self.estimator.n_layers + 1)
        for dp, tps, stages in levels(self.estimator, order, view.free_gpus):
            for micro_batch in micro_batch_sizes(self.estimator, dp, sum(stages)):
                count = job.micro_batches(dp, micro_batch)
                assert count is not None
                tiers = [
                    domain_stages(
                        self.estimator, k, dp, tp, depth, micro_batch, count, points, float(view.slowdown[k])
                    )
                    for k, tp, depth in zip(order, tps, stages, strict=True)
                ]
                split = least_bottleneck(tiers)
                if split is not None:
                    bottleneck_s, cuts = split
                    sizes = list(zip(tps, stages, strict=True))
                    layers = [b - a for a, b in pairwise(cuts)]
                    plan = self.estimator.make(order, layers, dp, sizes, micro_batch)
                    yield count * bottleneck_s + crossings_s(self.estimator, view, plan), plan


class HyperionNative(Hyperion):
    """Takes Megatron's first size that fits, and the order with the least of Hyperion's own objective."""

    name = "hyperion-native"

    def plans(self, view: View) -> list[Plan]:
        """Returns for each order its split, the one with the least objective first."""
        found = [entry for every in self._fitting(view, sizes=1) for entry in every]
        return [plan for _, plan in sorted(found, key=lambda entry: entry[0])]


def tier_orders(domains: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the orders of tiers that are tried."""
    return list(orders(tuple(domains))) if len(domains) <= ENUMERATE_UP_TO else [tuple(domains)]


def crossings_s(estimator: Estimator, view: View, plan: Plan) -> float:
    """Returns the sum over the boundaries between domains of L + dp A/B in both directions."""
    links = view.forecast.links()
    size = plan.dp * estimator.job.message_bytes(plan.micro_batch)
    total = 0.0
    for a, b in pairwise(plan.order):
        for pair in ((a, b), (b, a)):
            bps = float(links.bandwidth_bps[pair])
            total += float("inf") if bps <= 0 else transmission_s(size, bps) + float(links.latency_s[pair])
    return total


def least_bottleneck(tiers: Sequence[DomainStages]) -> tuple[float, tuple[int, ...]] | None:
    """Returns the least theta, and cuts with which no tier is slower (HypSplit-DP); None where memory never
    suffices.

    Theta is searched among the times that tiers can have, so the result is exact.
    """
    behind = [sum(tier.stages for tier in tiers[n + 1 :]) for n in range(len(tiers))]
    times = [
        np.where(tier.successors >= after, tier.slowest, np.inf)
        for tier, after in zip(tiers, behind, strict=True)
    ]
    thetas = np.unique(np.concatenate([t[np.isfinite(t)] for t in times]))
    low, high = 0, len(thetas)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _split(times, thetas[middle]) else (middle + 1, high)
    cuts = _split(times, thetas[low]) if low < len(thetas) else None
    return None if cuts is None else (float(thetas[low]), cuts)


def _split(times: Sequence[NDArray[np.float64]], theta: float) -> tuple[int, ...] | None:
    """Returns cuts with every tier within theta, or None, from the layers that the first tiers can hold."""
    reached: list[NDArray[np.bool_]] = [np.arange(len(times[0])) == 0]
    for time in times:
        reached.append(np.any(reached[-1][:, None] & (time <= theta), axis=0))
    if not reached[-1][-1]:
        return None
    cuts = [len(reached[0]) - 1]
    for before, time in zip(reached[-2::-1], reversed(times), strict=True):
        cuts.append(int(np.nonzero(before & (time[:, cuts[-1]] <= theta))[0][0]))
    return tuple(reversed(cuts))
