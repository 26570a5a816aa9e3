"""`atlas`: Atlas's selection of data centres; stages fill the largest domains first.

Palak et al. 2024 ("Improving training time and GPU utilization in geo-distributed language model training"),
their algorithm for choosing data centres, every candidate timed by the twin. tp fills a node. Two parts of
Atlas are in the twin already: several TCP connections per link are `wan.streams` of the scenario, and the dp
pipelines share a link at dp A / B, which equals its temporal sharing (one pipeline after the other at full
bandwidth) for the pipeline as a whole.
"""

from collections.abc import Iterator, Sequence

from policy.kit.even_stages import ClosestFit, domains_with_gpus, even_stage_plan, tensor_widths
from policy.kit.planner_base import Planner, fastest
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator


class Atlas(Planner):
    """Chooses data centres once, largest first, and again only when the plan cannot go on."""

    name = "atlas"

    def plans(self, view: View) -> list[Plan]:
        """Returns every depth, micro-batch and dp that fits, the fastest first."""
        closest = ClosestFit(self.estimator)
        found = [p for p in candidates(self.estimator, view.free_gpus) if closest.fits(p, view.free_gpus)]
        if not found:
            raise closest.error("Atlas's data-centre selection", view.free_gpus)
        return fastest(self.estimator, view, found)


def candidates(estimator: Estimator, free_gpus: Sequence[int]) -> Iterator[Plan]:
    """Yields plans of all depths P, micro-batches and pipelines D, domains filled greedily."""
    job, domains = estimator.job, estimator.cluster.domains
    order = sorted(domains_with_gpus(estimator, free_gpus), key=lambda k: (-free_gpus[k], k))
    tps = [tensor_widths(estimator, domains[k])[-1] for k in order]
    for dp in (d for d in range(1, job.global_batch + 1) if job.global_batch % d == 0):
        available = [free_gpus[k] // (tp * dp) for k, tp in zip(order, tps, strict=True)]
        for depth in range(1, min(sum(available), job.model.blocks) + 1):
            stages = greedy_fill(available, depth)
            for micro_batch in job.micro_batches_allowed:
                plan = even_stage_plan(estimator, order, stages, dp, tps, micro_batch)
                if plan is not None:
                    yield plan


def greedy_fill(available: Sequence[int], depth: int) -> list[int]:
    """Returns the stages of each domain when `depth` stages fill them in order, at most `available` in
    each."""
    left, stages = depth, []
    for most in available:
        stages.append(min(left, most))
        left -= stages[-1]
    return stages
