"""The break-even rule: migrate once the migration would have paid off already.

Links degrade for a quarter of an hour or for good, and no forecast tells which. So the job migrates to a plan
only if, had it migrated at some earlier decision, it would be better off by now, the pause and the egress of
the migration counted `COST_FACTOR` times. This is the rule of ski rental (rent or buy): renting until the
rent paid equals the price, and buying then, costs at most twice the best choice in hindsight (Karlin,
Manasse, Rudolph, Sleator, "Competitive snoopy caching", Algorithmica 3, 1988).
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from policy.control.horizon import Rates, egress_usd, pause_s, per_iteration
from policy.core.objective import Objective, PlanOutcome
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns, per_second

Float = NDArray[np.float64]

COST_FACTOR = 2.0
"""Links that have changed mostly revert. On the training windows 1 is worse than 2 on quad-70b (97.2 us a
token instead of 94.5) and on storm (124.4 instead of 123.8; two seeds), 3 is like 2 (94.5; 124.5).
"""
HISTORY = 128
"""Past decisions that are considered."""


class BreakEvenRule:
    """Records the links at the decisions of a run, and applies the rule; `rates` are those of the plans as
    they stand unless given."""

    def __init__(self, estimator: Estimator, restart_s: float, rates: Rates | None = None) -> None:
        self._estimator, self._restart_s, self._rates = estimator, restart_s, rates
        self._history: deque[tuple[int, LinkState]] = deque(maxlen=HISTORY)

    def observe(self, view: View, bulk_links: LinkState | None = None) -> None:
        """Records the links of this decision; `bulk_links` are those for the layers of a migration, where
        messages take other routes."""
        links = view.forecast.links()
        self._history.append((view.now_ns, links))
        self._bulk_links = bulk_links or links

    def would_have_paid(self, view: View, plan: Plan, objective: Objective) -> bool:
        """Tells whether migrating to `plan` at some decision before the last one would have paid off by now;
        true for a job that does not run yet, and for a change that costs nothing."""
        if view.plan is None:
            return True
        move = self._estimator.move(view.plan, plan, self._bulk_links)
        pause = COST_FACTOR * pause_s(self._estimator, move, self._restart_s)
        usd = COST_FACTOR * float(egress_usd(self._estimator, move.bytes))
        if pause == 0 and usd == 0:
            return True
        lasted_s = np.diff([ns / NS_PER_S for ns, _ in self._history])
        # Since each of the decisions before, the last one first.
        seconds = np.maximum(np.cumsum(lasted_s[::-1]), 1 / NS_PER_S)
        held, moved = (self._iterations(one, view, lasted_s) for one in (view.plan, plan))
        moved = moved * (1 - np.minimum(pause / seconds, 1.0))
        held_values = self._values(view, view.plan, objective, seconds, held, 0.0)
        return bool((self._values(view, plan, objective, seconds, moved, usd) > held_values).any())

    def _iterations(self, plan: Plan, view: View, lasted_s: Float) -> Float:
        """Returns the iterations since each of the decisions before, the last one first."""
        if not len(lasted_s):
            return np.zeros(0)
        states = States.of([links for _, links in self._history][:-1])
        if self._rates is not None:
            rate = self._rates(plan, states, view.slowdown)
        else:
            rate = per_second(iteration_ns(self._estimator, plan, states, view.slowdown))
        return np.cumsum((rate * lasted_s)[::-1])

    def _values(
        self, view: View, plan: Plan, objective: Objective, seconds: Float, done: Float, moved_usd: float
    ) -> Float:
        """Returns the objective of each period, with `done` iterations in `seconds`."""
        busy_s, usd = per_iteration(self._estimator, plan, view.slowdown)
        outcomes = (
            PlanOutcome(length / work, busy_s * work / length, usd + moved_usd / work)
            if work > 0
            else PlanOutcome(float("inf"), 0.0, 0.0)
            for length, work in zip(seconds.tolist(), done.tolist(), strict=True)
        )
        return np.array([objective.value(outcome) for outcome in outcomes])
