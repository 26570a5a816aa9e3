"""`static`: the reference plan, equal cuts over the domains in index order, planned once."""

from collections.abc import Sequence

from ingest.core.errors import InfeasibleError
from policy.core.protocol import Context, Decision
from policy.core.reference_plan import equal_cuts
from policy.core.replan_conditions import must_replan
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import DEAD


class Static:
    """Keeps the reference plan; migrates only when it cannot go on, by the same rule over what is left."""

    name = "static"

    def reset(self, context: Context) -> None:
        """Starts a run."""
        self.estimator = context.estimator

    def decide(self, view: View) -> Decision:
        """Returns equal cuts at the start and after a failure, else holds."""
        if view.plan is not None and not must_replan(self.estimator, view):
            return Decision(None, "the plan is chosen once")
        plan = self._plan(view)
        if plan is None:
            return Decision(None, "no plan of this rule can run with what is left")
        if plan == view.plan:
            return Decision(None, "the same plan is the rule's answer to what is left")
        ns = self.estimator.iter_ns(plan, view.forecast.links(), view.slowdown)
        predicted = None if ns == DEAD else ns / 1e9
        return Decision(plan, f"equal cuts in index order: {plan}", predicted_iter_s=predicted)

    def _plan(self, view: View) -> Plan | None:
        alive = [k for k in range(self.estimator.cluster.size) if view.free_gpus[k] > 0]
        if view.plan is None:
            return equal_cuts(self.estimator, alive, view.free_gpus)
        for order in _connected_chains(alive, view):
            try:
                return equal_cuts(self.estimator, order, view.free_gpus)
            except InfeasibleError:
                continue
        return None


def _connected_chains(alive: Sequence[int], view: View) -> list[tuple[int, ...]]:
    """Returns for each last domain the longest chain in index order over living links; longest first."""
    bandwidth = view.forecast.links().bandwidth_bps
    best: dict[int, tuple[int, ...]] = {}
    for k in alive:
        before = [best[j] for j in best if bandwidth[j, k] > 0 and bandwidth[k, j] > 0]
        best[k] = (*max(before, key=len, default=()), k)
    return sorted(best.values(), key=lambda chain: (-len(chain), chain))
