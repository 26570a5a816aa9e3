"""Expected outcomes of many coded plans over the horizon, as `policy.control.horizon` gives them for plans.

Slices, scenarios, later moves, pause and egress of a move and objective are those of `mpc` (tested equal). An
approximation is hundreds of times cheaper.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy.control.horizon import Horizon, outcomes_of
from policy.core.objective import Objective, PlanOutcome, speed_alone
from policy.core.recourse import TwoStageProgram
from policy.hippo.tables.batch_timing import PipelineBatch, Timer, rate
from policy.hippo.tables.planning_tables import Codes
from twin.estimation.link_state_times import States
from twin.pipeline.kernel import DEAD

Int = NDArray[np.int64]
Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PlanEvaluator:
    """Expected outcomes of plans at one decision, with the move from `running` (one plan, None: nothing
    placed).

    Exact times are over the links of `direct`; where `relayed`, over relays as the plan's own messages share
    them, else over relays where a direct link is dead (as `policy.control.plan_rates`). Approximations are
    over the links of `horizon`, which pairs of domains get over relays if nothing else is sent.
    """

    timer: Timer
    horizon: Horizon
    direct: Horizon
    relayed: bool
    slowdown: Float
    running: Codes | None
    restart_s: float

    def compare(
        self, codes: Codes, objective: Objective, *, exact: bool = True
    ) -> tuple[list[PlanOutcome], list[PlanOutcome]]:
        """Returns the outcome of each plan if it may be left later for another of them, and if it is kept."""
        prospects = self._prospects(codes, exact=exact)
        best = prospects.best_somewhere(objective)
        p, q = np.indices((len(codes), len(best))).reshape(2, -1)
        seconds, usd = (x.reshape(len(codes), -1) for x in self._moves(codes.take(p), codes.take(best[q])))
        brought = prospects.with_recourse(best, seconds, usd, objective)
        length_s = self.horizon.length_s
        return outcomes_of(brought, length_s), outcomes_of(prospects.without_recourse(), length_s)

    def kept(self, codes: Codes) -> list[PlanOutcome]:
        """Returns the outcome of each plan if it is kept."""
        return outcomes_of(self._prospects(codes, exact=True).without_recourse(), self.horizon.length_s)

    def approximate(self, codes: Codes) -> tuple[list[PlanOutcome], Float]:
        """Approximates by the closed form of an iteration's time: returns the outcome of each plan under the
        median links if it is kept, and its iterations/s at the end of each of N scenarios, (P, N).
        """
        rows, horizon = self.timer.rows(codes, self.slowdown), self.horizon
        speed = rate(self.timer.closed_form_ns(rows, *_broadcast(horizon.summary, len(codes))))
        rates = speed[:, : horizon.slices, None]
        kept = self._with_rates(codes, rates, rows).without_recourse()
        return outcomes_of(kept, horizon.length_s), speed[:, horizon.slices :]

    def approximate_values(self, codes: Codes, objective: Objective) -> Float:
        """Returns a value (P,) that orders plans by the objective, by the closed form under the median links
        of the last, longest slice: iterations/s where speed alone has weight."""
        rows = self.timer.rows(codes, self.slowdown)
        speed = rate(self.timer.closed_form_ns(rows, *_broadcast(_last(self.horizon), len(codes))))[:, 0]
        if speed_alone(objective.weights):
            return speed
        usd = self.timer.problem.usd(codes)
        return np.array(
            [
                objective.value(PlanOutcome(1 / fast if fast > 0 else np.inf, busy * fast, cost))
                for fast, busy, cost in zip(speed.tolist(), rows.busy_s.tolist(), usd.tolist(), strict=True)
            ]
        )

    def _prospects(self, codes: Codes, *, exact: bool) -> TwoStageProgram:
        """Times plans exactly under every scenario; else exactly under the median links of the last slice, in
        proportion to the closed form elsewhere.
        """
        rows = self.timer.rows(codes, self.slowdown)
        if exact:
            return self._with_rates(codes, self.horizon.sliced(self._exact(rows, self.direct.states)), rows)
        true = self._exact(rows, _last(self.direct))
        approximate, everywhere = (
            rate(self.timer.closed_form_ns(rows, *_broadcast(states, len(codes))))
            for states in (_last(self.horizon), self.horizon.states)
        )
        scale = np.where(approximate > 0, true / np.where(approximate > 0, approximate, 1.0), 1.0)
        return self._with_rates(codes, self.horizon.sliced(scale * everywhere), rows)

    def _exact(self, rows: PipelineBatch, states: States) -> Float:
        """Iterations/s in each state, (P, T)."""
        links = _broadcast(states, len(rows.busy_s))
        if self.relayed:
            return rate(self.timer.best_relay_ns(rows, *links)[0])
        ns = self.timer.iter_ns(rows, *links)
        if (ns == DEAD).any():
            ns = np.where(ns == DEAD, self.timer.best_relay_ns(rows, *links)[0], ns)
        return rate(ns)

    def _with_rates(self, codes: Codes, rates: Float, rows: PipelineBatch) -> TwoStageProgram:
        pause, moved_usd = np.zeros(len(codes)), np.zeros(len(codes))
        if self.running is not None:
            pause, moved_usd = self._moves(self.running.take(np.zeros(len(codes), np.int64)), codes)
        usd = self.timer.problem.usd(codes)
        return TwoStageProgram(self.horizon.edges_s, rates, pause, moved_usd, rows.busy_s, usd)

    def _moves(self, old: Codes, new: Codes) -> tuple[Float, Float]:
        """Seconds and egress USD of going from `old[p]` to `new[p]` under the present links."""
        now = self.horizon.migration_links
        shape = (len(new), *now.latency_s.shape)
        links = np.broadcast_to(now.bandwidth_bps, shape), np.broadcast_to(now.latency_s, shape)
        seconds, usd = self.timer.moves(old, new, *links)
        return np.where(seconds < 0, 0.0, seconds + self.restart_s), usd


def _last(horizon: Horizon) -> States:
    """The median links of the last slice."""
    last = horizon.median[-1]
    return States(last.bandwidth_bps[None], last.latency_s[None])


def _broadcast(states: States, plans: int) -> tuple[Float, Float]:
    """The same states for every plan."""
    shape = (plans, *states.bandwidth_bps.shape)
    return np.broadcast_to(states.bandwidth_bps, shape), np.broadcast_to(states.latency_s, shape)
