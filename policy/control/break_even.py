"""Whether a move would have paid already: what staying has cost so far, against what going over costs.

Links fall for a quarter of an hour or for good, and nobody knows which it is this time. So a plan is moved to
only when, had the job gone over to it at some decision of the past, it would be better off by now, the pause
and the bytes of the move counted `TIMES`. This is the way out of renting or buying: whoever rents until the
rent paid equals the price, and buys then, never pays more than twice the best choice in hindsight, however
long the need lasts (Karlin, Manasse, Rudolph, Sleator, "Competitive snoopy caching", Algorithmica 3, 1988).
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from policy.control.horizon import egress_usd, pause_s, per_iteration
from policy.core.objective import Objective, Outcome
from twin.estimate.link_state_times import States, iteration_ns, per_second
from twin.core.domain import LinkState
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.core.view import View

Float = NDArray[np.float64]

TIMES = 2.0
"""Links that differ for a while are mostly on their way back. On the training windows 1 is worse than 2 on
quad-70b (97.2 us a token, not 94.5) and on storm (124.4, not 123.8; two seeds), 3 is like 2 (94.5; 124.5).
"""
LOOKED_BACK = 128
"""Decisions looked back at."""


class Hindsight:
    """The links as they were at the decisions of a run so far."""

    def __init__(self, estimator: Estimator, restart_s: float) -> None:
        self._estimator, self._restart_s = estimator, restart_s
        self._seen: deque[tuple[int, LinkState]] = deque(maxlen=LOOKED_BACK)

    def see(self, view: View, carriers: LinkState | None = None) -> None:
        """Remember the links of this decision; `carriers` are those that the layers of a move would take now,
        where messages take others."""
        links = view.forecast.links()
        self._seen.append((view.now_ns, links))
        self._carriers = carriers or links

    def paid(self, view: View, plan: Plan, objective: Objective) -> bool:
        """Whether going over from the running plan to `plan` at some decision before the last one seen would
        have paid by now; always for a job that does not run yet, and for what costs nothing."""
        if view.plan is None:
            return True
        move = self._estimator.move(view.plan, plan, self._carriers)
        pause = TIMES * pause_s(self._estimator, move, self._restart_s)
        usd = TIMES * egress_usd(self._estimator, move.bytes)
        if pause == 0 and usd == 0:
            return True
        lasted_s = np.diff([ns / NS_PER_S for ns, _ in self._seen])
        seconds = np.maximum(
            np.cumsum(lasted_s[::-1]), 1 / NS_PER_S
        )  # since each of the decisions before, the last one first
        held, gone = (self._done(one, view, lasted_s) for one in (view.plan, plan))
        gone = gone * (1 - np.minimum(pause / seconds, 1.0))
        stayed = self._values(view, view.plan, objective, seconds, held, 0.0)
        return bool((self._values(view, plan, objective, seconds, gone, usd) > stayed).any())

    def _done(self, plan: Plan, view: View, lasted_s: Float) -> Float:
        """Iterations since each of the decisions before, the last one first."""
        if not len(lasted_s):
            return np.zeros(0)
        states = States.of([links for _, links in self._seen][:-1])
        rate = per_second(iteration_ns(self._estimator, plan, states, view.slowdown))
        return np.cumsum((rate * lasted_s)[::-1])

    def _values(
        self, view: View, plan: Plan, objective: Objective, seconds: Float, done: Float, moved_usd: float
    ) -> Float:
        """The objective over each stretch of time, `done` iterations in `seconds`."""
        busy_s, usd = per_iteration(self._estimator, plan, view.slowdown)
        outcomes = (
            Outcome(length / work, busy_s * work / length, usd + moved_usd / work)
            if work > 0
            else Outcome(float("inf"), 0.0, 0.0)
            for length, work in zip(seconds.tolist(), done.tolist(), strict=True)
        )
        return np.array([objective.value(outcome) for outcome in outcomes])
