"""What planning systems from the literature share: plan at the start, hold while the plan can run, plan again
when it cannot.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from ingest.core.errors import InfeasibleError
from ingest.core.units import to_s
from policy.baselines.replan_conditions import must_replan
from policy.core.protocol import Candidate, Context, Decision
from twin.estimate.estimator import DEAD, Estimator
from twin.core.plan import Plan
from twin.core.view import View

SHOWN = 8
"""Candidates that a decision lists at most."""


class Planner(ABC):
    """A policy that is a planning algorithm: `plans` is the algorithm, `due` says when it runs again."""

    name: str

    def reset(self, context: Context) -> None:
        """Start a run."""
        self.context = context
        self.estimator: Estimator = context.estimator

    @abstractmethod
    def plans(self, view: View) -> Sequence[Plan]:
        """Legal plans, the algorithm's choice first.

        Raises:
            InfeasibleError: the algorithm finds none.
        """

    def due(self, view: View) -> str:
        """Why it is time to plan again; empty when it is not. Here: only when the plan cannot go on."""
        return "; ".join(must_replan(self.estimator, view))

    def decide(self, view: View) -> Decision:
        """The algorithm's plan at the start and whenever `due`, else hold."""
        why = "the job starts" if view.plan is None else self.due(view)
        if not why:
            return Decision(None, "nothing has happened that this planner plans again for")
        try:
            found = self.plans(view)
        except InfeasibleError as error:
            if view.plan is None:
                raise
            return Decision(None, f"{why}, and no other plan is found: {error}")
        return self._answer(view, found, why)

    def _answer(self, view: View, found: Sequence[Plan], why: str) -> Decision:
        shown = tuple(self._candidate(view, plan) for plan in found[:SHOWN])
        best = shown[0]
        if best.plan == view.plan:
            return Decision(None, f"{why}: the running plan is still the choice", shown, best.iter_s)
        if best.iter_s == float("inf") and view.plan is not None and self._legal(view.plan, view):
            return Decision(None, f"{why}: the plan of this algorithm cannot run now either", shown)
        return Decision(best.plan, f"{why}: {best.plan}", shown, best.iter_s)

    def _legal(self, plan: Plan, view: View) -> bool:
        return not self.estimator.problems(plan, view.free_gpus)

    def _candidate(self, view: View, plan: Plan) -> Candidate:
        now = self.estimator.iteration(plan, view.forecast.links(), view.slowdown)
        rate = self.estimator.tokens(plan) / now.iter_s
        return Candidate(plan, rate, now.iter_s, now.utilisation, now.usd)


def fastest(estimator: Estimator, view: View, plans: Iterable[Plan]) -> list[Plan]:
    """The plans in order of the referee's iteration time under the filtered present, without repetition.

    Plans that cannot run come last: a first plan over a dead link waits for it.
    """
    links = view.forecast.links()
    timed = [(estimator.iter_ns(plan, links, view.slowdown), n, plan) for n, plan in enumerate(plans)]
    return list(dict.fromkeys(plan for _, _, plan in sorted(timed, key=lambda entry: entry[:2])))


def iteration_s(estimator: Estimator, view: View, plan: Plan) -> float:
    """Seconds of an iteration under the filtered present; infinite over a dead link."""
    ns = estimator.iter_ns(plan, view.forecast.links(), view.slowdown)
    return float("inf") if ns == DEAD else to_s(ns)
