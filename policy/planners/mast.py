"""`mast`: MAST-style global scheduling; a job runs in one domain, found by search in all of them.

Re-implementation of the decisions of MAST (Choudhury et al., OSDI 2024) for one training job: the global
scheduler offers the job to every regional one, each searches its domain and returns a plan with its quality,
the best one wins the auction. Parallelism inside a domain is Megatron's rule. Quality is speed; ties go to
the domain that the job fits more tightly. Not modelled: the slow loop, which places data sets, and the
priorities of its queue. A job that fits in no domain waits: MAST does not split jobs.
"""

from ingest.core.errors import InfeasibleError
from policy.kit.even_stages import domains_with_gpus
from policy.kit.planner_base import Planner, iteration_s
from policy.planners.megatron import megatron_plan
from twin.core.plan import Plan
from twin.core.view import View


class Mast(Planner):
    """Chooses one domain for the job by auction, and again when it is lost."""

    name = "mast"

    def plans(self, view: View) -> list[Plan]:
        """Returns one plan for each domain that can hold the job, the winner first."""
        offers = []
        refused = []
        for domain in domains_with_gpus(self.estimator, view.free_gpus):
            try:
                plan = megatron_plan(self.estimator, [domain], view.free_gpus)
            except InfeasibleError as error:
                refused.append(str(error))
                continue
            spare = view.free_gpus[domain] - len(plan.shares[0].gpus)
            offers.append((iteration_s(self.estimator, view, plan), spare, domain, plan))
        if not offers:
            detail = refused[0] if refused else "no domain has a free GPU"
            raise InfeasibleError(f"MAST keeps a job in one domain, and none can hold it: {detail}")
        return [plan for *_, plan in sorted(offers, key=lambda offer: offer[:3])]
