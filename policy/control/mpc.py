"""`mpc`: model-predictive control; forecast over a horizon, moving cost, uncertainty, hysteresis.

At every trigger: search plans for the links as they are and as they may become (`policy.scout`), compute
what each of them and holding would bring over the horizon (`policy.horizon`), move only when the best beats
holding by a margin and would have paid already (`policy.hindsight`). Because forecasts revert to each link's
mean, a dip that will not last is not worth a move.
"""

from dataclasses import dataclass, replace

from policy.control.decision_rule import weighed
from policy.baselines.greedy import nothing_runs
from policy.control.break_even import Hindsight
from policy.control.horizon import Asked, Horizon, ahead
from policy.control.knobs import Knobs
from policy.baselines.replan_conditions import usable
from policy.core.objective import Objective, Outcome
from policy.core.protocol import Context, Decision
from policy.control.candidate_search import Scout, Watch
from policy.baselines.static import base_plan
from twin.core.plan import Plan
from twin.core.view import View


@dataclass(frozen=True, slots=True)
class Tuning:
    """The constants of `mpc`; `benchmarks/tune_mpc.py` compares others on the training windows."""

    horizon_s: float  # over which a move has to pay for itself
    margin: float  # share of the running plan's time that a move must gain over holding
    candidates: int = 18  # plans compared with the running one
    outage_s: float = 600.0  # a dead link is expected back after this, or after as long again as it was dead


TUNED = Tuning(horizon_s=7200.0, margin=0.02)
"""A move has to pay within two hours, by more than a fiftieth of the running plan's time. On the training
windows one hour is worse on storm (128.7 us a token, not 123.8; two seeds); four hours are better on quad-70b
(93.8, not 94.5) and worse on storm (122.8, not 121.1; four seeds); on geant-70b they differ little. A
margin of 0.01 moves 31 times there, not 21, for 66.8 us a token with either; 0.04 reaches 67.1.
"""


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
        self._base: Outcome | None = None
        self._scout = Scout(context.estimator, self.tuning.candidates)
        self._watch = Watch(context.cluster.size, self.tuning.outage_s)
        self._hindsight = Hindsight(context.estimator, context.restart_s)
        self._knobs = Knobs(context)

    def decide(self, view: View) -> Decision:
        """Hold, or move to the plan with the best expected objective over the horizon."""
        direct = ahead(view.forecast, self.tuning.horizon_s, self._watch.outages(view))
        seen, horizon = self._knobs.seen(view, direct)
        objective, decision = self._placed(seen, horizon)
        return self._knobs.turn(decision, view, direct, objective)

    def _placed(self, view: View, horizon: Horizon) -> tuple[Objective, Decision]:
        """Which domain is to compute what."""
        self._hindsight.see(view, horizon.moving)
        asked = Asked(self.estimator, horizon, view.plan, self.restart_s, view.slowdown)
        objective = self._objective(view, asked)
        plans = self._candidates(view, horizon, objective)
        if not plans:
            return objective, nothing_runs(self.estimator, view)
        found, kept = asked.compared(plans, objective)
        margin = self.tuning.margin
        return objective, weighed(
            view, plans, found, kept, objective, margin=margin, hindsight=self._hindsight
        )

    def _candidates(self, view: View, horizon: Horizon, objective: Objective) -> list[Plan]:
        """The running plan if it is legal, and what promises most, without repetition."""
        running = view.plan if usable(self.estimator, view) else None
        found = self._scout.plans(view, horizon, objective, running)
        return list(dict.fromkeys([*([] if running is None else [running]), *found]))

    def _objective(self, view: View, asked: Asked) -> Objective:
        """The objective relative to the static plan over the horizon; the last base while that cannot run."""
        plan = base_plan(self.estimator, view)
        if plan is not None:
            (outcome,) = replace(asked, running=plan).kept([plan])
            if outcome.iter_s < float("inf"):
                self._base = outcome
        return Objective(self.weights, self._base or Outcome(1.0, 0.0, 0.0))
