"""`greedy`: the best plan for the filtered present at every trigger; no forecast, no hysteresis, no moving
cost.
"""

from ingest.core.errors import InfeasibleError
from policy.core.protocol import Candidate, Context, Decision
from policy.search.plan_search import best_plans
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.core.view import View


class Greedy:
    """Moves whenever the best plan for the present differs from the running one; that is its definition."""

    name = "greedy"

    def reset(self, context: Context) -> None:
        """Start a run."""
        self.estimator = context.estimator

    def decide(self, view: View) -> Decision:
        """The fastest plan now; hold only if it is the one that runs."""
        ranked = best_plans(
            self.estimator,
            view.forecast.links(),
            free_gpus=view.free_gpus,
            slowdown=view.slowdown,
            top=8,
            start=view.plan,
        )
        if not ranked:
            return nothing_runs(self.estimator, view)
        candidates = tuple(as_candidate(self.estimator, view, plan) for plan, _ in ranked)
        best, ns = ranked[0]
        if best == view.plan:
            return Decision(None, "the running plan is the best one now", candidates, ns / 1e9)
        return Decision(best, f"best plan now: {best}", candidates, ns / 1e9)


def as_candidate(estimator: Estimator, view: View, plan: Plan) -> Candidate:
    """A plan with what the present promises it; the score is tokens per second."""
    now = estimator.iteration(plan, view.forecast.links(), view.slowdown)
    rate = estimator.tokens_per_iteration / now.iter_s
    return Candidate(plan, rate, now.iter_s, now.utilisation, now.usd)


def nothing_runs(estimator: Estimator, view: View) -> Decision:
    """Hold when nothing can run just now; at the start there is nothing to hold.

    Raises:
        InfeasibleError: at the start.
    """
    if view.plan is not None:
        return Decision(None, "no plan can run with the GPUs and links that are left")
    raise InfeasibleError(
        f"no plan fits {estimator.job.model.name} into {sum(view.free_gpus)} GPUs of "
        f"{estimator.cluster.size} domains; add GPUs, take a smaller model or allow a smaller micro-batch"
    )
