"""The knobs that cost nothing to turn, set for a plan that runs or is gone over to: relay routes and warm-up
depth (spec 4.5 d).

Which domain computes what is decided first, for what links and relays give (`policy.relays`); then the routes
of that plan's messages, and how many micro-batches it sends ahead. Turning places nothing elsewhere and stops
nothing, so the knobs are set for the links as they are now, and again at every decision. On training windows
of mpc that is better than for the scenarios of the time until the next one: planet-405b by 2.2 %, octo-175b
by 0.9 %; storm, quad-70b and geant-70b differ by less than 0.1 %. They are timed exactly, with the links that
the plan's own messages share.

Links with half of their relays are a rough picture. So before layers move, and for the first plan of a run,
candidates are compared once more over the whole horizon, each with its own knobs turned, and so is the plan
that runs. On training windows of mpc that brings 0.7 % on storm, 1.0 % on quad-70b, 0.9 % on octo-175b.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from policy.control.horizon import SCENARIOS, Horizon, egress_usd, pause_s, per_iteration
from policy.core.objective import Objective, Outcome, speed_alone
from policy.core.protocol import Context, Decision
from twin.estimate.link_state_times import States, per_second
from policy.control.relay_links import Relays, message_bits, soonest, through_bps
from policy.control.relayed_times import time_ns, times_ns
from policy.baselines.static import base_plan
from twin.core.domain import LinkState
from twin.estimate.estimator import Estimator
from twin.pipeline.kernel import DEAD
from twin.costs.migration import move_bytes, needs_restart
from twin.core.plan import Plan
from twin.costs.wan_traffic import crossings
from twin.core.view import View

Float = NDArray[np.float64]
Link = tuple[int, int]

DEPTHS = (0, 1, 2, 3, 4, 6, 8)
"""Extra warm-up depths that are tried."""
DEEPENED = ("1f1b", "crosspipe")
"""Schedules with a warm-up that can be deepened."""
SOONER = 0.03
"""A way must bring messages so much sooner than the one in use; telemetry is no better than that."""
WORTH = 0.002
"""Turning must gain more than this share: estimates waver, and every turn is a change that people read."""
LONGER = 1.1
"""Another candidate may stop training for so many times as long as the one that was decided for: that one has
been held to what it would have cost in the past (`policy.hindsight`)."""


def plain(plan: Plan) -> Plan:
    """The plan with its knobs as searches have them."""
    return replace(plan, routes=(), extra_warmup=0)


def deepened(estimator: Estimator, plan: Plan) -> Iterator[Plan]:
    """The plan with every other warm-up depth that fits in memory."""
    if plan.schedule not in DEEPENED or plan.sync is not None or len(plan.shares) < 2:
        return
    for depth in DEPTHS:
        other = replace(plan, extra_warmup=depth)
        if depth != plan.extra_warmup and not estimator.problems(other):
            yield other


class _Tuned(NamedTuple):
    """A plan as candidates have it, and as it would run: the seconds of its iterations now, those that going
    over to it stops training for, and what it is worth over the horizon, both counted."""

    goal: Plan
    best: Plan
    iter_s: float
    lost_s: float
    worth: float


class Knobs:
    """Sets the knobs of plans of one run."""

    def __init__(self, context: Context) -> None:
        self._estimator, self._context = context.estimator, context
        self._relayed = speed_alone(context.weights)
        self._through_bps = through_bps(context.cluster)
        self._asked: tuple[Plan, tuple[int, ...]] | None = None
        self._answer = False

    def view(self, view: View) -> View:
        """What is decided by: the running plan with plain knobs, and links as messages find them over relays.
        The links themselves where more than speed counts: what passes a third domain is paid for twice."""
        seen = replace(view, plan=None if view.plan is None else plain(view.plan))
        return replace(seen, forecast=self._relays(view).forecast(view.forecast)) if self._relayed else seen

    def seen(self, view: View, horizon: Horizon) -> tuple[View, Horizon]:
        """`view`, and the time ahead with the same links."""
        return self.view(view), self._relays(view).horizon(horizon) if self._relayed else horizon

    def _relays(self, view: View) -> Relays:
        """For messages of the running plan; before there is one of the static plan, or the least there can
        be."""
        job, plan = self._estimator.job, view.plan or base_plan(self._estimator, view)
        least = job.message_bytes(min(job.micro_batches_allowed)) * BITS_PER_BYTE
        return Relays(self._context.cluster, float(least) if plan is None else message_bits(job, plan))

    def turn(
        self, decision: Decision, view: View, horizon: Horizon, objective: Objective, *, deepen: bool = True
    ) -> Decision:
        """A decision between plans with plain knobs as one for `view`, whose plan has them turned already: to
        hold becomes to turn where that pays; to move becomes to stay where only moving to plain knobs would
        pay, or to move to another candidate that is worth more with its own. `horizon` has the links
        themselves; without `deepen` the warm-up depth of a plan that is held stays. What is predicted is of
        the plan as it will run; scores stay those of plain knobs."""
        kept = view.plan is not None and decision.plan in (None, plain(view.plan))
        goal = view.plan if kept else decision.plan
        if goal is None or goal.sync is not None or not self._legal(goal, view.free_gpus):
            return decision
        if kept:
            best, iter_s = self._best(goal, view, horizon, objective, deepen=deepen)
            return _told(decision, view, goal, best, iter_s)
        return self._gone(decision, goal, view, horizon, objective)

    def _gone(
        self, decision: Decision, new: Plan, view: View, horizon: Horizon, objective: Objective
    ) -> Decision:
        """A decision to go over to a plan: to that candidate which is worth most with its knobs turned, where
        speed alone counts; or to stay where the old plan with its knobs turned is worth as much."""
        old, chosen = view.plan, self._tuned(new, view, horizon, objective)
        longest_s = LONGER * chosen.lost_s
        for plan in self._rivals(decision, new, view) if self._relayed else ():
            rival = self._tuned(plan, view, horizon, objective)
            if rival.lost_s <= longest_s and rival.worth > chosen.worth + self._least(chosen, objective):
                chosen = rival
        if old is not None and old.sync is None and not self._estimator.problems(old, view.free_gpus):
            stay = self._tuned(old, view, horizon, objective)
            if chosen.worth <= stay.worth + self._least(stay, objective):
                why = "the running plan is worth no less with its knobs turned"
                return _told(_other(decision, None, why), view, old, stay.best, stay.iter_s)
        if chosen.goal != new:
            why = f"worth most with its knobs turned: {chosen.goal}; without"
            decision = _other(decision, chosen.goal, why)
        return _told(decision, view, chosen.goal, chosen.best, chosen.iter_s)

    def _rivals(self, decision: Decision, new: Plan, view: View) -> Iterator[Plan]:
        """The candidates behind the chosen one that promise more than to hold. Those before it are refused:
        they gain too little, or would not have paid."""
        old = None if view.plan is None else plain(view.plan)
        scores = {one.plan: one.score for one in decision.candidates}
        held, most = scores.get(old, float("-inf")) if old else float("-inf"), scores.get(new, float("inf"))
        for plan, score in scores.items():
            promises = held < score <= most and plan not in (new, old) and plan.sync is None
            if promises and not self._estimator.problems(plan, view.free_gpus):
                yield plan

    def _tuned(self, goal: Plan, view: View, horizon: Horizon, objective: Objective) -> "_Tuned":
        """A plan that is gone over to, or kept, with its knobs turned."""
        best, iter_s = self._best(goal, view, horizon, objective, deepen=True)
        lost_s, usd = 0.0, 0.0
        if view.plan is not None:
            best = self._carried(view.plan, best, horizon)
            move = self._estimator.move(view.plan, best, horizon.moving)
            lost_s = min(pause_s(self._estimator, move, self._context.restart_s), horizon.length_s)
            usd = egress_usd(self._estimator, move.bytes)
        return _Tuned(goal, best, iter_s, lost_s, self._worth(best, view, horizon, objective, lost_s, usd))

    def _worth(
        self, plan: Plan, view: View, horizon: Horizon, objective: Objective, lost_s: float, usd: float
    ) -> float:
        """What a plan is worth over the horizon after a pause, in the mean over its scenarios."""
        rate = per_second(times_ns(self._estimator, plan, horizon.states, view.slowdown))
        left_s = np.diff(np.maximum(horizon.edges_s, lost_s))
        done = float(rate.reshape(horizon.slices, SCENARIOS).mean(axis=1) @ left_s)
        if done <= 0:
            return float("-inf")
        length_s = horizon.length_s
        if self._relayed:
            return objective.value(Outcome(length_s / done, 0.0, 0.0))
        busy_s, each_usd = per_iteration(self._estimator, plan, view.slowdown)
        return objective.value(Outcome(length_s / done, busy_s * done / length_s, each_usd + usd / done))

    def _least(self, tuned: "_Tuned", objective: Objective) -> float:
        """By how much another plan has to be worth more."""
        share = tuned.iter_s / objective.base.iter_s
        return WORTH * min(share, 1.0)

    def _legal(self, plan: Plan, free_gpus: tuple[int, ...]) -> bool:
        """Whether a plan can run; the last answer is kept."""
        asked = plan, tuple(free_gpus)
        if asked != self._asked:
            self._asked, self._answer = asked, not self._estimator.problems(*asked)
        return self._answer

    def _best(
        self, goal: Plan, view: View, horizon: Horizon, objective: Objective, *, deepen: bool
    ) -> tuple[Plan, float]:
        """The goal, or the best of its variants under the present links if that is worth turning to; and the
        seconds of its iterations then."""
        links = horizon.now
        found = cache(lambda plan: self._outcome(plan, links, view.slowdown))

        def value(plan: Plan) -> float:
            return objective.value(found(plan))

        best = goal
        for plan in self._routed(goal, States.of([links]), widely=deepen):
            best = max(best, plan, key=value)
        for plan in deepened(self._estimator, best) if deepen else ():
            best = max(best, plan, key=value)
        before = found(goal).iter_s / objective.base.iter_s
        if best is not goal and value(best) <= value(goal) + WORTH * min(before, 1.0):
            best = goal
        return best, found(best).iter_s

    def _outcome(self, plan: Plan, links: LinkState, slowdown: Float) -> Outcome:
        """What a plan brings under these links."""
        iter_ns = time_ns(self._estimator, plan, links, slowdown)
        if iter_ns == DEAD:
            return Outcome(float("inf"), 0.0, 0.0)
        iter_s = iter_ns / NS_PER_S
        if self._relayed:
            return Outcome(iter_s, 0.0, 0.0)
        busy_s, usd = per_iteration(self._estimator, plan, slowdown)
        return Outcome(iter_s, busy_s / iter_s, usd)

    def _routed(self, plan: Plan, states: States, *, widely: bool) -> Iterator[Plan]:
        """The plan with relays by which messages arrive sooner than now, beside the others of the plan; if
        `widely`, also with those that are best for each pair alone, and without relays."""
        pairs = crossings(self._estimator.job, plan)
        used = tuple(route for route in plan.routes if (route[0], route[-1]) in pairs)
        found = [
            self._soonest(plan, pairs, states, beside=beside) for beside in ((True, False)[: 1 + widely])
        ]
        for routes in dict.fromkeys([*found, ()] if widely else found):
            if routes != used:
                yield replace(plan, routes=routes)

    def _soonest(
        self, plan: Plan, pairs: Sequence[Link], states: States, *, beside: bool
    ) -> tuple[tuple[int, ...], ...]:
        """For each pair the relay by which messages arrive soonest, where that is sooner than directly."""
        known = {(route[0], route[-1]): route[1] for route in plan.routes if len(route) == 3}
        via = np.array([known.get(pair, -1) for pair in pairs], dtype=np.int64)
        source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
        bits = message_bits(self._estimator.job, plan)
        bandwidth, latency = states.bandwidth_bps, np.ascontiguousarray(states.latency_s)
        soonest(bandwidth, latency, self._through_bps, bits, source, target, beside, SOONER, via)
        return tuple((i, k, j) for (i, j), k in zip(pairs, via.tolist(), strict=True) if k >= 0)

    def _carried(self, old: Plan, new: Plan, horizon: Horizon) -> Plan:
        """With relays for the layers that move, too, where that shortens the move and speed alone counts:
        what passes a third domain is paid for twice."""
        if not (self._relayed and needs_restart(old, new)):
            return new
        estimator, links = self._estimator, horizon.moving
        moved = move_bytes(estimator.job, old, new, estimator.cluster.size)
        taken = {(route[0], route[-1]) for route in new.routes} | set(crossings(estimator.job, new))
        more = []
        for i, j in zip(*np.nonzero(moved), strict=True):
            if i != j and (i, j) not in taken:
                width = np.minimum(links.bandwidth_bps[i], links.bandwidth_bps[:, j])
                width[[i, j]] = 0.0
                k = int(np.argmax(width))
                if width[k] > links.bandwidth_bps[i, j]:
                    more.append((int(i), k, int(j)))
        relayed = replace(new, routes=(*new.routes, *more))
        direct_s, relayed_s = (estimator.move(old, plan, links).seconds for plan in (new, relayed))
        return relayed if more and relayed_s < direct_s else new


def _other(decision: Decision, goal: Plan | None, why: str) -> Decision:
    """The decision for another plan than what was expected to gain; what was predicted is not of this one."""
    reason, extra = f"{why}: {decision.reason}", decision.extra | {"gain": None}
    return replace(decision, plan=goal, reason=reason, predicted_iter_s=None, extra=extra)


def _told(decision: Decision, view: View, goal: Plan, best: Plan, iter_s: float) -> Decision:
    """The decision with the plan as it is to run; among what was compared, too."""
    answer = None if best == view.plan else best
    as_they_run = {plain(plan): plan for plan in (view.plan, best) if plan is not None}
    shown = tuple(replace(one, plan=as_they_run.get(one.plan, one.plan)) for one in decision.candidates)
    reason = decision.reason
    if answer is not None and decision.plan is None:
        reason += f"; turns{_turned(goal, best)}"
    predicted = iter_s if np.isfinite(iter_s) else decision.predicted_iter_s
    return replace(decision, plan=answer, reason=reason, candidates=shown, predicted_iter_s=predicted)


def _turned(old: Plan, new: Plan) -> str:
    """What differs between the knobs of two plans."""
    parts = []
    if old.routes != new.routes:
        via = ", ".join("-".join(map(str, route)) for route in new.routes)
        parts.append(f" to routes {via}" if via else " to direct routes")
    if old.extra_warmup != new.extra_warmup:
        parts.append(f" to a warm-up of {new.extra_warmup} more")
    return " and".join(parts)
