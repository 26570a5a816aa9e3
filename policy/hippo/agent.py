"""`hippo`: the trained two-level agent as a policy."""

from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ingest.errors import InfeasibleError
from ingest.units import NS_PER_S
from policy.greedy import nothing_runs
from policy.hippo import checkpoint as checkpoints
from policy.hippo.config import CoordinatorConfig
from policy.hippo.coordinator import Coordinator, Latency, Proposal, Verdict
from policy.hippo.features import Features, Situation, situation
from policy.hippo.lower import LowerAgent
from policy.hippo.problem import Codes, Problem, concatenate
from policy.hippo.skeletons import skeletons
from policy.hippo.upper import UpperAgent
from policy.hippo.verify import Expected, Question
from policy.horizon import Horizon, Outages, ahead, outcomes
from policy.legal import usable
from policy.objective import Objective, Outcome
from policy.protocol import Candidate, Context, Decision
from policy.search import Pool, build, explore
from policy.static import base_plan
from twin.domain import LinkState
from twin.estimate import Estimator
from twin.plan import Plan
from twin.view import View

OUTAGE_S = 600.0
"""A dead link is expected back after this, or after as long again as it has been dead (as in `mpc`)."""
WIDE = ("start", "change", "alarm", "failure", "repair")
"""Triggers after which the search starts afresh; at the others it starts from what was found then."""
SEARCHED = 6
"""Plans taken from the planners' search after an event, as many as `mpc` takes."""
SEARCH_UP_TO = 8
"""Living domains up to which the planners' search is asked; with more of them it takes longer than a decision
may, and the network's proposals, the skeletons and their neighbours stand alone."""
DRIFTED = 0.3
"""While no link differs by more than this from the last wide search, the search climbs from what it found
then (as `mpc`)."""
SHIPPED = Path(__file__).with_name("shipped")


def shipped_checkpoint() -> Path:
    """The small general checkpoint that comes with the project.

    Raises:
        NotFoundError: this installation lacks it.
    """
    return checkpoints.locate(SHIPPED)


