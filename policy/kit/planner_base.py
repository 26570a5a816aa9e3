"""Base class of planners: plan at the start, hold while the plan can run, plan again when it cannot."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ingest.core.errors import InfeasibleError
from ingest.core.units import to_s
from policy.core.protocol import Candidate, Context, Decision
from policy.core.replan_conditions import must_replan
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import DEAD, Estimator

SHOWN = 8
"""Candidates listed in a decision, at most."""


class Planner(ABC):
    """A policy that is a planning algorithm: `plans` runs it, `due` gives the reason to run it again."""

    name: str

    def reset(self, context: Context) -> None:
        """Starts a run."""
        self.context = context
        self.estimator: Estimator = context.estimator

    @abstractmethod
    def plans(self, view: View) -> Sequence[Plan]:
        """Returns legal plans, the algorithm's choice first.

        Raises:
            InfeasibleError: the algorithm finds none.
        """

    def due(self, view: View) -> str:
        """Returns the reason to plan again, empty if there is none; by default that the plan cannot go on."""
        return "; ".join(must_replan(self.estimator, view))

    def decide(self, view: View) -> Decision:
        """Returns the algorithm's plan at the start and whenever `due`, else holds."""
        why = "the job starts" if view.plan is None else self.due(view)
        if not why:
            return Decision(None, "nothing has happened that this planner plans again for")
        try:
            found = self.plans(view)
        except InfeasibleError as error:
            if view.plan is None:
                raise
            return Decision(None, f"{why}, and no other plan is found: {error}")
        return self._decision(view, found, why)

    def _decision(self, view: View, found: Sequence[Plan], why: str) -> Decision:
        shown = [best_degree(self.estimator, view, plan) for plan in found[:SHOWN]]
        candidates = tuple(self._candidate(view, plan) for plan in shown)
        best = candidates[0]
        if best.plan == view.plan:
            return Decision(None, f"{why}: the running plan is still the choice", candidates, best.iter_s)
        if best.iter_s == float("inf") and view.plan is not None and self._legal(view.plan, view):
            return Decision(None, f"{why}: the plan of this algorithm cannot run now either", candidates)
        return Decision(best.plan, f"{why}: {best.plan}", candidates, best.iter_s)

    def _legal(self, plan: Plan, view: View) -> bool:
        return not self.estimator.problems(plan, view.free_gpus)

    def _candidate(self, view: View, plan: Plan) -> Candidate:
        now = self.estimator.iteration(plan, view.forecast.links(), view.slowdown)
        rate = self.estimator.tokens(plan) / now.iter_s
        return Candidate(plan, rate, now.iter_s, now.utilisation, now.usd)


def best_degree(estimator: Estimator, view: View, plan: Plan) -> Plan:
    """Returns the plan with the degree of expert parallelism, of those that the job allows, that is fastest
    under the present links. Published algorithms leave it to the user; none is worse for choosing it."""
    degrees = estimator.job.degrees(plan.dp)
    if len(degrees) < 2:
        return plan
    plans = [plan, *(replace(plan, ep=ep) for ep in degrees if ep != plan.ep)]
    running = [one for one in plans if not estimator.problems(one, view.free_gpus)]
    return fastest(estimator, view, running or [plan])[0]


def fastest(estimator: Estimator, view: View, plans: Iterable[Plan]) -> list[Plan]:
    """Returns the plans by iteration time under the present links, without repetition.

    Plans that cannot run now come last: a first plan over a dead link waits for it.
    """
    links = view.forecast.links()
    timed = [(estimator.iter_ns(plan, links, view.slowdown), n, plan) for n, plan in enumerate(plans)]
    return list(dict.fromkeys(plan for _, _, plan in sorted(timed, key=lambda entry: entry[:2])))


def iteration_s(estimator: Estimator, view: View, plan: Plan) -> float:
    """Returns seconds of an iteration under the present links; infinite over a dead link."""
    ns = estimator.iter_ns(plan, view.forecast.links(), view.slowdown)
    return float("inf") if ns == DEAD else to_s(ns)
