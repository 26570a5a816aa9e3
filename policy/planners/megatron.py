"""`megatron`: the sizing rule of Megatron-LM's authors, pipeline stages in domain order.

Narayanan et al. 2021 (SC '21, takeaways 1-3): tensor parallelism up to the node and no further, then pipeline
parallelism until the model fits, data parallelism with the remaining GPUs. Here the pipeline follows the
order of the domains, so that only activations cross the wide area and every data-parallel group stays in its
domain. The rule ignores links. Recompute mode and schedule are the job's.
"""

from collections.abc import Iterator, Sequence

from policy.kit.even_stages import (
    ClosestFit,
    domains_with_gpus,
    even_stage_plan,
    micro_batch_sizes,
    tensor_widths,
)
from policy.kit.planner_base import Planner
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator


class Megatron(Planner):
    """Plans once by Megatron's rule, and again only when the plan cannot go on."""

    name = "megatron"

    def plans(self, view: View) -> list[Plan]:
        """Returns the first size of the rule that fits, over all living domains in index order."""
        return [
            megatron_plan(self.estimator, domains_with_gpus(self.estimator, view.free_gpus), view.free_gpus)
        ]


def megatron_plan(estimator: Estimator, order: Sequence[int], free_gpus: Sequence[int]) -> Plan:
    """Returns Megatron's plan over `order`: the first (tp, stages, micro-batch) of `levels` that fits.

    Raises:
        InfeasibleError: none does; the message has the smallest need of memory found.
    """
    closest = ClosestFit(estimator)
    for dp, tps, stages in levels(estimator, order, free_gpus):
        for micro_batch in micro_batch_sizes(estimator, dp, sum(stages)):
            plan = even_stage_plan(estimator, order, stages, dp, tps, micro_batch)
            if plan is not None and closest.fits(plan, free_gpus):
                return plan
    raise closest.error("Megatron's rule", free_gpus)


def levels(
    estimator: Estimator, order: Sequence[int], free_gpus: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Yields (dp, tp per domain, stages per domain) in the order in which the rule tries them.

    tp grows to the width of a node with one stage in the smallest domain, then the stages grow; dp is the
    largest divisor of the batch that leaves enough GPUs. Numbers of stages that divide the blocks come first:
    Megatron needs an explicit split for others.
    """
    found = list(_sizes(estimator, order, free_gpus))
    blocks = estimator.job.model.blocks
    yield from (level for level in found if blocks % sum(level[2]) == 0)
    yield from (level for level in found if blocks % sum(level[2]))


def _sizes(
    estimator: Estimator, order: Sequence[int], free_gpus: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    if not order:
        return
    allowed = [tensor_widths(estimator, estimator.cluster.domains[k]) for k in order]
    widest = max(own[-1] for own in allowed)
    steps = [(2**k, 1) for k in range(widest.bit_length())]
    steps += [(widest, depth) for depth in range(2, estimator.n_layers)]
    for tp, depth in steps:
        tps = tuple(max(w for w in own if w <= tp) for own in allowed)
        most = min(free_gpus[k] // width for k, width in zip(order, tps, strict=True)) // depth
        dp = next((dp for dp in range(most, 0, -1) if estimator.job.global_batch % dp == 0), 0)
        if dp:
            yield dp, tps, tuple(free_gpus[k] // (width * dp) for k, width in zip(order, tps, strict=True))
