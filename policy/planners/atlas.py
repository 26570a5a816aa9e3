"""`atlas`: Atlas's choice of data centres; stages dealt out to the largest domains first.

Palak et al. 2024 ("Improving training time and GPU utilization in geo-distributed language model training"),
their algorithm for choosing data centres (recipe 12), every candidate timed by the referee. tp fills a node.
Two parts of Atlas are in the twin already: many TCP connections a link are the data set's streams, and the
dp pipelines share a link in lockstep at dp A / B, which is what its temporal sharing (one pipeline after the
other at full bandwidth) amounts to for the pipeline as a whole.
"""

from collections.abc import Iterator, Sequence

from policy.kit.even_stages import Closest, deal, living, widths
from policy.kit.planner_base import Planner, fastest
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.core.view import View


class Atlas(Planner):
    """Data centres chosen once, largest first; chosen again only when the plan cannot go on."""

    name = "atlas"

    def plans(self, view: View) -> list[Plan]:
        """Every depth, micro-batch and dp that fits, the fastest first."""
        closest = Closest(self.estimator)
        found = [p for p in candidates(self.estimator, view.free_gpus) if closest.fits(p, view.free_gpus)]
        if not found:
            raise closest.error("Atlas's data-centre selection", view.free_gpus)
        return fastest(self.estimator, view, found)


def candidates(estimator: Estimator, free_gpus: Sequence[int]) -> Iterator[Plan]:
    """Plans of all depths P, micro-batches and pipelines D, stages dealt out greedily."""
    job, domains = estimator.job, estimator.cluster.domains
    order = sorted(living(estimator, free_gpus), key=lambda k: (-free_gpus[k], k))
    tps = [widths(estimator, domains[k])[-1] for k in order]
    for dp in (d for d in range(1, job.global_batch + 1) if job.global_batch % d == 0):
        room = [free_gpus[k] // (tp * dp) for k, tp in zip(order, tps, strict=True)]
        for depth in range(1, min(sum(room), job.model.blocks) + 1):
            stages = greedy_fill(room, depth)
            for micro_batch in job.micro_batches_allowed:
                plan = deal(estimator, order, stages, dp, tps, micro_batch)
                if plan is not None:
                    yield plan


def greedy_fill(room: Sequence[int], depth: int) -> list[int]:
    """Stages that each domain gets when `depth` of them are dealt out in order, `room` at most in each."""
    left, stages = depth, []
    for most in room:
        stages.append(min(left, most))
        left -= stages[-1]
    return stages
