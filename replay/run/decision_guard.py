"""Guards the decisions of a policy: deadline and legality, with a fallback to holding or a plain plan."""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from ingest.core.errors import InfeasibleError
from policy.core.protocol import Context, Decision, Policy
from policy.search.plan_search import best_plans
from twin.core.plan import Plan
from twin.core.view import View

LATE = "deadline"
ILLEGAL = "illegal plan"
NOTHING_FITS = "nothing fits"


class DecisionGuard:
    """Checks each decision of a policy before its plan is applied, and replaces it by a fallback if needed.

    A missed deadline depends on the machine's clock, so it is an input of the run, like a measurement: it is
    recorded as the decision's `fallback`, and a re-execution takes `missed` (decision number -> what was
    recorded) instead of the clock. Unless `enforce`, lateness is recorded beside the decision
    and changes nothing: simulated time stands still while a policy thinks, so equal seeds give equal runs.
    With `may_wait`, one job of several, a job without a plan holds until there is room for it.
    """

    def __init__(
        self,
        policy: Policy,
        context: Context,
        *,
        deadline_s: float,
        enforce: bool = False,
        missed: Mapping[int, str] | None = None,
        may_wait: bool = False,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._policy = policy
        self._estimator = context.estimator
        self._deadline_s = deadline_s
        self._enforce = enforce
        self._missed = missed
        self._may_wait = may_wait
        self._clock = clock

    def decide(self, number: int, view: View) -> tuple[Decision, dict[str, Any]]:
        """Returns decision `number` for `view` and its wall-clock figures (seconds)."""
        start_s = self._clock()
        decision = self._policy_decision(view)
        latency_s = self._clock() - start_s
        late = latency_s > self._deadline_s
        fault = self._missed_deadline(number, late) or self._illegal(view, decision)
        if fault is not None:
            decision = self._fallback(view, decision, fault)
        return decision, {"latency_s": latency_s, "late": late, "coordination_s": self._clock() - start_s}

    def _policy_decision(self, view: View) -> Decision:
        try:
            return self._policy.decide(view)
        except InfeasibleError as error:
            if view.plan is None and not self._may_wait:  # the run cannot start
                raise
            return Decision(None, str(error), fallback=f"{NOTHING_FITS}: {error}")

    def _missed_deadline(self, number: int, late: bool) -> str | None:
        if self._missed is not None:
            return self._missed.get(number)
        return f"{LATE} of {self._deadline_s:g} s missed" if late and self._enforce else None

    def _illegal(self, view: View, decision: Decision) -> str | None:
        if decision.plan is None:
            return None if self._may_wait or view.plan is not None else f"{ILLEGAL}: nothing to hold"
        problems = self._estimator.problems(decision.plan, view.free_gpus)
        return f"{ILLEGAL}: {problems[0]}" if problems else None

    def _fallback(self, view: View, decision: Decision, fault: str) -> Decision:
        """Holds while the running plan is legal, else takes the plan that is fastest now."""
        plan: Plan | None = None
        if view.plan is None or self._estimator.problems(view.plan, view.free_gpus):
            found = best_plans(self._estimator, view.forecast.links(), free_gpus=view.free_gpus, top=1)
            if not found and view.plan is None and not self._may_wait:
                raise InfeasibleError(
                    "no plan fits the model into the cluster: add GPUs or take a smaller model"
                )
            plan = found[0][0] if found else None
        action = "hold" if plan is None else "move to the fastest plan"
        reason = f"{action}, because of a fallback ({fault}); the policy said: {decision.reason}"
        return Decision(plan, reason, candidates=decision.candidates, fallback=fault, extra=decision.extra)
