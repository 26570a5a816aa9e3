"""A teacher that starts with the plan worth most over the past, and keeps it.

On the trace that a training is for this is what the shipped policy begins with (`policy.control.first_plan`),
without its searches at every event, so that hundreds of demonstrations cost little.
"""

import numpy as np

from policy.control.long_run import PastPlans
from policy.control.plan_rates import PlanRates
from policy.core.objective import speed_alone
from policy.core.protocol import Context, Decision
from twin.core.view import View
from twin.estimation.link_state_times import States


class PastTeacher:
    """Demonstrates the best plan of the past that can run now, and holding it."""

    name = "past"

    def reset(self, context: Context) -> None:
        """Starts a sequence; plans are searched once for each past."""
        self._past = PastPlans.of(context)
        self._speed_alone = speed_alone(context.weights)
        self._rates = PlanRates(context.estimator, self._speed_alone)

    def decide(self, view: View) -> Decision:
        """Returns the plan at the start, then holds; no plan where more than speed has weight, which the past
        does not rank by, and where none of them can run."""
        if view.plan is not None or not self._speed_alone:
            return Decision(None, "the plan is kept" if view.plan is not None else "no plan to show")
        now = States.of([view.forecast.links()])
        slowdown = np.asarray(view.slowdown, dtype=np.float64)
        for one in self._past.best(view.free_gpus, now):
            if self._rates(one.plan, now, slowdown)[0] > 0:
                return Decision(one.plan, f"worth most over the past: {one.plan}")
        return Decision(None, "no plan of the past can run under the present links")
