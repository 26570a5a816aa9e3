"""Iterations per second of plans in many link states, as the policies that turn relays will have them."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy.control.best_relay_times import best_relay_rates, best_relays, relayed_ns
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
        if self.relayed and plan.sync is None and len(plan.shares) > 1:
            via = best_relays(self.estimator, plan, states)
            if (via >= 0).any():
                every = np.concatenate([np.full_like(via[:1], -1), via])  # direct links first
                return per_second(relayed_ns(self.estimator, plan, states, every, slowdown).min(axis=0))
        direct = per_second(iteration_ns(self.estimator, plan, states, slowdown))
        if self.relayed or direct.all():
            return direct
        relayed = best_relay_rates(self.estimator, plan, states, slowdown)
        return direct if relayed is None else np.where(direct > 0, direct, relayed)
