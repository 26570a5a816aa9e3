"""`hippo`: the trained two-level agent as a policy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ingest.core.errors import InfeasibleError
from ingest.core.units import NS_PER_S
from policy.control.decision_rule import weighed
from policy.baselines.greedy import nothing_runs
from policy.control.break_even import Hindsight
from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.networks.hippo_config import CoordinatorConfig
from policy.hippo.agent.coordinator import Coordinator, Proposal, Verdict
from policy.hippo.tables.features import Features, Situation, situation
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.tables.planning_tables import Codes, Problem, concatenate
from policy.hippo.networks.upper_agent import UpperAgent
from policy.hippo.agent.plan_verification import Question
from policy.control.horizon import Asked, Horizon, ahead
from policy.control.knobs import Knobs
from policy.baselines.replan_conditions import usable
from policy.core.objective import Objective, Outcome, speed_alone
from policy.core.protocol import Context, Decision
from policy.control.candidate_search import Scout, Watch
from policy.baselines.static import base_plan
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.core.view import View

OUTAGE_S = 600.0
"""A dead link is expected back after this, or after as long again as it has been dead (as in `mpc`)."""
WIDE = ("start", "change", "alarm", "failure", "repair")
"""Triggers after which the twin searches; at the others it scores what was found then, and its neighbours,"""
AGAIN_NS = 1800 * NS_PER_S
"""unless the last search is so old. On training windows of geant-70b, where hours change links more than
events do, that is worth a per cent."""
SEARCHED = 18
"""Plans taken from the search, as many as `mpc` takes."""
PLANS_KEPT = 1024
"""Plans made from codes that are kept: most come again."""
SHIPPED = Path(__file__).parents[1] / "shipped"


def shipped_checkpoint() -> Path:
    """The small general checkpoint that comes with the project.

    Raises:
        NotFoundError: this installation lacks it.
    """
    return checkpoints.locate(SHIPPED)


class HiPpo:
    """Hi-PPO with the weights of a checkpoint; `coordinator` overrides how proposals become decisions.

    Raises:
        NotFoundError, InputError, DamageError, UsageError: the checkpoint is absent, not ours, damaged, or
        for another architecture.
    """

    name = "hippo"

    def __init__(self, checkpoint: Path | None = None, *, coordinator: CoordinatorConfig | None = None):
        path = checkpoints.locate(checkpoint or shipped_checkpoint())
        self.digest = checkpoints.digest(path)
        loaded = checkpoints.load(path)
        self._equip(*loaded.agents(), coordinator or loaded.config.coordinator)

    @classmethod
    def of(cls, upper: UpperAgent, lower: LowerAgent, config: CoordinatorConfig) -> "HiPpo":
        """The policy of networks that are still being trained."""
        policy = cls.__new__(cls)
        policy.digest = ""
        policy._equip(upper, lower, config)
        return policy

    def _equip(self, upper: UpperAgent, lower: LowerAgent, config: CoordinatorConfig) -> None:
        self.upper, self.lower, self.config = upper, lower, config
        self._by_gpus: dict[tuple[int, ...], Coordinator] = {}
        self._made_for: Estimator | None = None

    def reset(self, context: Context) -> None:
        """Start a run."""
        torch.set_num_threads(1)  # tensors here are small: threads cost more than they bring
        self.context = context
        self._seed = int(context.rng.integers(2**62))
        if self._made_for is not context.estimator:  # tables belong to a cluster, not to a run
            self._made_for, self._by_gpus = context.estimator, {}
        self._bases: dict[tuple[int, ...], Plan | None] = {}
        self._base: Outcome | None = None
        self._seeds: Codes | None = None
        self._seeded: tuple[int, ...] = ()
        self._seeded_ns = 0
        self._plans: dict[Any, Plan] = {}
        self._legal: tuple[tuple[Plan | None, tuple[int, ...]], bool] | None = None
        self._scout = Scout(context.estimator, SEARCHED)
        self._watch = Watch(context.cluster.size, OUTAGE_S)
        self._hindsight = Hindsight(context.estimator, context.restart_s)
        self._knobs = Knobs(context)
        self._coordinator(tuple(domain.gpus for domain in context.cluster.domains)).prepare()

    def decide(self, view: View) -> Decision:
        """Hold, or move to the plan that the twin finds best of those that were proposed and found."""
        estimator = self.context.estimator
        direct = ahead(view.forecast, self.config.horizon_s, self._watch.outages(view))
        running, (view, horizon) = view, self._knobs.seen(view, direct)
        self._hindsight.see(view, horizon.moving)
        try:
            coordinator = self._coordinator(tuple(view.free_gpus))
        except InfeasibleError:  # too few GPUs are alive for any plan
            return nothing_runs(estimator, view)
        legal = self._usable(view)
        seen = situation(coordinator.problem, view, self.context.weights, legal)
        fresh = view.trigger in WIDE or self._outdated(view)
        if fresh:
            self._seeded, self._seeded_ns = tuple(view.free_gpus), view.now_ns
        proposal = self._proposed(view, coordinator, seen, fresh)
        base = self._base_codes(view, coordinator.problem)
        question = coordinator.question(seen, horizon, self.context.restart_s)
        objective = self._objective(question, base)
        if self.config.verify:
            decision = self._verified(view, coordinator, question, objective, seen, proposal, fresh)
        else:
            assert proposal is not None, "the network alone decides"
            decision = self._own(view, coordinator, proposal)
        return self._knobs.turn(decision, running, direct, objective, deepen=fresh)

    def _proposed(
        self, view: View, coordinator: Coordinator, seen: Situation, fresh: bool
    ) -> Proposal | None:
        """What the network answers. Where nothing has happened (not `fresh`) the twin judges what is known
        without it: the network's answers changed no decision there, and took a third of the time.
        """
        if self.config.verify and not fresh:
            return None
        count = self.config.proposals if self.config.verify else 1
        return coordinator.propose(seen, np.random.default_rng([self._seed, view.now_ns]), count)

    def _outdated(self, view: View) -> bool:
        """Whether what was found is for other GPUs, or for links of long ago."""
        old = view.now_ns - self._seeded_ns >= AGAIN_NS
        return old or self._seeded != tuple(view.free_gpus)

    def _usable(self, view: View) -> bool:
        """Whether the running plan is legal with the GPUs that live; kept for the next decision."""
        asked = (view.plan, tuple(view.free_gpus))
        if self._legal is None or self._legal[0] != asked:
            self._legal = asked, usable(self.context.estimator, view)
        return self._legal[1]

    def _own(self, view: View, coordinator: Coordinator, proposal: Proposal) -> Decision:
        """The network's greedy answer, unchecked but for the masks."""
        plan, mask = coordinator.problem.plan(proposal.codes, 0), coordinator.problem.open_knobs
        extra = _network(proposal, plan, view)
        if not proposal.move or plan == view.plan:
            chance = proposal.log_probability
            return Decision(None, "the network holds", log_probability=chance, mask=mask, extra=extra)
        ns = self.context.estimator.iter_ns(plan, view.forecast.links(), view.slowdown)
        return Decision(
            plan,
            f"the network moves: {plan}",
            predicted_iter_s=ns / NS_PER_S,
            log_probability=proposal.log_probability,
            mask=mask,
            extra=extra,
        )

    def _verified(
        self,
        view: View,
        coordinator: Coordinator,
        question: Question,
        objective: Objective,
        seen: Situation,
        proposal: Proposal | None,
        fresh: bool,
    ) -> Decision:
        """The best of what the network proposes, what was found, and what is near. Where nothing has happened
        (not `fresh`), plans are timed roughly, and exactly before one is moved to.
        """
        base = self._base_codes(view, coordinator.problem)
        if fresh:
            self._seeds = self._searched(view, question.horizon, coordinator.problem, objective)
        proposed = None if proposal is None else proposal.codes
        known = [codes for codes in (proposed, base, self._seeds) if codes is not None]
        may_hold = view.plan is not None and bool(seen.may_hold[0])
        verdict = coordinator.verify(question, concatenate(known), objective, may_hold=may_hold, wide=fresh)
        if fresh:
            self._seeds = verdict.codes
        decision = self._chosen(view, question, verdict, objective, may_hold)
        if decision.plan is not None and not fresh:
            found, kept = question.compared(verdict.codes, objective)
            decision = self._chosen(
                view, question, replace(verdict, found=found, kept=kept), objective, may_hold
            )
        decision = replace(decision, mask=coordinator.problem.open_knobs)
        if proposal is None:
            return decision
        own = self._plan(coordinator.problem, proposal.codes, 0)
        extra = decision.extra | _network(proposal, own, view)
        return replace(decision, log_probability=proposal.log_probability, extra=extra)

    def _chosen(
        self, view: View, question: Question, verdict: Verdict, objective: Objective, may_hold: bool
    ) -> Decision:
        problem = question.timer.problem
        plans = [self._plan(problem, verdict.codes, row) for row in range(len(verdict.codes))]
        found, kept = verdict.found, verdict.kept
        if view.plan is not None and may_hold and question.running is None:
            # A plan of another policy, which this problem does not offer: the slow way.
            plans = [view.plan, *plans]
            restart_s, horizon = self.context.restart_s, question.horizon
            asked = Asked(self.context.estimator, horizon, view.plan, restart_s, view.slowdown)
            found, kept = asked.compared(plans, objective)
        margin = self.config.margin
        return weighed(view, plans, found, kept, objective, margin=margin, hindsight=self._hindsight)

    def _plan(self, problem: Problem, codes: Codes, row: int) -> Plan:
        """`Problem.plan`, kept for the next decision."""
        key = problem.free, codes.key(row)
        if key not in self._plans:
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = problem.plan(codes, row)
        return self._plans[key]

    def _searched(self, view: View, horizon: Horizon, problem: Problem, objective: Objective) -> Codes | None:
        """What promises most to the planners' own search; None without it."""
        if not self.config.search:
            return None
        running = view.plan if self._usable(view) else None
        found = self._scout.plans(view, horizon, objective, running)
        codes = [codes for plan in found if (codes := problem.encode(plan)) is not None]
        return concatenate(codes) if codes else None

    def _coordinator(self, free: tuple[int, ...]) -> Coordinator:
        """Tables for the GPUs that live now; made once for each set."""
        if free not in self._by_gpus:
            context = self.context
            features = Features(Problem(context.estimator, free), context.restart_s, context.period_s)
            self._by_gpus[free] = Coordinator(self.upper, self.lower, features, self.config)
        return self._by_gpus[free]

    def _base_codes(self, view: View, problem: Problem) -> Codes | None:
        free = tuple(view.free_gpus)
        if free not in self._bases:
            self._bases[free] = base_plan(self.context.estimator, view)
        plan = self._bases[free]
        return problem.encode(plan) if plan is not None else None

    def _objective(self, question: Question, base: Codes | None) -> Objective:
        """The objective relative to the static plan over the horizon; the last base while that cannot run.

        Where speed alone counts the base only sets the unit, and a rough one will do. Else its seconds and
        its USD are what time and money are weighed by, and they have to be those of `mpc`: on planet-405b a
        static plan of 60 domains takes 12800 s under median links, 4100 s in the mean over scenarios, and by
        the former time is hardly worth anything.
        """
        if base is not None:
            alone = replace(question, running=None)
            quick = speed_alone(self.context.weights)
            (found,) = alone.rough(base)[0] if quick else alone.kept(base)
            if found.iter_s < float("inf"):
                self._base = found
        return Objective(self.context.weights, self._base or Outcome(1.0, 0.0, 0.0))


def _network(proposal: Proposal, plan: Plan, view: View) -> dict[str, Any]:
    """The network's own choice, for the record beside the verified one."""
    moves = proposal.move and plan != view.plan
    return {"network": {"go": "move" if moves else "hold", "plan": str(plan)}}
