"""`megatron-flat`: Megatron's rule on all GPUs as one cluster, ranks in domain order.

The naive use of `policy.planners.megatron`: tensor ranks vary fastest, then data-parallel ranks, then stages,
over the domains in index order, whose boundaries the rule ignores. Its plan is then mapped to the domains:
stages that end where domains end are a pipeline; one stage whose data-parallel group spans domains evenly is
a replica in each, and gradients cross the wide area in fp32 in every iteration. Other layouts have
data-parallel groups that cross domains inside a pipeline, or an optimiser sharded over domains, which no plan
of the twin expresses. Then this policy fails with a message; it does not take the next best plan.
"""

from collections.abc import Sequence
from dataclasses import replace

from ingest.core.errors import InfeasibleError
from policy.kit.even_stages import domains_with_gpus, even_stage_plan
from policy.kit.planner_base import Planner
from policy.kit.replica_plans import replica_plan
from policy.planners.atlas import greedy_fill
from policy.planners.megatron import megatron_plan
from twin.core.domain import Cluster
from twin.core.plan import Plan, Sync
from twin.core.view import View
from twin.estimation.estimator import Estimator


class MegatronFlat(Planner):
    """Maps Megatron's plan for one flat cluster to the domains rank by rank; planned once."""

    name = "megatron-flat"

    def plans(self, view: View) -> list[Plan]:
        """Returns the only plan of the rule.

        Raises:
            InfeasibleError: nothing fits, or no plan of the twin expresses the choice.
        """
        order = domains_with_gpus(self.estimator, view.free_gpus)
        wanted = megatron_plan(
            as_one_domain(self.estimator, order, view.free_gpus), [0], (sum(view.free_gpus),)
        )
        plan = map_to_domains(self.estimator, wanted, order, view.free_gpus)
        crossing = ("data-parallel groups cross domains",)
        problems = crossing if plan is None else self.estimator.problems(plan, view.free_gpus)
        if plan is None or problems:
            raise InfeasibleError(
                f"Megatron on a flat cluster wants {wanted}, which no plan over these domains can say: "
                f"{problems[0]}"
            )
        return [plan]


def as_one_domain(estimator: Estimator, order: Sequence[int], free_gpus: Sequence[int]) -> Estimator:
    """Returns an estimator with all living GPUs in one domain, of the smallest node and memory of all."""
    if not order:
        raise InfeasibleError("no domain has a free GPU; add GPUs to one")
    domains = [estimator.cluster.domains[k] for k in order]
    least = min(domains, key=lambda domain: domain.gpu.memory_bytes)
    node = min(domain.gpus_per_node for domain in domains)
    one = replace(least, name="flat", gpus=sum(free_gpus), gpus_per_node=node)
    return Estimator(
        Cluster((one,), ((0.0,),)), estimator.job, restart_s=estimator.restart_s, compute=estimator.compute
    )


def map_to_domains(
    estimator: Estimator, wanted: Plan, order: Sequence[int], free_gpus: Sequence[int]
) -> Plan | None:
    """Returns the flat plan over the domains in rank order; None where a data-parallel group of a pipeline
    crosses domains.

    A tensor group never crosses: nodes are whole.
    """
    (share,) = wanted.shares
    ranks = [free_gpus[k] // share.tp for k in order]
    stages = greedy_fill([free // wanted.dp for free in ranks], share.pp)
    last = max((n for n, count in enumerate(stages) if count), default=0)
    if sum(stages) == share.pp and all(free % wanted.dp == 0 for free in ranks[:last]):
        return even_stage_plan(
            estimator, order, stages, wanted.dp, [share.tp] * len(order), wanted.micro_batch
        )
    used = [(k, n) for k, n in zip(order, greedy_fill(ranks, wanted.dp), strict=True) if n]
    if share.pp == 1 and len({n for _, n in used}) == 1:
        domains, inner = [k for k, _ in used], [(share.tp, 1)] * len(used)
        return replica_plan(estimator, domains, used[0][1], inner, wanted.micro_batch, Sync(1, 4.0))
    return None
