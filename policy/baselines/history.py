"""`history`: the plan that would have done most over the past before the run, kept, its free knobs turned.

All moments of the past count alike: it is the best plan of the record. `mpc` weighs late ones more.

It has no forecast and never migrates while its plan can run, so what a policy that looks ahead gains over it
is what looking ahead is worth.
"""

from collections.abc import Iterator

from ingest.core.units import NS_PER_S
from policy.baselines.mpc import TUNED
from policy.control.candidate_search import DeadLinkTracker
from policy.control.horizon import Horizon, make_horizon
from policy.control.knobs import KnobTuner
from policy.control.long_run import PastPlans
from policy.control.relayed_times import time_ns
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Context, Decision
from policy.core.replan_conditions import nothing_runs, usable
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import DEAD
from twin.estimation.link_state_times import States


class History:
    """Keeps the best plan of the past; migrates only when it has lost GPUs, or a link that no relay replaces
    has been dead for as long as `mpc` expects an outage to last, to the best plan that can run."""

    name = "history"
    kept = "the plan is chosen once"
    """Why a plan is held."""

    def reset(self, context: Context) -> None:
        """Starts a run."""
        self.estimator = context.estimator
        self._past = PastPlans(context.estimator, context.history, half_life=None)
        self._knobs = KnobTuner(context)
        self._dead_links = DeadLinkTracker(context.cluster.size, TUNED.outage_s)
        self._stands_since_ns: int | None = None

    def decide(self, view: View) -> Decision:
        """Returns the best plan of the past at the start and where the running one cannot go on even over
        relays; else a hold, or a change of knobs."""
        horizon = make_horizon(view.forecast, TUNED.horizon_s, self._dead_links.outages(view))
        if view.plan is not None and usable(self.estimator, view):
            held = self._with_knobs(Decision(None, self.kept), view.plan, view, horizon)
            if self._runs(held.plan or view.plan, view):
                self._stands_since_ns = None
                return held
            since_ns = view.now_ns if self._stands_since_ns is None else self._stands_since_ns
            self._stands_since_ns = since_ns
            if view.now_ns - since_ns < TUNED.outage_s * NS_PER_S:
                return Decision(None, "a link that the plan uses is dead; it is waited for")
        self._stands_since_ns = None
        plan = next((plan for plan in self._plans(view) if self._runs(plan, view)), None)
        if plan is None:
            return nothing_runs(self.estimator, view)
        decision = Decision(plan, f"{self._merit(plan, view)}: {plan}")
        return self._with_knobs(decision, plan, view, horizon) if view.plan is None else decision

    def _merit(self, plan: Plan, view: View) -> str:
        """Returns why a plan is chosen."""
        return "most over the past"

    def _plans(self, view: View) -> Iterator[Plan]:
        """Yields the plans of the past, best first; then those for the present links, for outages that the
        past has not seen."""
        now = States.of([view.forecast.links()])
        for past in (self._past, PastPlans(self.estimator, None)):
            yield from (one.plan for one in past.best(view.free_gpus, now))

    def _with_knobs(self, decision: Decision, plan: Plan, view: View, horizon: Horizon) -> Decision:
        ns = time_ns(self.estimator, plan, horizon.now, view.slowdown)
        base = PlanOutcome(1.0 if ns == DEAD else ns / NS_PER_S, 0.0, 0.0)
        return self._knobs.tune(decision, view, horizon, Objective((1.0, 0.0, 0.0), base))

    def _runs(self, plan: Plan, view: View) -> bool:
        return time_ns(self.estimator, plan, view.forecast.links(), view.slowdown) != DEAD
