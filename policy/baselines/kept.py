"""`kept`: a plan that was made before, followed as long as it can run; its free knobs are turned.

It is what `twin replay --plan` runs. The plan is an input of the run and stands in its header.
"""

import numpy as np

from ingest.core.errors import InfeasibleError
from ingest.core.units import NS_PER_S
from policy.control.horizon import Horizon
from policy.control.knobs import KnobTuner
from policy.control.relayed_times import time_ns
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Context, Decision
from policy.core.replan_conditions import usable
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import DEAD
from twin.estimation.link_state_times import States


class Kept:
    """Keeps one plan; waits where links or GPUs that it needs are lost."""

    name = "kept"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def reset(self, context: Context) -> None:
        """Starts a run.

        Raises:
            InfeasibleError: the plan is not one of this cluster and model.
        """
        self.estimator = context.estimator
        self._knobs = KnobTuner(context)
        if problems := self.estimator.problems(self.plan):
            raise InfeasibleError(
                f"the plan does not fit {self.estimator.job.model.name} on these "
                f"{self.estimator.cluster.size} domains: {problems[0]}; make one with `twin plan`"
            )

    def decide(self, view: View) -> Decision:
        """Returns the plan at the start, then holds; knobs are turned for the links of the moment."""
        if view.plan is not None and not usable(self.estimator, view):
            return Decision(None, "GPUs of the plan are lost; they are waited for")
        links = view.forecast.links()
        one = States.of([links])
        plan = view.plan or self.plan
        ns = time_ns(self.estimator, plan, links, view.slowdown)
        base = PlanOutcome(1.0 if ns == DEAD else ns / NS_PER_S, 0.0, 0.0)
        decision = Decision(None if view.plan else plan, "the plan was given")
        horizon = Horizon(np.array([0.0, 1.0]), one, one)
        return self._knobs.tune(decision, view, horizon, Objective((1.0, 0.0, 0.0), base))
