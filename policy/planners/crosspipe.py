"""`crosspipe`: CrossPipe-style; the best schedule for a given placement of stages, or replicas across sites.

After CrossPipe (Chen et al. 2025): the placement is given (Megatron's, in domain order), and the schedule of
micro-batches over links with latency and bandwidth is chosen, within the memory of the GPUs; the alternative
is a replica in each site with gradients exchanged in every iteration, 2 alpha + 2 N beta. The faster one is
taken. Tried are all schedules of a plan with this placement: one-forward-one-backward and CrossPipe's greedy
order with fewer or more activations stored before a wide-area boundary, GPipe's order, each with
micro-batches of every allowed size (its sub-blocks). Interleaving needs another placement, and the waves of
the paper are not among the twin's schedules. The twin's estimate stands for the paper's simulation. It plans
again when the class of a link in use changes (its bandwidth, to the nearest power of two), as the paper does
for a new profile of the network.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ingest.core.errors import InfeasibleError
from policy.core.protocol import Context
from policy.kit.even_stages import ClosestFit, domains_with_gpus, micro_batch_sizes
from policy.kit.planner_base import Planner, fastest
from policy.kit.replica_plans import replica_plan
from policy.planners.megatron import megatron_plan
from twin.core.domain import LinkState
from twin.core.plan import Plan, Schedule, Sync
from twin.core.view import View
from twin.costs import replica_sync

DEEPER = (0, 1, 2, 3, 4, 6, 8, 12, 16)
"""Extra warm-up depths that are tried."""
DEEPENED: tuple[Schedule, ...] = ("1f1b", "crosspipe")
"""Schedules that are tried with each of them."""
GRADIENTS = Sync(1, 4.0)
Class = tuple[int, ...]


class CrossPipe(Planner):
    """Takes the best schedule of a fixed placement; plans again when a link in use changes class."""

    name = "crosspipe"

    def reset(self, context: Context) -> None:
        """Starts a run."""
        super().reset(context)
        self._planned_for: Class = ()

    def due(self, view: View) -> str:
        """Returns a reason when the plan cannot go on, or a link that it uses has changed class since it was
        made."""
        assert view.plan is not None
        changed = link_class(view.plan, view.forecast.links()) != self._planned_for
        return super().due(view) or ("the links have changed class" if changed else "")

    def plans(self, view: View) -> list[Plan]:
        """Returns pipelines under every schedule and the data-parallel alternative, the fastest first."""
        closest = ClosestFit(self.estimator)
        found = [plan for plan in self._tried(view) if closest.fits(plan, view.free_gpus)]
        if not found:
            raise closest.error("CrossPipe", view.free_gpus)
        ranked = fastest(self.estimator, view, found)
        self._planned_for = link_class(ranked[0], view.forecast.links())
        return ranked

    def _tried(self, view: View) -> Iterator[Plan]:
        order = domains_with_gpus(self.estimator, view.free_gpus)
        try:
            placed = megatron_plan(self.estimator, order, view.free_gpus)
        except InfeasibleError:
            placed = None
        if placed is not None:
            for micro_batch in micro_batch_sizes(self.estimator, placed.dp, placed.stages):
                count = self.estimator.job.micro_batches(placed.dp, micro_batch)
                assert count is not None
                yield from _schedules(replace(placed, micro_batch=micro_batch, micro_batches=count))
        yield from self._replicas(order, view)

    def _replicas(self, order: list[int], view: View) -> Iterator[Plan]:
        """Yields a replica in every site, each of the size that Megatron's rule gives the smallest."""
        if len(order) < 2:
            return
        smallest = min(order, key=lambda k: (view.free_gpus[k], k))
        try:
            one = megatron_plan(self.estimator, [smallest], view.free_gpus)
        except InfeasibleError:
            return
        inner = [(one.shares[0].tp, one.shares[0].pp)] * len(order)
        for micro_batch in micro_batch_sizes(self.estimator, one.dp, one.stages):
            plan = replica_plan(self.estimator, order, one.dp, inner, micro_batch, GRADIENTS)
            if plan is not None:
                yield plan


def _schedules(placed: Plan) -> Iterator[Plan]:
    """Yields the plan under every schedule of its placement; warm-up depth matters to all but GPipe's."""
    yield replace(placed, schedule="gpipe", extra_warmup=0)
    for schedule in DEEPENED:
        for extra in DEEPER if len(placed.shares) > 1 else DEEPER[:1]:
            yield replace(placed, schedule=schedule, extra_warmup=extra)


def link_class(plan: Plan, links: LinkState) -> Class:
    """Returns the binary logarithm of the bandwidth of each link in use, rounded; -1: dead."""
    if plan.sync is None:
        used = [pair for a, b in pairwise(plan.order) for pair in ((a, b), (b, a))]
    else:
        used = list(replica_sync.ring(plan))
    rates = [float(links.bandwidth_bps[pair]) for pair in used]
    return tuple(round(float(np.log2(rate))) if rate > 0 else -1 for rate in rates)
