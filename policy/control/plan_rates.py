"""Iterations per second of plans in many link states, as the policies that turn relays will have them."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy.control.best_relay_times import best_relay_rates
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns, per_second

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlanRates:
    """Rates at the plan's own warm-up depth, each link shared by the plan's own messages: where `relayed`,
    with the best relays of every state; else over direct links, and over relays where one of them is dead."""

    estimator: Estimator
    relayed: bool

    def __call__(self, plan: Plan, states: States, slowdown: Float | None = None) -> Float:
        """Returns iterations per second in each state (T,), 0 where the plan cannot run; domains compute
        `slowdown` (K,) times as long."""
        plan = replace(plan, routes=()) if plan.routes else plan
        direct = per_second(iteration_ns(self.estimator, plan, states, slowdown))
        turned = self.relayed or not direct.all()
        relayed = best_relay_rates(self.estimator, plan, states, slowdown) if turned else None
        if relayed is None:
            return direct
        return np.maximum(direct, relayed) if self.relayed else np.where(direct > 0, direct, relayed)
