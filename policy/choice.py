"""From scored plans to a decision: the same rule for every planner that looks ahead."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from policy.hindsight import Hindsight
from policy.objective import Objective, Outcome
from policy.protocol import Candidate, Decision
from twin.plan import Plan
from twin.view import View

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
    worth = dict(zip(plans, map(objective.value, kept), strict=True))
    held = next((out.iter_s for plan, out in zip(plans, kept, strict=True) if plan == view.plan), 0.0)
    margin *= min(held / objective.base.iter_s, 1.0)
    return choose(view, candidates, worth, margin, lambda plan: hindsight.paid(view, plan, objective))


def choose(
    view: View,
    candidates: Sequence[Candidate],
    kept: Mapping[Plan, float],
    margin: float,
    paid: Callable[[Plan], bool],
) -> Decision:
    """The best of `candidates`, whose scores allow for leaving them later; `kept` is their worth if they are
    kept. The running plan is among them where it may be held.

    A move has to pay by more than `margin` if both plans were kept. Scores would not say so: a plan to leave
    soon is worth about as much as the one to leave it for. And it has to be one that would have `paid`
    already.
    """
    ranked = sorted(candidates, key=lambda c: -c.score)
    best, shown = ranked[0], tuple(ranked[:SHOWN])
    if best.score == float("-inf") and view.plan is not None:
        return Decision(None, "nothing is expected to run within the horizon", shown)
    held = next((c for c in ranked if c.plan == view.plan), None)
    if held is None:
        return Decision(best.plan, f"best expected plan: {best.plan}", shown, best.iter_s)
    gains = {c.plan: kept[c.plan] - kept[held.plan] for c in ranked if kept[c.plan] > float("-inf")}
    better = [c for c in ranked if c.score > held.score and gains.get(c.plan, 0.0) > margin]
    chosen = next((c for c in better if paid(c.plan)), None)
    gain = gains.get((chosen or best).plan, 0.0)
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
