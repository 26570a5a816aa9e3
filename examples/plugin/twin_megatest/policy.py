"""A policy that keeps the whole job in the first domain that can hold it."""

import twin
from policy.search.plan_search import best_plans


class StayHome:
    """The fastest plan inside the first domain that fits the model, decided once."""

    name = "stay-home"

    def reset(self, context: twin.Context) -> None:
        """Start a run with the cost models of its cluster and job."""
        self.estimator = context.estimator

    def decide(self, view: twin.View) -> twin.Decision:
        """The plan of the first domain that can hold the model; then hold."""
        if view.plan is not None:
            return twin.Decision(None, "stays where it is")
        for home, gpus in enumerate(view.free_gpus):
            free = [gpus if domain == home else 0 for domain in range(len(view.free_gpus))]
            found = best_plans(self.estimator, view.forecast.links(), free_gpus=free, top=1)
            if found:
                return twin.Decision(found[0][0], f"first domain that fits: {home}")
        raise twin.InfeasibleError("the model fits in no single domain; take a policy that spans domains")
