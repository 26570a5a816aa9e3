"""`mpc`: model-predictive control; forecast over a horizon, moving cost, uncertainty, hysteresis.

At every trigger: search the best plans under the present and under two later forecasts, compute what each of
them and holding would bring over the horizon (`policy.horizon`), move only when the best beats holding by a
margin. Because forecasts revert to each link's mean, a dip that will not last is not worth a move.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.units import NS_PER_S
from policy.greedy import nothing_runs
from policy.horizon import Horizon, Outages, ahead, outcomes, per_iteration
from policy.legal import usable
from policy.objective import Objective, Outcome
from policy.protocol import Candidate, Context, Decision
from policy.search import Pool, build, explore
from policy.shapes import Shape
from policy.static import base_plan
from twin.domain import LinkState, Matrix
from twin.plan import Plan
from twin.view import View


@dataclass(frozen=True, slots=True)
class Tuning:
    """The constants of `mpc`; `benchmarks/tune_mpc.py` compares others on the training windows."""

    horizon_s: float  # over which a move has to pay for itself
    margin: float  # in units of the objective, that a move must gain over holding
    per_forecast: int = 6  # candidates taken from each forecast's search
    outage_s: float = 600.0  # a dead link is expected back after this, or after as long again as it was dead
    same: float = 0.05  # links that differ by less than this share are not searched again,
    drifted: float = 0.3  # and only around what was found when they differ by less than this


TUNED = Tuning(horizon_s=3600.0, margin=0.01)
"""A move has to pay within the hour, by more than a hundredth of the static plan's time. On whole training
windows this reaches R = 0.228 on tri-7b, as every setting there, and 0.312 on quad-70b, where half an hour
to four hours x 0.005 to 0.08 reach 0.292 to 0.325.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Searched:
    """What the last search of one part of the horizon found, the links it was for, and those of the last
    wide one.
    """

    links: LinkState
    wide: LinkState
    free_gpus: tuple[int, ...]
    slowdown: Matrix
    plans: tuple[Plan, ...]

    def suits(self, view: View) -> bool:
        """Whether the machines are still those of the search."""
        return self.free_gpus == view.free_gpus and np.array_equal(self.slowdown, view.slowdown)


def _varied(pool: Pool, fastest: int) -> list[tuple[int, Shape, tuple[int, ...]]]:
    """The fastest shapes, and the fastest one of every order: prices differ by order, not by speed."""
    ranked = pool.best_by_shape()
    by_order: dict[tuple[int, ...], tuple[int, Shape, tuple[int, ...]]] = {}
    for entry in ranked:
        by_order.setdefault(entry[1].order, entry)
    return list(dict.fromkeys([*ranked[:fastest], *by_order.values()]))


def _differ(a: LinkState, b: LinkState) -> float:
    """Largest relative difference between the bandwidths of two states; infinite where one lives and one
    is dead.
    """
    off = ~np.eye(len(a.latency_s), dtype=np.bool_)
    first, second = a.bandwidth_bps[off], b.bandwidth_bps[off]
    both = (first > 0) & (second > 0)
    if not np.array_equal(first > 0, second > 0):
        return float("inf")
    return float(np.abs(first[both] / second[both] - 1).max(initial=0.0))


