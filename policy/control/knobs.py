"""Free knobs of a plan, relay routes, schedule and warm-up depth, set for a plan that runs or is migrated to.

Plans are chosen first, under links that include relays (`policy.control.relay_links`); then the routes of the
plan's messages, its schedule, where the job allows several (`job.schedules`), and its warm-up depth are set.
Changing them stops nothing, so they are set for the present
links at every decision. On training windows of mpc that is better than setting them for the scenarios until
the next decision: planet-405b by 2.2 %, octo-175b by 0.9 %; storm, quad-70b and geant-70b differ by less than
0.1 %. Plans are timed exactly, with the links that their messages share.

The links used in the search, half of each relay, are an approximation. What it finds is compared with relays
chosen anew for each plan in every state (`policy.control.plan_rates`), as they will be turned here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import BITS_PER_BYTE, NS_PER_S
from policy.control.horizon import Horizon, PlanComparison, per_iteration
from policy.control.plan_rates import PlanRates
from policy.control.relay_links import (
    MessageLinks,
    RelayPaths,
    choose_relays,
    forwarding_bps,
    message_bits,
)
from policy.control.relayed_times import time_ns
from policy.core.objective import Objective, PlanOutcome, free_egress, speed_alone
from policy.core.protocol import Context, Decision
from policy.core.reference_plan import base_plan
from twin.core.job import JobSpec
from twin.core.plan import Plan, Schedule
from twin.core.view import View
from twin.costs.migration import move_bytes, needs_restart
from twin.costs.wan_traffic import crossings
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States
from twin.pipeline.kernel import DEAD

Float = NDArray[np.float64]
Link = tuple[int, int]

WARMUP_DEPTHS = (0, 1, 2, 3, 4, 6, 8)
"""Extra warm-up depths that are tried."""
WARMUP_SCHEDULES = ("1f1b", "crosspipe")
"""Schedules whose warm-up can be deeper."""
MIN_ROUTE_GAIN = 0.03
"""Share by which a route must bring messages sooner than the one in use; telemetry is no more precise."""
MIN_GAIN = 0.002
"""Share that a change of knobs must gain: estimates vary, and people read every change."""
PLANS_KEPT = 256
"""Plans whose schedules and warm-up depths are kept."""


def default_knobs(job: JobSpec, plan: Plan) -> Plan:
    """Returns the plan with the knobs that searches assume: direct routes, no extra warm-up, and of several
    schedules that the job allows its first choice."""
    schedule = job.schedule if plan.schedule in job.schedules else plan.schedule
    if not plan.routes and plan.extra_warmup == 0 and plan.schedule == schedule:
        return plan
    return replace(plan, routes=(), extra_warmup=0, schedule=schedule)


def free_variants(estimator: Estimator, plan: Plan) -> Iterator[Plan]:
    """Yields the plan with every other warm-up depth that fits in memory, under its own schedule and under
    every other one that the job allows."""
    if plan.sync is not None:
        return
    allowed = estimator.job.schedules if plan.schedule in estimator.job.schedules else ()
    for schedule in dict.fromkeys((plan.schedule, *allowed)):
        deepens = schedule in WARMUP_SCHEDULES and len(plan.shares) > 1
        depths = WARMUP_DEPTHS if deepens else (0,) if schedule != plan.schedule else ()
        for depth in depths:
            other = replace(plan, schedule=schedule, extra_warmup=depth)
            if other != plan and not estimator.problems(other):
                yield other


class KnobTuner:
    """Sets the knobs of plans of one run."""

    def __init__(self, context: Context) -> None:
        self._estimator, self._context = context.estimator, context
        self._relayed, self._fast = free_egress(context.weights), speed_alone(context.weights)
        self._forwarding_bps = forwarding_bps(context.cluster)
        self._rates = PlanRates(context.estimator, self._relayed)
        self._checked: tuple[Plan, tuple[int, ...]] | None = None
        self._known_variants: dict[Plan, tuple[tuple[Schedule, int], ...]] = {}
        self._is_legal = False

    def planning_view(self, view: View) -> View:
        """Returns the view that plans are chosen by: the running plan with default knobs, and links over the
        best relays. Direct links where money has weight: relayed egress is paid twice."""
        return self._planning_view(view, self._relays(view) if self._relayed else None)

    def planning_inputs(self, view: View, horizon: Horizon) -> tuple[View, Horizon]:
        """Returns `planning_view`, and the horizon with the same links."""
        paths = self._relays(view) if self._relayed else None
        return self._planning_view(view, paths), horizon if paths is None else paths.horizon(horizon)

    def _planning_view(self, view: View, paths: RelayPaths | None) -> View:
        plan = None if view.plan is None else default_knobs(self._estimator.job, view.plan)
        if paths is None:
            return replace(view, plan=plan)
        return replace(view, plan=plan, forecast=paths.forecast(view.forecast))

    def _relays(self, view: View) -> RelayPaths:
        """Returns the routes for messages of the running plan; without one for those of the static plan, or
        else the smallest messages."""
        job, plan = self._estimator.job, view.plan or base_plan(self._estimator, view)
        least = job.message_bytes(min(job.micro_batches_allowed)) * BITS_PER_BYTE
        return RelayPaths(self._context.cluster, float(least) if plan is None else message_bits(job, plan))

    def tune(
        self,
        decision: Decision,
        view: View,
        horizon: Horizon,
        objective: Objective,
        *,
        deepen: bool = True,
    ) -> Decision:
        """Returns a decision between plans with default knobs as one for `view`, whose plan has tuned knobs.

        A hold becomes a change of knobs where that gains. `horizon` has the direct links; without `deepen`
        the warm-up depth of a plan that is held stays. The prediction is that of the plan as it will run."""
        job = self._estimator.job
        held = view.plan is not None and decision.plan in (None, default_knobs(job, view.plan))
        plan = view.plan if held else decision.plan
        if plan is None or plan.sync is not None or not self._legal(plan, view.free_gpus):
            return decision
        best, iter_s = self._best_variant(plan, view, horizon, objective, deepen=deepen or not held)
        if view.plan is not None and not held:
            best = self._with_migration_relays(view.plan, best, horizon)
            stay = self._worth_staying(view.plan, best, view, horizon, objective)
            if stay is not None:
                why = f"the running plan is worth no less with its knobs turned: {decision.reason}"
                kept = replace(decision, plan=None, reason=why, extra=decision.extra | {"gain": None})
                return _with_knobs(job, kept, view, view.plan, *stay)
        return _with_knobs(job, decision, view, plan, best, iter_s)

    def _worth_staying(
        self, running: Plan, new: Plan, view: View, horizon: Horizon, objective: Objective
    ) -> tuple[Plan, float] | None:
        """Returns the running plan with its knobs turned and the seconds of its iterations, where over the
        horizon that is worth as much as `new`, whose knobs are turned; else None. Candidates are compared at
        the depth that searches assume, and a plan may gain most of its speed by another one."""
        if running.sync is not None or new.sync is not None or not self._legal(running, view.free_gpus):
            return None
        stay, iter_s = self._best_variant(running, view, horizon, objective, deepen=True)
        turned = PlanComparison(
            self._estimator, horizon, running, self._context.restart_s, view.slowdown, self._rates
        )
        held, moved = (objective.value(out) for out in turned.kept_outcomes([stay, new]))
        least = MIN_GAIN * min(iter_s / objective.base.iter_s, 1.0)
        return (stay, iter_s) if moved <= held + least else None

    def _legal(self, plan: Plan, free_gpus: tuple[int, ...]) -> bool:
        """Tells whether a plan can run; the last result is cached."""
        key = plan, tuple(free_gpus)
        if key != self._checked:
            self._checked, self._is_legal = key, not self._estimator.problems(*key)
        return self._is_legal

    def _best_variant(
        self, plan: Plan, view: View, horizon: Horizon, objective: Objective, *, deepen: bool
    ) -> tuple[Plan, float]:
        """Returns the plan, or its best variant under the present links if that gains enough; and the seconds
        of its iterations."""
        links, known = horizon.now, dict[Plan, PlanOutcome]()

        def outcome(variant: Plan) -> PlanOutcome:
            if variant not in known:
                iter_ns = time_ns(self._estimator, variant, links, view.slowdown)
                known[variant] = self._outcome(variant, iter_ns, view.slowdown)
            return known[variant]

        def value(variant: Plan) -> float:
            return objective.value(outcome(variant))

        best = plan
        for variant in self._routed(plan, States.of([links]), widely=deepen):
            best = max(best, variant, key=value)
        variants = self._variants(best) if deepen else ()
        others = [replace(best, schedule=schedule, extra_warmup=depth) for schedule, depth in variants]
        deeper = [one for one in others if one.schedule == best.schedule and not one.routes]
        times = self._estimator.iter_ns_deepened(deeper, links, view.slowdown)
        for variant, iter_ns in zip(deeper, times, strict=True):
            known[variant] = self._outcome(variant, iter_ns, view.slowdown)
        for variant in others:
            best = max(best, variant, key=value)
        before = outcome(plan).iter_s / objective.base.iter_s
        if best is not plan and value(best) <= value(plan) + MIN_GAIN * min(before, 1.0):
            best = plan
        return best, outcome(best).iter_s

    def _variants(self, plan: Plan) -> tuple[tuple[Schedule, int], ...]:
        """Returns the other schedules and warm-up depths (`free_variants`), which no route changes;
        cached."""
        placed = replace(plan, routes=())
        if placed not in self._known_variants:
            if len(self._known_variants) >= PLANS_KEPT:
                self._known_variants.clear()
            found = free_variants(self._estimator, placed)
            self._known_variants[placed] = tuple((one.schedule, one.extra_warmup) for one in found)
        return self._known_variants[placed]

    def _outcome(self, plan: Plan, iter_ns: int, slowdown: Float) -> PlanOutcome:
        """Returns the outcome of a plan whose iterations take so long."""
        if iter_ns == DEAD:
            return PlanOutcome(float("inf"), 0.0, 0.0)
        iter_s = iter_ns / NS_PER_S
        if self._fast:
            return PlanOutcome(iter_s, 0.0, 0.0)
        busy_s, usd = per_iteration(self._estimator, plan, slowdown)
        return PlanOutcome(iter_s, busy_s / iter_s, usd)

    def _routed(self, plan: Plan, states: States, *, widely: bool) -> Iterator[Plan]:
        """Yields the plan with relays by which its messages arrive sooner, links shared among them; if
        `widely`, also with the relays that are best for each pair alone, and without relays."""
        pairs = crossings(self._estimator.job, plan)
        used = tuple(route for route in plan.routes if (route[0], route[-1]) in pairs)
        found = [
            self._best_relays(plan, pairs, states, shared=shared) for shared in (True, False)[: 1 + widely]
        ]
        for routes in dict.fromkeys([*found, ()] if widely else found):
            if routes != used:
                yield replace(plan, routes=routes)

    def _best_relays(
        self, plan: Plan, pairs: Sequence[Link], states: States, *, shared: bool
    ) -> tuple[tuple[int, ...], ...]:
        """Returns for each pair the route over the relay by which messages arrive soonest, if any beats the
        direct link."""
        known = {(route[0], route[-1]): route[1] for route in plan.routes if len(route) == 3}
        via = np.array([known.get(pair, -1) for pair in pairs], dtype=np.int64)
        source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
        bits = message_bits(self._estimator.job, plan)
        latency = np.ascontiguousarray(states.latency_s)
        links = MessageLinks(states.bandwidth_bps, latency, self._forwarding_bps, bits)
        choose_relays(links, source, target, shared, MIN_ROUTE_GAIN, via)
        return tuple((i, k, j) for (i, j), k in zip(pairs, via.tolist(), strict=True) if k >= 0)

    def _with_migration_relays(self, old: Plan, new: Plan, horizon: Horizon) -> Plan:
        """Returns the plan with relays for the layers that move, too, where that shortens the migration and
        money has no weight: relayed egress is paid twice."""
        if not (self._relayed and needs_restart(old, new)):
            return new
        estimator, links = self._estimator, horizon.migration_links
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


def _with_knobs(
    job: JobSpec, decision: Decision, view: View, candidate: Plan, tuned: Plan, iter_s: float
) -> Decision:
    """Returns the decision for the tuned plan, which also replaces its candidate."""
    plan = None if tuned == view.plan else tuned
    tuned_of = {default_knobs(job, plan): plan for plan in (view.plan, tuned) if plan is not None}
    candidates = tuple(replace(one, plan=tuned_of.get(one.plan, one.plan)) for one in decision.candidates)
    reason = decision.reason
    if plan is not None and decision.plan is None:
        reason += f"; turns{_knob_changes(candidate, tuned)}"
    predicted = iter_s if np.isfinite(iter_s) else decision.predicted_iter_s
    return replace(decision, plan=plan, reason=reason, candidates=candidates, predicted_iter_s=predicted)


def _knob_changes(old: Plan, new: Plan) -> str:
    """Returns the differences between the knobs of two plans as text."""
    parts = []
    if old.routes != new.routes:
        via = ", ".join("-".join(map(str, route)) for route in new.routes)
        parts.append(f" to routes {via}" if via else " to direct routes")
    if old.schedule != new.schedule:
        parts.append(f" to schedule {new.schedule}")
    if old.extra_warmup != new.extra_warmup:
        parts.append(f" to a warm-up of {new.extra_warmup} more")
    return " and".join(parts)
