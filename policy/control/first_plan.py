"""The first plan of a run: the one worth most over the past of the links, of those that can run now.

A plan is kept for hours and leaving it costs minutes, while a forecast reaches half an hour. So the links of
the moment count only where one is dead.
"""

from collections.abc import Sequence

import numpy as np

from policy.control.decision_rule import SHOWN
from policy.control.horizon import per_iteration
from policy.control.knobs import default_knobs
from policy.control.long_run import PastPlan, PastPlans
from policy.control.plan_rates import PlanRates
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Candidate, Decision
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.link_state_times import States


def first_plan(
    past: PastPlans, plans: Sequence[Plan], view: View, rates: PlanRates, objective: Objective
) -> Decision | None:
    """Returns the decision for the plan of `plans` that is worth most over the past; None where nothing is
    known of the past, or none of them runs under the present links."""
    candidates = sorted(
        (_candidate(one, view, rates, objective) for one in past.judged(plans)), key=lambda one: -one.score
    )
    now = States.of([view.forecast.links()])
    chosen = next((one for one in candidates if rates(one.plan, now, view.slowdown)[0] > 0), None)
    if chosen is None:
        return None
    return Decision(
        chosen.plan, f"worth most over the past: {chosen.plan}", tuple(candidates[:SHOWN]), chosen.iter_s
    )


def _candidate(one: PastPlan, view: View, rates: PlanRates, objective: Objective) -> Candidate:
    """Returns a plan with default knobs and its mean outcome over the past."""
    plan, iter_s = default_knobs(rates.estimator.job, one.plan), 1.0 / one.rate
    busy_s, usd = per_iteration(rates.estimator, plan, np.ones_like(view.slowdown))
    outcome = PlanOutcome(iter_s, busy_s / iter_s, usd)
    return Candidate(plan, objective.value(outcome), iter_s, outcome.utilisation, usd)
