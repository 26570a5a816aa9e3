"""`greedy`: the best plan for the present links at every trigger; no forecast, hysteresis or migration
cost."""

from policy.core.protocol import Candidate, Context, Decision
from policy.core.replan_conditions import nothing_runs
from policy.search.plan_search import best_plans
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator


class Greedy:
    """Migrates whenever the best plan for the present links differs from the running one."""

    name = "greedy"

    def reset(self, context: Context) -> None:
        """Starts a run."""
        self.estimator = context.estimator

    def decide(self, view: View) -> Decision:
        """Returns the fastest plan now; holds only if it is the running one."""
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
    """Returns a plan with its outcome under the present links; the score is tokens per second."""
    now = estimator.iteration(plan, view.forecast.links(), view.slowdown)
    rate = estimator.tokens_per_iteration / now.iter_s
    return Candidate(plan, rate, now.iter_s, now.utilisation, now.usd)
