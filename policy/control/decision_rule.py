"""The decision among plans with expected outcomes: one rule for every policy that looks ahead."""

from collections.abc import Callable, Sequence

import numpy as np

from policy.control.break_even import BreakEvenRule
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Candidate, Decision
from twin.core.plan import Plan
from twin.core.view import View

SHOWN = 16
"""Candidates listed in a decision, at most."""


def choose_plan(
    view: View,
    plans: Sequence[Plan],
    outcomes: Sequence[PlanOutcome],
    kept: Sequence[PlanOutcome],
    objective: Objective,
    *,
    margin: float,
    break_even: BreakEvenRule,
) -> Decision:
    """Returns the decision among plans by their expected `outcomes` with recourse, and those if they are
    `kept`.

    `margin` is a share of the running plan's iteration time. (The unit of the objective is the static plan's
    time, which may be many times longer.)
    """
    candidates = [
        Candidate(plan, objective.value(out), out.iter_s, out.utilisation, out.usd)
        for plan, out in zip(plans, outcomes, strict=True)
    ]
    worth = [objective.value(out) for out in kept]
    held = next((out.iter_s for plan, out in zip(plans, kept, strict=True) if plan == view.plan), 0.0)
    margin *= min(held / objective.base.iter_s, 1.0)
    return choose_candidate(
        view, candidates, worth, margin, lambda plan: break_even.would_have_paid(view, plan, objective)
    )


def choose_candidate(
    view: View,
    candidates: Sequence[Candidate],
    kept: Sequence[float],
    margin: float,
    would_have_paid: Callable[[Plan], bool],
) -> Decision:
    """Returns the decision for the best of `candidates`, scored with recourse; `kept` holds the value of each
    if it is kept. The running plan is among them if it may be held.

    A migration must gain more than `margin` in `kept` values: with recourse a plan that will be left soon
    scores about as much as the one that it is left for. It must also satisfy `would_have_paid`.
    """
    ranked = sorted(zip(candidates, kept, strict=True), key=lambda entry: -entry[0].score)
    best, shown = ranked[0][0], tuple(candidate for candidate, _ in ranked[:SHOWN])
    if best.score == float("-inf") and view.plan is not None:
        return Decision(None, "nothing is expected to run within the horizon", shown)
    held, held_worth = next((entry for entry in ranked if entry[0].plan == view.plan), (None, 0.0))
    if held is None:
        return Decision(best.plan, f"best expected plan: {best.plan}", shown, best.iter_s)
    gains = [worth - held_worth if worth > float("-inf") else 0.0 for _, worth in ranked]
    better = [
        (c, gain)
        for (c, _), gain in zip(ranked, gains, strict=True)
        if c.score > held.score and gain > margin
    ]
    chosen, gain = next(((c, gain) for c, gain in better if would_have_paid(c.plan)), (None, gains[0]))
    extra = {"gain": gain if np.isfinite(gain) else None, "margin": margin}
    if chosen is not None:
        reason = f"expected to gain {gain:.4f}: {chosen.plan}"
        return Decision(chosen.plan, reason, shown, chosen.iter_s, extra=extra)
    if best.score <= held.score:
        reason = "no plan is expected to bring more"
    elif not better:
        reason = f"the best move gains {gain:.4f}, not more than the margin of {margin:.4f}"
    else:
        reason = f"the best move is expected to gain {gain:.4f}, but would not have paid by now"
    return Decision(None, reason, shown, held.iter_s, extra=extra)
