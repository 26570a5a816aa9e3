"""From scored plans to a decision: the same rule for every planner that looks ahead."""

from collections.abc import Callable, Sequence

import numpy as np

from policy.control.break_even import Hindsight
from policy.core.objective import Objective, Outcome
from policy.core.protocol import Candidate, Decision
from twin.core.plan import Plan
from twin.core.view import View

SHOWN = 16


def weighed(
    view: View,
    plans: Sequence[Plan],
    found: Sequence[Outcome],
    kept: Sequence[Outcome],
    objective: Objective,
    *,
    margin: float,
    hindsight: Hindsight,
) -> Decision:
    """The choice among plans by what each is expected to bring if it may be left later (`found`) and if it is
    `kept`.

    `margin` is a share of the time of the running plan: the objective's unit, the static plan's time, is many
    times that where the static plan is a bad one.
    """
    candidates = [
        Candidate(plan, objective.value(out), out.iter_s, out.utilisation, out.usd)
        for plan, out in zip(plans, found, strict=True)
    ]
    worth = [objective.value(out) for out in kept]
    held = next((out.iter_s for plan, out in zip(plans, kept, strict=True) if plan == view.plan), 0.0)
    margin *= min(held / objective.base.iter_s, 1.0)
    return choose(view, candidates, worth, margin, lambda plan: hindsight.paid(view, plan, objective))


def choose(
    view: View,
    candidates: Sequence[Candidate],
    kept: Sequence[float],
    margin: float,
    paid: Callable[[Plan], bool],
) -> Decision:
    """The best of `candidates`, whose scores allow for leaving them later; `kept` is the worth of each if
    it is kept. The running plan is among them where it may be held.

    A move has to pay by more than `margin` if both plans were kept. Scores would not say so: a plan to leave
    soon is worth about as much as the one to leave it for. And it has to be one that would have `paid`
    already.
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
    chosen, gain = next(((c, gain) for c, gain in better if paid(c.plan)), (None, gains[0]))
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
