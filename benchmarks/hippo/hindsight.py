"""Policies that know the future, played in the world: the regret that is left to whoever chooses right.

The clairvoyant bound moves and turns knobs at any instant and counts fractions of iterations. In the world a
plan takes effect when an iteration ends, and links are known by telemetry. So the bound's own path leaves
something, too, and no choice of plans brings that back.
"""

from dataclasses import replace

from policy.baselines.kept import Kept
from policy.bound.bound import Bound
from policy.control.knobs import default_knobs
from policy.core.protocol import Context, Decision, Policy
from twin.core.view import View

PATH, KEPT = "the bound's path", "the best kept plan"


class BoundPath:
    """Follows the path of a bound at the world's decisions; free knobs are turned for the filtered links."""

    name = PATH

    def __init__(self, bound: Bound) -> None:
        self._legs = [(begins_ns, Kept(plan)) for begins_ns, plan in bound.timeline]

    def reset(self, context: Context) -> None:
        """Starts a run."""
        self._job = context.estimator.job
        for _, keeper in self._legs:
            keeper.reset(context)

    def decide(self, view: View) -> Decision:
        """Returns the plan that is due, or a change of its knobs where it runs already."""
        keeper = [keeper for begins_ns, keeper in self._legs if begins_ns <= view.now_ns][-1]
        due = default_knobs(self._job, keeper.plan)
        runs = view.plan is not None and default_knobs(self._job, view.plan) == due
        return keeper.decide(view if runs else replace(view, plan=None))


def knowing(bound: Bound) -> dict[str, Policy]:
    """Returns who follows the bound's path, and who keeps the plan that is best in hindsight."""
    return {PATH: BoundPath(bound), KEPT: Kept(bound.kept_plan)}