class Mpc:
    """The strongest simple planner: moves when a move is expected to pay within the horizon, with a
    margin.
    """

    name = "mpc"

    def __init__(self, tuning: Tuning = TUNED) -> None:
        self.tuning = tuning

    def reset(self, context: Context) -> None:
        """Start a run."""
        self.estimator = context.estimator
        self.weights, self.restart_s = context.weights, context.restart_s
        size = context.cluster.size
        self._alive_bps: Matrix = np.zeros((size, size))
        self._died_ns = np.full((size, size), -1, dtype=np.int64)
        self._base: Outcome | None = None
        self._searched: dict[int, _Searched] = {}

    def decide(self, view: View) -> Decision:
        """Hold, or move to the plan with the best expected objective over the horizon."""
        horizon = ahead(view.forecast, self.tuning.horizon_s, self._outages(view))
        objective = self._objective(view, horizon)
        plans = self._candidates(view, horizon, objective)
        if not plans:
            return nothing_runs(self.estimator, view)
        found = self._outcomes(plans, horizon, view.plan, view, objective)
        scored = [
            Candidate(plan, objective.value(out), out.iter_s, out.utilisation, out.usd)
            for plan, out in zip(plans, found, strict=True)
        ]
        return self._choose(view, sorted(scored, key=lambda c: -c.score))

    def _choose(self, view: View, ranked: list[Candidate]) -> Decision:
        best, shown = ranked[0], tuple(ranked[:16])
        if best.score == float("-inf") and view.plan is not None:
            return Decision(None, "nothing is expected to run within the horizon", shown)
        held = next((c for c in ranked if c.plan == view.plan), None)
        if held is None:
            return Decision(best.plan, f"best expected plan: {best.plan}", shown, best.iter_s)
        gain = best.score - held.score
        extra = {"gain": gain if np.isfinite(gain) else None, "margin": self.tuning.margin}
        if best is held or gain <= self.tuning.margin:
            reason = f"the best move gains {gain:.4f}, not more than the margin of {self.tuning.margin:g}"
            return Decision(None, reason, shown, held.iter_s, extra=extra)
        reason = f"expected to gain {gain:.4f}: {best.plan}"
        return Decision(best.plan, reason, shown, best.iter_s, extra=extra)

    def _candidates(self, view: View, horizon: Horizon, objective: Objective) -> list[Plan]:
        """The running plan if it is legal, and the best of three forecasts, without repetition."""
        running = view.plan if usable(self.estimator, view) else None
        plans: dict[Plan, None] = {} if running is None else {running: None}
        last = len(horizon.middle) - 1
        for part in dict.fromkeys((0, (last + 1) // 2, last)):
            plans |= dict.fromkeys(self._best(view, part, horizon.middle[part], objective, running))
        return list(plans)

    def _best(
        self, view: View, part: int, links: LinkState, objective: Objective, running: Plan | None
    ) -> Sequence[Plan]:
        """The best plans of one link state, at most one for each shape, by the objective without moving."""
        before, tuning = self._searched.get(part), self.tuning
        if before is not None and before.suits(view) and _differ(links, before.links) <= tuning.same:
            return before.plans
        if before is not None and before.suits(view) and _differ(links, before.wide) <= tuning.drifted:
            wide, pool = before.wide, Pool(self.estimator, links, view.free_gpus, view.slowdown)
            for plan in dict.fromkeys([*before.plans, *([running] if running else [])]):
                pool.climb_from(plan)
        else:
            wide = links
            pool = explore(
                self.estimator, links, free_gpus=view.free_gpus, slowdown=view.slowdown, start=running
            )
        found: list[tuple[float, int, Plan]] = []
        for ns, shape, cuts in _varied(pool, 6 * tuning.per_forecast):
            plan = build(self.estimator, shape, cuts)
            busy_s, usd = per_iteration(self.estimator, plan, view.slowdown)
            seconds = ns / NS_PER_S
            found.append((-objective.value(Outcome(seconds, busy_s / seconds, usd)), len(found), plan))
        plans = tuple(plan for _, _, plan in sorted(found)[: tuning.per_forecast])
        self._searched[part] = _Searched(links, wide, view.free_gpus, view.slowdown, plans)
        return plans

    def _objective(self, view: View, horizon: Horizon) -> Objective:
        """The objective relative to the static plan over the horizon; the last base while that cannot run."""
        plan = base_plan(self.estimator, view)
        if plan is not None:
            (outcome,) = self._outcomes([plan], horizon, plan, view)
            if outcome.iter_s < float("inf"):
                self._base = outcome
        return Objective(self.weights, self._base or Outcome(1.0, 0.0, 0.0))

    def _outcomes(
        self,
        plans: list[Plan],
        horizon: Horizon,
        running: Plan | None,
        view: View,
        objective: Objective | None = None,
    ) -> list[Outcome]:
        return outcomes(
            self.estimator,
            plans,
            horizon,
            running=running,
            restart_s=self.restart_s,
            slowdown=view.slowdown,
            objective=objective,
        )

    def _outages(self, view: View) -> Outages:
        """A dead link is expected back with its last bandwidth; the longer it has been dead, the later."""
        now = view.forecast.bandwidth_bps[0]
        dead = now <= 0
        self._alive_bps = np.where(dead, self._alive_bps, now)
        self._died_ns = np.where(dead, np.where(self._died_ns < 0, view.now_ns, self._died_ns), -1)
        been_s = (view.now_ns - self._died_ns) / NS_PER_S
        return Outages(np.where(dead, np.maximum(self.tuning.outage_s, been_s), 0.0), self._alive_bps)
