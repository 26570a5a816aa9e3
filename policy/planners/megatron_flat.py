"""`megatron-flat`: Megatron's rule on all GPUs as if they were one cluster, ranks in domain order.

The naive form of recipe 4: tensor ranks are fastest, then data-parallel ones, then stages, over the domains
in index order; nothing knows where one domain ends. The rule chooses on a cluster that looks like that. What
it chooses is then laid over the domains: stages that end where domains end make a pipeline; one stage whose
data-parallel group spans domains evenly makes a replica in each, and gradients cross the wide area in fp32
every iteration. Any other layout has data-parallel groups that cross domains inside a pipeline, and an
optimiser that is sharded over domains takes more memory in replicas: neither can be said by a plan of this
twin. Then this policy says so; it does not take the next best.
"""

from collections.abc import Sequence
from dataclasses import replace

from ingest.core.errors import InfeasibleError
from policy.planners.atlas import greedy_fill
from policy.kit.even_stages import deal, living
from policy.planners.megatron import sized
from policy.kit.planner_base import Planner
from policy.kit.replica_plans import replicated
from twin.core.domain import Cluster
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan, Sync
from twin.core.view import View


class MegatronFlat(Planner):
    """One cluster to Megatron's rule, laid over the domains rank by rank; decided once."""

    name = "megatron-flat"

    def plans(self, view: View) -> list[Plan]:
        """The only plan of the rule.

        Raises:
            InfeasibleError: nothing fits, or a plan cannot say what the rule chooses.
        """
        order = living(self.estimator, view.free_gpus)
        wanted = sized(flattened(self.estimator, order, view.free_gpus), [0], (sum(view.free_gpus),))
        plan = laid_out(self.estimator, wanted, order, view.free_gpus)
        crossing = ("data-parallel groups cross domains",)
        problems = crossing if plan is None else self.estimator.problems(plan, view.free_gpus)
        if plan is None or problems:
            raise InfeasibleError(
                f"Megatron on a flat cluster wants {wanted}, which no plan over these domains can say: "
                f"{problems[0]}"
            )
        return [plan]


def flattened(estimator: Estimator, order: Sequence[int], free_gpus: Sequence[int]) -> Estimator:
    """All living GPUs as one domain; nodes as small and memory as little as anywhere."""
    if not order:
        raise InfeasibleError("no domain has a free GPU")
    domains = [estimator.cluster.domains[k] for k in order]
    least = min(domains, key=lambda domain: domain.gpu.memory_bytes)
    node = min(domain.gpus_per_node for domain in domains)
    one = replace(least, name="flat", gpus=sum(free_gpus), gpus_per_node=node)
    return Estimator(
        Cluster((one,), ((0.0,),)), estimator.job, restart_s=estimator.restart_s, compute=estimator.compute
    )


def laid_out(
    estimator: Estimator, wanted: Plan, order: Sequence[int], free_gpus: Sequence[int]
) -> Plan | None:
    """The flat plan over the domains in rank order; None where a data-parallel group of a pipeline crosses.

    A tensor group never starts in a domain that it does not end in: nodes are whole.
    """
    (share,) = wanted.shares
    ranks = [free_gpus[k] // share.tp for k in order]
    stages = greedy_fill([room // wanted.dp for room in ranks], share.pp)
    last = max((n for n, count in enumerate(stages) if count), default=0)
    if sum(stages) == share.pp and all(room % wanted.dp == 0 for room in ranks[:last]):
        return deal(estimator, order, stages, wanted.dp, [share.tp] * len(order), wanted.micro_batch)
    used = [(k, n) for k, n in zip(order, greedy_fill(ranks, wanted.dp), strict=True) if n]
    if share.pp == 1 and len({n for _, n in used}) == 1:
        domains, inner = [k for k, _ in used], [(share.tp, 1)] * len(used)
        return replicated(estimator, domains, used[0][1], inner, wanted.micro_batch, Sync(1, 4.0))
    return None
