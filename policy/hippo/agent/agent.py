"""The policy `hippo`: the trained two-level agent with verification by the cost model."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ingest.core.errors import InfeasibleError
from ingest.core.units import NS_PER_S
from policy.control.adaptive_weights import AdaptiveWeights
from policy.control.break_even import BreakEvenRule
from policy.control.candidate_search import CandidateSearch, DeadLinkTracker
from policy.control.decision_rule import choose_plan
from policy.control.first_plan import first_plan
from policy.control.horizon import Horizon, PlanComparison, make_horizon
from policy.control.knobs import KnobTuner
from policy.control.long_run import PastPlans
from policy.control.plan_rates import PlanRates
from policy.core.objective import Objective, PlanOutcome, free_egress, speed_alone
from policy.core.protocol import Context, Decision
from policy.core.reference_plan import base_plan
from policy.core.replan_conditions import nothing_runs, usable
from policy.hippo.agent.coordinator import Coordinator, Proposal
from policy.hippo.agent.plan_verification import PlanEvaluator
from policy.hippo.agent.search_trust import INTERVAL_NS, SearchTrust
from policy.hippo.agent.shortlist import distinct, keys
from policy.hippo.networks import checkpoint as checkpoints
from policy.hippo.networks.hippo_config import CoordinatorConfig
from policy.hippo.networks.lower_agent import LowerAgent
from policy.hippo.networks.upper_agent import UpperAgent
from policy.hippo.tables.features import Features, Situation, situation
from policy.hippo.tables.planning_tables import Codes, PlanningTables, concatenate
from twin.core.link_history import LinkHistory
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator

OUTAGE_S = 600.0
"""A dead link is expected back after this, or after twice the time it has been dead (as in `mpc`)."""
SEARCH_TRIGGERS = ("start", "change", "alarm", "failure", "repair")
"""Triggers after which plans are searched, unless what is known is trusted
(`policy.hippo.agent.search_trust`); at others the plans found last and their neighbours are scored."""
SEARCHED, PAST = 18, 8
"""Plans taken from the search and from the best ones of the past, as many as `mpc` takes."""
PLANS_KEPT = 1024
"""Size of the cache of plans made from codes."""
SHIPPED = Path(__file__).parents[1] / "shipped"


def shipped_checkpoint() -> Path:
    """Returns the path of the checkpoint that comes with the project.

    Raises:
        NotFoundError: it is not installed.
    """
    return checkpoints.locate(SHIPPED)


@dataclass(frozen=True, eq=False)
class _Moment:
    """What a decision is made from: the view with links as messages find them, and what scores plans."""

    view: View
    coordinator: Coordinator
    evaluator: PlanEvaluator
    objective: Objective


class HiPpo:
    """Hi-PPO with the weights of a checkpoint; `coordinator` overrides how proposals become decisions.

    Raises:
        NotFoundError, InputError, DamageError, UsageError: the checkpoint is absent, none, damaged, or of
        another architecture.
    """

    name = "hippo"

    def __init__(self, checkpoint: Path | None = None, *, coordinator: CoordinatorConfig | None = None):
        path = checkpoints.locate(checkpoint or shipped_checkpoint())
        self.digest = checkpoints.digest(path)
        loaded = checkpoints.load(path)
        config = loaded.config
        self.practised_on: set[tuple[str, ...]] = {
            tuple(one[:2]) for one in loaded.provenance.get("data", ())
        }
        self._set_networks(*loaded.agents(), coordinator or config.coordinator, config.parts.history)

    @classmethod
    def of(
        cls,
        upper: UpperAgent,
        lower: LowerAgent,
        config: CoordinatorConfig,
        *,
        reads_history: bool = True,
    ) -> "HiPpo":
        """Returns the policy of given networks, such as those in training; `reads_history` as `parts.history`
        of their configuration."""
        policy = cls.__new__(cls)
        policy.digest, policy.practised_on = "", set()
        policy._set_networks(upper, lower, config, reads_history)
        return policy

    def _set_networks(
        self, upper: UpperAgent, lower: LowerAgent, config: CoordinatorConfig, reads_history: bool
    ) -> None:
        self.upper, self.lower, self.config = upper, lower, config
        self._by_gpus: dict[tuple[int, ...], Coordinator] = {}
        self._reads_history = reads_history
        self._made_for: Estimator | None = None
        self._history: LinkHistory | None = None

    def reset(self, context: Context) -> None:
        """Starts a run."""
        torch.set_num_threads(1)  # threads cost more than they bring for small tensors
        self.context = context
        self._seed = int(context.rng.integers(2**62))
        history = context.history if self._reads_history else None
        if self._made_for is not context.estimator or self._history is not history:
            self._made_for, self._history, self._by_gpus = context.estimator, history, {}
        self._base_plans: dict[tuple[int, ...], Plan | None] = {}
        self._base: PlanOutcome | None = None
        self._known: Codes | None = None
        self._known_past: dict[tuple[tuple[int, ...], tuple[int, ...]], Codes | None] = {}
        self._searched_gpus: tuple[int, ...] = ()
        self._searched_ns = self._compared_ns = 0
        self._plans: dict[Any, Plan] = {}
        self._legality: tuple[tuple[Plan | None, tuple[int, ...]], bool] | None = None
        self._candidate_search = CandidateSearch(context.estimator, SEARCHED)
        self._dead_links = DeadLinkTracker(context.cluster.size, OUTAGE_S)
        self._rates = PlanRates(context.estimator, free_egress(context.weights))
        self._past = PastPlans.of(context)
        self._weights = AdaptiveWeights(context, self._past, self._rates)
        self._trust = SearchTrust()
        self._break_even = BreakEvenRule(context.estimator, context.restart_s, self._rates)
        self._knobs = KnobTuner(context)
        self._coordinator(tuple(domain.gpus for domain in context.cluster.domains)).prepare()

    def decide(self, view: View) -> Decision:
        """Returns hold, or a move to the best of the plans proposed, found and kept, as scored by the cost
        model."""
        estimator = self.context.estimator
        direct = make_horizon(view.forecast, self.config.horizon_s, self._dead_links.outages(view))
        running, (view, horizon) = view, self._knobs.planning_inputs(view, direct)
        self._break_even.observe(running, horizon.migration_links)
        direct = replace(direct, bulk_links=horizon.migration_links)
        try:
            coordinator = self._coordinator(tuple(view.free_gpus))
        except InfeasibleError:  # too few GPUs are alive for any plan
            return nothing_runs(estimator, view)
        legal, weights = self._running_is_legal(view), self._weights.at(running)
        seen = situation(coordinator.features, view, weights, legal)
        base = self._base_codes(view, coordinator.problem)
        relayed = free_egress(self.context.weights)
        evaluator = coordinator.evaluator(seen, horizon, direct, self.context.restart_s, relayed=relayed)
        objective = self._objective(evaluator, base, weights)
        if self.config.verify:
            decision = self._verified(_Moment(view, coordinator, evaluator, objective), seen)
        else:
            decision = self._network_decision(view, coordinator, self._propose(view, coordinator, seen, 1))
        deepen = view.trigger in SEARCH_TRIGGERS
        decision = self._knobs.tune(decision, running, direct, objective, deepen=deepen)
        return self._weights.record(decision, weights)

    def _propose(self, view: View, coordinator: Coordinator, seen: Situation, count: int) -> Proposal:
        return coordinator.propose(seen, np.random.default_rng([self._seed, view.now_ns]), count)

    def _verified(self, moment: "_Moment", seen: Situation) -> Decision:
        """At the start the best known plan of the past; else the best of what is known, and of proposals and
        a search where these are not trusted."""
        view, coordinator = moment.view, moment.coordinator
        searches = self._must_search(view)
        decision = self._start(moment) if view.plan is None else None
        if decision is not None:
            return replace(decision, mask=coordinator.problem.open_knobs)
        fresh, proposal = searches or view.plan is None, None
        if fresh:
            proposal = self._propose(view, coordinator, seen, self.config.proposals)
        return self._verified_decision(moment, seen, proposal, fresh, searches)

    def _start(self, moment: "_Moment") -> Decision | None:
        """The plan that was worth most over the past, of its best ones and of those found for the links of
        the moment; None where none is known or runs."""
        view = moment.view
        if not self.config.search or self._past.states is None:
            return None
        search = CandidateSearch(self.context.estimator, SEARCHED)  # later ones begin without its links
        found = search.plans(view, moment.evaluator.horizon, moment.objective, None)
        plans = [*self._past.legal(tuple(view.free_gpus), PAST), *found]
        return first_plan(self._past, plans, view, self._rates, moment.objective)

    def _must_search(self, view: View) -> bool:
        """Whether plans are searched: after an event unless what is known is trusted, and where the last
        search is old; not at the start where the past is known, whose plans were searched before the run."""
        free = tuple(view.free_gpus)
        if self._searched_gpus != free:  # what is known is of other tables
            self._trust.forget()
            self._known = None
        event = self._searched_gpus != free or (view.trigger in SEARCH_TRIGGERS and not self._trust.trusts)
        if not event and view.now_ns - self._searched_ns < self._trust.interval_ns:
            return False
        self._searched_gpus, self._searched_ns = free, view.now_ns
        return view.plan is not None or self._past.states is None

    def _running_is_legal(self, view: View) -> bool:
        """Whether the running plan is legal with the GPUs alive; cached."""
        state = (view.plan, tuple(view.free_gpus))
        if self._legality is None or self._legality[0] != state:
            self._legality = state, usable(self.context.estimator, view)
        return self._legality[1]

    def _network_decision(self, view: View, coordinator: Coordinator, proposal: Proposal) -> Decision:
        """The network's greedy action, without verification."""
        plan, mask = coordinator.problem.plan(proposal.codes, 0), coordinator.problem.open_knobs
        extra = _network_record(proposal, plan, view)
        log_probability = proposal.log_probability
        if not proposal.move or plan == view.plan:
            return Decision(
                None, "the network holds", log_probability=log_probability, mask=mask, extra=extra
            )
        seconds = self.context.estimator.iter_ns(plan, view.forecast.links(), view.slowdown) / NS_PER_S
        return Decision(
            plan, f"the network moves: {plan}", predicted_iter_s=seconds, log_probability=log_probability,
            mask=mask, extra=extra,
        )  # fmt: skip

    def _verified_decision(
        self, moment: "_Moment", seen: Situation, proposal: Proposal | None, fresh: bool, searches: bool
    ) -> Decision:
        """The best of proposals, plans found before and their neighbours, and of a search where it
        `searches`. Where what is known is trusted (not `fresh`) plans are timed approximately, and exactly
        before a move and once in half an hour: approximate times misprice relays by more than a shift of the
        links may bring.
        """
        view, coordinator, objective = moment.view, moment.coordinator, moment.objective
        base = self._base_codes(view, coordinator.problem)
        searched = None
        if searches:
            searched = self._search(view, moment.evaluator.horizon, coordinator.problem, objective)
        proposed = None if proposal is None else proposal.codes
        past = self._past_codes(coordinator.problem, view.plan) if self.config.search else None
        familiar = [codes for codes in (base, self._known, past) if codes is not None]
        known = [*familiar, *(codes for codes in (proposed, searched) if codes is not None)]
        may_hold = view.plan is not None and bool(seen.may_hold[0])
        finalists = coordinator.refine(
            moment.evaluator, concatenate(known), objective, may_hold=may_hold, wide=fresh
        )
        if fresh:
            self._known = finalists
        decision = None
        due = fresh or view.now_ns - self._compared_ns >= INTERVAL_NS
        if not due and moment.evaluator.running is not None:
            outcomes = moment.evaluator.compare(finalists, objective, exact=False)
            decision = self._choose(moment, self._decoded(coordinator.problem, finalists), *outcomes)
        if decision is None or decision.plan is not None:
            self._compared_ns = view.now_ns
            every = finalists if past is None else concatenate([finalists, past])
            unsearched = concatenate(familiar) if searches and familiar else None
            decision = self._decided_exactly(moment, every.take(distinct(every)), may_hold, unsearched)
        decision = replace(decision, mask=coordinator.problem.open_knobs)
        if proposal is None:
            return decision
        own = self._plan(coordinator.problem, proposal.codes, 0)
        extra = decision.extra | _network_record(proposal, own, view)
        return replace(decision, log_probability=proposal.log_probability, extra=extra)

    def _decided_exactly(
        self, moment: "_Moment", codes: Codes, may_hold: bool, unsearched: Codes | None
    ) -> Decision:
        """The decision among plans timed as they will run; at the start by the past. Records what the search
        has gained over the plans `unsearched`; None: there was none."""
        view, evaluator, rates, objective = moment.view, moment.evaluator, self._rates, moment.objective
        plans = self._decoded(moment.coordinator.problem, codes)
        if view.plan is None:
            decision = first_plan(self._past, plans, view, rates, objective)
            if decision is not None:
                return decision
        if view.plan is not None and may_hold and evaluator.running is None:
            # The running plan is not among the tables' choices: the Estimator times it.
            plans, context = [view.plan, *plans], self.context
            comparison = PlanComparison(
                context.estimator, evaluator.direct, view.plan, context.restart_s, view.slowdown, rates
            )
            return self._choose(moment, plans, *comparison.outcomes(plans, objective))
        found, kept = evaluator.compare(codes, objective)
        if unsearched is not None and evaluator.running is not None and may_hold:
            known = np.isin(keys(codes), keys(concatenate([evaluator.running, unsearched])))
            scores = np.array([objective.value(outcome) for outcome in found])
            margin = self.config.margin * min(kept[0].iter_s / objective.base.iter_s, 1.0)
            self._trust.record(_margins(float(scores.max() - scores[known].max()), margin))
        return self._choose(moment, plans, found, kept)

    def _choose(
        self, moment: "_Moment", plans: list[Plan], found: list[PlanOutcome], kept: list[PlanOutcome]
    ) -> Decision:
        margin, rule = self.config.margin, self._break_even
        return choose_plan(moment.view, plans, found, kept, moment.objective, margin=margin, break_even=rule)

    def _decoded(self, problem: PlanningTables, codes: Codes) -> list[Plan]:
        return [self._plan(problem, codes, row) for row in range(len(codes))]

    def _past_codes(self, problem: PlanningTables, running: Plan | None) -> Codes | None:
        """The best plans of the past that the free GPUs allow and the tables have, and the best of them with
        the running plan's order of domains; None without any."""
        key = problem.free, () if running is None else running.order
        if key not in self._known_past:
            found = [problem.encode(plan) for plan in self._past.legal(problem.free, PAST, running)]
            coded = [codes for codes in found if codes is not None]
            self._known_past[key] = concatenate(coded) if coded else None
        return self._known_past[key]

    def _plan(self, problem: PlanningTables, codes: Codes, row: int) -> Plan:
        """`PlanningTables.plan`, cached."""
        key = problem.free, codes.key(row)
        if key not in self._plans:
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = problem.plan(codes, row)
        return self._plans[key]

    def _search(
        self, view: View, horizon: Horizon, problem: PlanningTables, objective: Objective
    ) -> Codes | None:
        """Best plans of the planners' search; None without it."""
        if not self.config.search:
            return None
        running = view.plan if self._running_is_legal(view) else None
        found = self._candidate_search.plans(view, horizon, objective, running)
        codes = [codes for plan in found if (codes := problem.encode(plan)) is not None]
        return concatenate(codes) if codes else None

    def _coordinator(self, free: tuple[int, ...]) -> Coordinator:
        """Coordinator for the GPUs alive, made once for each set."""
        if free not in self._by_gpus:
            context = self.context
            tables, history = PlanningTables(context.estimator, free), self._history
            features = Features(tables, context.restart_s, context.period_s, history)
            self._by_gpus[free] = Coordinator(self.upper, self.lower, features, self.config)
        return self._by_gpus[free]

    def _base_codes(self, view: View, problem: PlanningTables) -> Codes | None:
        free = tuple(view.free_gpus)
        if free not in self._base_plans:
            self._base_plans[free] = base_plan(self.context.estimator, view)
        plan = self._base_plans[free]
        return problem.encode(plan) if plan is not None else None

    def _objective(
        self, evaluator: PlanEvaluator, base: Codes | None, weights: tuple[float, float, float]
    ) -> Objective:
        """The objective relative to the static plan over the horizon; to the last such outcome while it
        cannot run.

        Where speed alone counts the base only sets the unit, so an approximation suffices. Else its seconds
        and USD weigh time against money and must be those of `mpc`: on planet-405b the static plan of 60
        domains takes 12800 s under median links, 4100 s in the mean over scenarios.
        """
        if base is not None:
            alone = replace(evaluator, running=None)
            quick = speed_alone(self.context.weights)
            (found,) = alone.approximate(base)[0] if quick else alone.kept(base)
            if found.iter_s < float("inf"):
                self._base = found
        return Objective(weights, self._base or PlanOutcome(1.0, 0.0, 0.0))


def _network_record(proposal: Proposal, plan: Plan, view: View) -> dict[str, Any]:
    """The network's own choice, logged beside the verified one."""
    moves = proposal.move and plan != view.plan
    return {"network": {"go": "move" if moves else "hold", "plan": str(plan)}}


def _margins(gain: float, margin: float) -> float:
    """`gain` in margins; infinite for any gain over a margin of 0, and where nothing known can run."""
    if not np.isfinite(gain) or (margin == 0 and gain > 0):
        return float("inf")
    return gain / margin if margin else 0.0
