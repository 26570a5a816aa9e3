"""`diloco`: one replica of the model in each domain, H local steps, then an outer step over the wide area.

Re-implementation of the execution of DiLoCo (Douillard et al. 2023; recipe 8): the domains that can hold the
model train replicas on their parts of the batch and average pseudo-gradients in fp32 after every H inner
steps, without overlap (the streaming form is not modelled). What that costs in training quality is in the
world's tokens (`twin.replicas`), so tokens per second of this policy compare with everybody's. Strong where
the papers are not: the number of replicas, the sizes inside the domains and H are those with the least time
per token under the first links seen ("best fixed H", between 30 and 1,000). They are fixed then; a domain
that is lost makes it choose again. A model that fits in no domain cannot be trained this way.
"""

from collections.abc import Iterator
from dataclasses import replace

from ingest.core.errors import InfeasibleError
from policy.kit.even_stages import Closest, living
from policy.kit.planner_base import Planner, iteration_s
from policy.kit.replica_plans import replicated, seconds_per_token
from policy.search.plan_shapes import concrete, profiles
from twin.core.plan import Plan, Sync
from twin.core.view import View

INNER_STEPS = (30, 50, 100, 200, 500, 1000)
"""H that the papers use or study."""
OUTER = Sync(INNER_STEPS[-1], 4.0)


class DiLoCo(Planner):
    """Replicas and H with the least time per token, chosen once."""

    name = "diloco"

    def plans(self, view: View) -> list[Plan]:
        """For every size its best H, the least time per token first."""
        closest = Closest(self.estimator)
        found = []
        for n, plan in enumerate(self._sizes(view)):
            if closest.fits(plan, view.free_gpus):
                found.append((*self._best_steps(view, plan), n))
        if not found:
            error = closest.error("DiLoCo", view.free_gpus)
            raise InfeasibleError(f"DiLoCo needs a whole replica in a domain. {error}")
        return [plan for _, plan, _ in sorted(found, key=lambda entry: (entry[0], entry[2]))]

    def _sizes(self, view: View) -> Iterator[Plan]:
        """Replicas in the 1, 2, ... domains with most GPUs, under every size that they can share."""
        largest = sorted(living(self.estimator, view.free_gpus), key=lambda k: (-view.free_gpus[k], k))
        for count in range(1, len(largest) + 1):
            domains = sorted(largest[:count])
            for profile in profiles(self.estimator, domains, view.free_gpus):
                singles = [concrete(self.estimator, profile, (k,), view.free_gpus) for k in domains]
                inner = [single.inner[0] for single in singles if single is not None]
                if len(inner) == count:
                    plan = replicated(self.estimator, domains, profile.dp, inner, profile.micro_batch, OUTER)
                    if plan is not None:
                        yield plan

    def _best_steps(self, view: View, plan: Plan) -> tuple[float, Plan]:
        """Least time per token over H, and the plan with it."""
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
