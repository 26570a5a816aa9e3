"""`diloco`: one replica of the model in each domain, H local steps, then an outer step over the wide area.

Re-implementation of the execution of DiLoCo (Douillard et al. 2023): the domains that can hold the model
train replicas on their parts of the batch and average pseudo-gradients in fp32 after every H inner steps,
without overlap (the streaming form is not modelled). The loss of training quality is a discount on tokens
(`twin.costs.replica_sync`), so tokens per second compare with those of other policies. Beyond the papers, the
number of replicas, the sizes inside domains and H are those with the least time per token under the links at
the start ("best fixed H", between 30 and 1,000). They stay fixed until the plan cannot go on. A model that
fits in no domain cannot be trained this way.
"""

from collections.abc import Iterator
from dataclasses import replace

from ingest.core.errors import InfeasibleError
from policy.kit.even_stages import ClosestFit, domains_with_gpus
from policy.kit.planner_base import Planner, iteration_s
from policy.kit.replica_plans import replica_plan, seconds_per_token
from policy.search.plan_shapes import concrete, profiles
from twin.core.plan import Plan, Sync
from twin.core.view import View

INNER_STEPS = (30, 50, 100, 200, 500, 1000)
"""H that the papers use or study."""
OUTER = Sync(INNER_STEPS[-1], 4.0)


class DiLoCo(Planner):
    """Takes the replicas and H with the least time per token; planned once."""

    name = "diloco"

    def plans(self, view: View) -> list[Plan]:
        """Returns the plan of every size with its best H, the least time per token first."""
        closest = ClosestFit(self.estimator)
        found = []
        for n, plan in enumerate(self._sizes(view)):
            if closest.fits(plan, view.free_gpus):
                found.append((*self._best_steps(view, plan), n))
        if not found:
            error = closest.error("DiLoCo", view.free_gpus)
            raise InfeasibleError(f"DiLoCo needs a whole replica in a domain. {error}")
        return [plan for _, plan, _ in sorted(found, key=lambda entry: (entry[0], entry[2]))]

    def _sizes(self, view: View) -> Iterator[Plan]:
        """Yields replicas in the 1, 2, ... domains with most GPUs, under every size that they can share."""
        largest = sorted(
            domains_with_gpus(self.estimator, view.free_gpus), key=lambda k: (-view.free_gpus[k], k)
        )
        for count in range(1, len(largest) + 1):
            domains = sorted(largest[:count])
            for profile in profiles(self.estimator, domains, view.free_gpus):
                singles = [concrete(self.estimator, profile, (k,), view.free_gpus) for k in domains]
                inner = [single.inner[0] for single in singles if single is not None]
                if len(inner) == count:
                    plan = replica_plan(
                        self.estimator, domains, profile.dp, inner, profile.micro_batch, OUTER
                    )
                    if plan is not None:
                        yield plan

    def _best_steps(self, view: View, plan: Plan) -> tuple[float, Plan]:
        """Returns the least time per token over H, and the plan with it."""
        steps = INNER_STEPS if plan.sync is not None else INNER_STEPS[:1]
        sized = [
            plan if plan.sync is None else replace(plan, sync=replace(OUTER, inner_steps=h)) for h in steps
        ]
        timed = [
            (seconds_per_token(self.estimator, one, iteration_s(self.estimator, view, one)), n)
            for n, one in enumerate(sized)
        ]
        seconds, n = min(timed)
        return seconds, sized[n]
