"""`crosspipe`: CrossPipe-style; for a given map of stages to sites the schedule that suits the links, or
replicas across sites.

After CrossPipe (Chen et al. 2025; recipe 3): the map is given (Megatron's, in domain order), and what is
chosen is how micro-batches flow over links with latency and bandwidth, within the memory that GPUs have; the
alternative is a replica in each site with gradients exchanged in every iteration, 2 alpha + 2 N beta, and the
faster of the two runs. Tried are all schedules that a plan can have on this map: one-forward-one-backward and
CrossPipe's greedy order with less or more activations stored in front of a wide-area boundary, GPipe's order,
each with micro-batches of every allowed size (its sub-blocks). Interleaving needs another map and its waves
are not among the twin's schedules. The referee's times stand for its simulation. Solved again when the class
of a link in use changes (its bandwidth, to the nearest power of two), as the paper does for a new profile of
the network.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import numpy as np

from ingest.core.errors import InfeasibleError
from policy.kit.even_stages import Closest, batches, living
from policy.planners.megatron import sized
from policy.kit.planner_base import Planner, fastest
from policy.core.protocol import Context
from policy.kit.replica_plans import replicated
from twin.costs import replica_sync as replicas
from twin.core.domain import LinkState
from twin.core.plan import Plan, Schedule, Sync
from twin.core.view import View

DEEPER = (0, 1, 2, 3, 4, 6, 8, 12, 16)
"""Extra warm-up depths that are tried."""
GRADIENTS = Sync(1, 4.0)
Class = tuple[int, ...]


class CrossPipe(Planner):
    """The best schedule of a fixed map of stages, solved again for every class of links."""

    name = "crosspipe"

    def reset(self, context: Context) -> None:
        """Start a run."""
        super().reset(context)
        self._solved_for: Class = ()

    def due(self, view: View) -> str:
        """When the plan cannot go on, and when a link that it uses is of another class than when it was
        solved."""
        assert view.plan is not None
        changed = link_class(view.plan, view.forecast.links()) != self._solved_for
        return super().due(view) or ("the links have changed class" if changed else "")

    def plans(self, view: View) -> list[Plan]:
        """Pipelines under every schedule and the data-parallel alternative, the fastest first."""
        closest = Closest(self.estimator)
        found = [plan for plan in self._tried(view) if closest.fits(plan, view.free_gpus)]
        if not found:
            raise closest.error("CrossPipe", view.free_gpus)
        ranked = fastest(self.estimator, view, found)
        self._solved_for = link_class(ranked[0], view.forecast.links())
        return ranked

    def _tried(self, view: View) -> Iterator[Plan]:
        order = living(self.estimator, view.free_gpus)
        try:
            mapped = sized(self.estimator, order, view.free_gpus)
        except InfeasibleError:
            mapped = None
        if mapped is not None:
            for micro_batch in batches(self.estimator, mapped.dp, mapped.stages):
                count = self.estimator.job.micro_batches(mapped.dp, micro_batch)
                assert count is not None
                yield from _schedules(replace(mapped, micro_batch=micro_batch, micro_batches=count))
        yield from self._replicas(order, view)

    def _replicas(self, order: list[int], view: View) -> Iterator[Plan]:
        """A replica in every site, each of the size that Megatron's rule gives the smallest."""
        if len(order) < 2:
            return
        smallest = min(order, key=lambda k: (view.free_gpus[k], k))
        try:
            one = sized(self.estimator, [smallest], view.free_gpus)
        except InfeasibleError:
            return
        inner = [(one.shares[0].tp, one.shares[0].pp)] * len(order)
        for micro_batch in batches(self.estimator, one.dp, one.stages):
            plan = replicated(self.estimator, order, one.dp, inner, micro_batch, GRADIENTS)
            if plan is not None:
                yield plan


def _schedules(mapped: Plan) -> Iterator[Plan]:
    """The plan under every schedule of its map; how much is stored ahead matters to all but GPipe's."""
    for schedule in get_args(Schedule):
        if schedule == "gpipe":
            yield replace(mapped, schedule="gpipe", extra_warmup=0)
        elif schedule != "interleaved":
            for extra in DEEPER if len(mapped.shares) > 1 else DEEPER[:1]:
                yield replace(mapped, schedule=schedule, extra_warmup=extra)


def link_class(plan: Plan, links: LinkState) -> Class:
    """Bandwidth of the links in use to the nearest power of two; -1: dead."""
    if plan.sync is None:
        used = [pair for a, b in pairwise(plan.order) for pair in ((a, b), (b, a))]
    else:
        used = list(replicas.ring(plan))
    rates = [float(links.bandwidth_bps[pair]) for pair in used]
    return tuple(round(float(np.log2(rate))) if rate > 0 else -1 for rate in rates)