def install_shipped(out: Path) -> str:
    """Put the shipped checkpoint into a store's checkpoint folder, once; returns its digest."""
    return checkpoints.install(shipped_checkpoint(), out)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Plans of the search for one part of the horizon, and the links of its last wide pass."""

    links: LinkState
    free_gpus: tuple[int, ...]
    slowdown: NDArray[np.float64]
    plans: tuple[Plan, ...]

    def near(self, links: LinkState, view: View) -> bool:
        """Whether the links have only drifted since, with the same machines."""
        same = self.free_gpus == tuple(view.free_gpus) and np.array_equal(self.slowdown, view.slowdown)
        alive, was = links.bandwidth_bps > 0, self.links.bandwidth_bps
        if not same or not np.array_equal(alive, was > 0):
            return False
        off = alive & ~np.eye(len(was), dtype=np.bool_)
        return bool((np.abs(links.bandwidth_bps[off] / was[off] - 1) <= DRIFTED).all())


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
        self.latency = Latency(perf_counter)
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
        size = context.cluster.size
        self._alive_bps = np.zeros((size, size))
        self._died_ns = np.full((size, size), -1, dtype=np.int64)
        self._base: Outcome | None = None
        self._seeds: Codes | None = None
        self._seeded: tuple[int, ...] = ()
        self._found: dict[int, _Found] = {}
        self._coordinator(tuple(domain.gpus for domain in context.cluster.domains))

    def decide(self, view: View) -> Decision:
        """Hold, or move to the plan that the network proposed and the twin found best."""
        self.latency.mark("begin")
        estimator = self.context.estimator
        try:
            coordinator = self._coordinator(tuple(view.free_gpus))
        except InfeasibleError:  # too few GPUs are alive for any plan
            return nothing_runs(estimator, view)
        legal = view.plan is not None and not estimator.problems(view.plan, view.free_gpus)
        seen = situation(coordinator.problem, view, self.context.weights, legal)
        proposal = coordinator.propose(seen, np.random.default_rng([self._seed, view.now_ns]))
        self.latency.mark("proposed")
        if self.config.verify:
            decision = self._verified(view, coordinator, seen, proposal)
        else:
            decision = self._own(view, coordinator, proposal)
        self.latency.mark("decided")
        return decision

    def _own(self, view: View, coordinator: Coordinator, proposal: Proposal) -> Decision:
        """The network's greedy answer, unchecked but for the masks."""
        plan = coordinator.problem.plan(proposal.codes, 0)
        extra = _network(proposal, plan, view)
        if not proposal.move or plan == view.plan:
            return Decision(None, "the network holds", log_probability=proposal.log_probability, extra=extra)
        ns = self.context.estimator.iter_ns(plan, view.forecast.links(), view.slowdown)
        return Decision(
            plan,
            f"the network moves: {plan}",
            predicted_iter_s=ns / NS_PER_S,
            log_probability=proposal.log_probability,
            extra=extra,
        )

    def _verified(
        self, view: View, coordinator: Coordinator, seen: Situation, proposal: Proposal
    ) -> Decision:
        problem = coordinator.problem
        horizon = ahead(view.forecast, self.config.horizon_s, self._outages(view))
        base = self._base_codes(view, problem)
        question = coordinator.question(seen, horizon, self.context.restart_s)
        objective = self._objective(question, base)
        plans = proposal.codes if base is None else concatenate([proposal.codes, base])
        fresh = view.trigger in WIDE or self._seeds is None or self._seeded != tuple(view.free_gpus)
        if fresh:
            # Something has happened: look wide. Between events, what was found wide is only scored again.
            self._seeded = tuple(view.free_gpus)
            rough = skeletons(
                problem, coordinator.timer, horizon.middle[-1], np.asarray(view.slowdown, dtype=np.float64)
            )
            self._seeds = concatenate([rough, *self._searched(view, horizon, problem)])
        assert self._seeds is not None
        plans = concatenate([plans, self._seeds])
        may_hold = view.plan is not None and bool(seen.may_hold[0])
        verdict = coordinator.verify(question, plans, objective, may_hold=may_hold, wide=fresh)
        if fresh:
            self._seeds = verdict.leaders
        extra = _network(proposal, problem.plan(proposal.codes, 0), view)
        if may_hold and verdict.hold is None:
            verdict = self._foreign(view, verdict, problem, horizon, objective)
        return self._choose(view, problem, verdict, proposal, extra)

    def _searched(self, view: View, horizon: Horizon, problem: Problem) -> list[Codes]:
        """What the planners' own search finds best for the first and the last part of the horizon."""
        if sum(free > 0 for free in view.free_gpus) > SEARCH_UP_TO:
            return []
        estimator = self.context.estimator
        running = view.plan if usable(estimator, view) else None
        plans: dict[Plan, None] = {}
        for part in dict.fromkeys((0, len(horizon.middle) - 1)):
            links, before = horizon.middle[part], self._found.get(part)
            if before is not None and before.near(links, view):
                pool = Pool(estimator, links, view.free_gpus, view.slowdown)
                for plan in dict.fromkeys([*before.plans, *([running] if running else [])]):
                    pool.climb_from(plan)
            else:
                before = None
                pool = explore(
                    estimator, links, free_gpus=view.free_gpus, slowdown=view.slowdown, start=running
                )
            best = pool.best_by_shape()[:SEARCHED]
            found = tuple(build(estimator, shape, cuts) for _, shape, cuts in best)
            wide = before.links if before is not None else links
            self._found[part] = _Found(wide, view.free_gpus, view.slowdown, found)
            plans |= dict.fromkeys(found)
        encoded = (problem.encode(plan) for plan in plans)
        return [codes for codes in encoded if codes is not None]

    def _choose(
        self, view: View, problem: Problem, verdict: Verdict, proposal: Proposal, extra: dict[str, Any]
    ) -> Decision:
        shown = tuple(
            Candidate(
                problem.plan(verdict.codes, row),
                float(verdict.values[row]),
                float(verdict.expected.iter_s[row]),
                float(verdict.expected.utilisation[row]),
                float(verdict.expected.usd[row]),
            )
            for row in range(min(len(verdict.codes), 8))
        )
        log_probability = proposal.log_probability
        best = float(verdict.values[0])
        if best == float("-inf"):
            if view.plan is None:
                raise InfeasibleError("no plan can run: every one needs a link that is dead")
            return Decision(
                None,
                "nothing is expected to run within the horizon",
                shown,
                log_probability=log_probability,
                extra=extra,
            )
        predicted = float(verdict.expected.iter_s[0])
        if verdict.hold is None:
            return Decision(
                shown[0].plan,
                f"best expected plan: {shown[0].plan}",
                shown,
                predicted,
                log_probability,
                extra=extra,
            )
        gain = best - float(verdict.values[verdict.hold])
        extra = extra | {"gain": gain if np.isfinite(gain) else None, "margin": self.config.margin}
        if gain <= self.config.margin:
            reason = f"the best move gains {gain:.4f}, below the margin of {self.config.margin:g}"
            held = float(verdict.expected.iter_s[verdict.hold])
            return Decision(None, reason, shown, held, log_probability, extra=extra)
        return Decision(
            shown[0].plan,
            f"expected to gain {gain:.4f}: {shown[0].plan}",
            shown,
            predicted,
            log_probability,
            extra=extra,
        )

    def _foreign(
        self, view: View, verdict: Verdict, problem: Problem, horizon: Horizon, objective: Objective
    ) -> Verdict:
        """Holding a plan that this problem does not offer (another policy's), scored the slow way."""
        assert view.plan is not None
        estimator = self.context.estimator
        plans = [view.plan, *(problem.plan(verdict.codes, row) for row in range(len(verdict.codes)))]
        found = outcomes(
            estimator,
            plans,
            horizon,
            running=view.plan,
            restart_s=self.context.restart_s,
            slowdown=np.asarray(view.slowdown),
            objective=objective,
        )
        values = np.array([objective.value(outcome) for outcome in found])
        order = np.argsort(-values[1:], kind="stable")
        best = verdict.codes.take(order)
        expected_ = replace(
            verdict.expected,
            iter_s=np.array([o.iter_s for o in found[1:]])[order],
            utilisation=np.array([o.utilisation for o in found[1:]])[order],
            usd=np.array([o.usd for o in found[1:]])[order],
        )
        # Holding is told apart by position -1: its value stands behind the candidates'.
        return Verdict(
            best,
            _appended(expected_, found[0]),
            np.append(values[1:][order], values[0]),
            len(best),
            verdict.leaders,
        )

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
        """The objective relative to the static plan over the horizon; the last base while that cannot run."""
        if base is not None:
            found = replace(question, running=None).kept(base)
            if np.isfinite(found.iter_s[0]):
                self._base = found.outcome(0)
        return Objective(self.context.weights, self._base or Outcome(1.0, 0.0, 0.0))

    def _outages(self, view: View) -> Outages:
        """Dead links are expected back with their last bandwidth."""
        now = view.forecast.bandwidth_bps[0]
        dead = now <= 0
        self._alive_bps = np.where(dead, self._alive_bps, now)
        self._died_ns = np.where(dead, np.where(self._died_ns < 0, view.now_ns, self._died_ns), -1)
        been_s = (view.now_ns - self._died_ns) / NS_PER_S
        return Outages(np.where(dead, np.maximum(OUTAGE_S, been_s), 0.0), self._alive_bps)


def _network(proposal: Proposal, plan: Plan, view: View) -> dict[str, Any]:
    """The network's own choice, for the record beside the verified one."""
    moves = proposal.move and plan != view.plan
    return {"network": {"go": "move" if moves else "hold", "plan": str(plan)}}


def _appended(found: Expected, outcome: Outcome) -> Expected:
    return replace(
        found,
        iter_s=np.append(found.iter_s, outcome.iter_s),
        utilisation=np.append(found.utilisation, outcome.utilisation),
        usd=np.append(found.usd, outcome.usd),
    )
