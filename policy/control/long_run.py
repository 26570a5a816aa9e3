"""Plans by what they would have done over the past of the links: candidates for it, and their mean rate.

A plan is kept for hours, and a forecast reaches minutes. So a placement is judged by its mean iterations per
second over samples of the past, its free knobs (relays, warm-up depth) turned in each of them. Candidates are
searched for the typical links of the past and of its parts, over direct links and over unshared relays: a
plan that is good for the present links alone is seldom among the best for a day.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from policy.control.knobs import default_knobs, free_variants
from policy.control.plan_rates import PlanRates
from policy.control.relay_links import RelayPaths, message_bits
from policy.core.objective import speed_alone
from policy.core.protocol import Context
from policy.search.plan_search import best_plans
from twin.core.domain import LinkState
from twin.core.link_history import LinkHistory
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States

Float = NDArray[np.float64]

SAMPLES = 96
"""Samples of the past over which plans are judged."""
PARTS = 4
"""Parts of the past that are searched on their own, beside the whole."""
FOUND = 24
"""Plans taken from each search."""
DEEPENED, CLOSE = 12, 0.85
"""Plans whose warm-up depths are tried, at most, and the share of the best rate that they reach without."""


def samples_of(history: LinkHistory, count: int = SAMPLES) -> States:
    """Returns at most `count` joint states of the links, spread evenly over the past."""
    chosen = history.evenly(count)
    return States(history.bandwidth_bps[chosen], history.latency_s[chosen])


def typical_links(states: States, seconds: Float) -> LinkState:
    """Returns one state for T states that last so many seconds (T,): mean time per bit while a link lives, 0
    for one that never does, and mean latency."""
    lasted = seconds[:, None, None]
    alive = (states.bandwidth_bps > 0) * lasted
    with np.errstate(divide="ignore", invalid="ignore"):
        per_bit = np.where(alive > 0, lasted / states.bandwidth_bps, 0.0).sum(axis=0) / alive.sum(axis=0)
        mean = np.where(alive.sum(axis=0) > 0, 1.0 / per_bit, 0.0)
    return LinkState(mean, (states.latency_s * lasted).sum(axis=0) / seconds.sum())


@dataclass(frozen=True, slots=True)
class PastPlan:
    """A plan with the knobs that are best on average, and the mean iterations per second of its placement
    with its knobs turned in every state."""

    plan: Plan
    rate: float


class LongRunRates:
    """Mean rates of plans over states of the past, each computed once; where `relayed` with relays turned in
    every state."""

    def __init__(self, estimator: Estimator, states: States, *, relayed: bool = True) -> None:
        self.estimator, self.states = estimator, states
        self._turned = PlanRates(estimator, relayed)
        self._rates: dict[Plan, Float] = {}

    def rate(self, plan: Plan) -> float:
        """Returns mean iterations per second of a plan at its own warm-up depth."""
        return float(self.in_each(plan).mean())

    def turned(self, plan: Plan) -> PastPlan:
        """Returns the placement of a plan with the warm-up depth turned too."""
        plan, rates = self.turned_in_each(plan)
        return PastPlan(plan, float(rates.mean()))

    def turned_in_each(self, plan: Plan) -> tuple[Plan, Float]:
        """Returns the plan with the warm-up depth that is best on average, and its rate in every state (T,)
        with the depth turned there."""
        plan = default_knobs(self.estimator.job, plan)
        variants = [plan, *free_variants(self.estimator, plan)]
        rates = [self.in_each(one) for one in variants]
        best = max(range(len(variants)), key=lambda n: float(rates[n].mean()))
        return variants[best], np.maximum.reduce(rates)

    def in_each(self, plan: Plan) -> Float:
        """Returns the rate in every state (T,), as `rate` has their mean."""
        plan = replace(plan, routes=())
        if plan not in self._rates:
            self._rates[plan] = self._turned(plan, self.states)
        return self._rates[plan]


def ranked(rates: LongRunRates, plans: Iterable[Plan]) -> list[PastPlan]:
    """Returns the plans by falling mean rate, those that never run left out; the depths of the best
    `DEEPENED` are turned, so that the rates of the others are lower bounds."""
    distinct = list(dict.fromkeys(default_knobs(rates.estimator.job, plan) for plan in plans))
    shallow = sorted(distinct, key=lambda plan: -rates.rate(plan))
    deepened = [plan for plan in shallow[:DEEPENED] if rates.rate(plan) >= CLOSE * rates.rate(shallow[0])]
    deep = sorted((rates.turned(plan) for plan in deepened), key=lambda one: -one.rate)
    rest = [PastPlan(plan, rates.rate(plan)) for plan in shallow[len(deepened) :]]
    return [one for one in (*deep, *rest) if one.rate > 0]


class PastPlans:
    """Candidates for the past of a run, ranked by their rates over it, for the GPUs that are free.

    Where nothing is known of the past, the links that are given take its place. Where not `relayed`, messages
    take direct links.
    """

    def __init__(self, estimator: Estimator, history: LinkHistory | None, *, relayed: bool = True) -> None:
        self.estimator, self.history, self.relayed = estimator, history, relayed
        self.states = None if history is None else samples_of(history)
        self._known: dict[tuple[int, ...], list[PastPlan]] = {}
        self._rates: LongRunRates | None = None
        if self.states is not None:  # before the run: it takes longer than a decision may
            self._rates = LongRunRates(estimator, self.states, relayed=relayed)
            self.best(tuple(domain.gpus for domain in estimator.cluster.domains), self.states)

    @classmethod
    def of(cls, context: Context, known: "PastPlans | None" = None) -> "PastPlans":
        """Returns the plans for a run, relayed where speed alone has weight; `known` if it is for the same
        job, cluster and past, since a search takes seconds."""
        relayed = speed_alone(context.weights)
        same = known is not None and known.estimator is context.estimator and known.history is context.history
        if known is not None and same and known.relayed == relayed:
            return known
        return cls(context.estimator, context.history, relayed=relayed)

    def legal(self, free_gpus: tuple[int, ...], most: int) -> list[Plan]:
        """Returns the best plans found so far that the free GPUs allow, at most so many, with default
        knobs."""
        job = self.estimator.job
        plans = dict.fromkeys(default_knobs(job, one.plan) for found in self._known.values() for one in found)
        fit = (plan for plan in plans if not self.estimator.problems(plan, free_gpus))
        return list(islice(fit, most))

    def judged(self, plans: Iterable[Plan]) -> list[PastPlan]:
        """Returns the plans by falling mean rate over the past (`ranked`); none where nothing is known."""
        return [] if self._rates is None else ranked(self._rates, plans)

    def best(self, free_gpus: Sequence[int], otherwise: States) -> list[PastPlan]:
        """Returns the plans, best first; searched once for each number of free GPUs."""
        free = tuple(free_gpus)
        if free not in self._known:
            states = otherwise if self.states is None else self.states
            rates = self._rates or LongRunRates(self.estimator, states, relayed=self.relayed)
            found = candidates(self.estimator, states, free, relayed=self.relayed)
            self._known[free] = ranked(rates, found)
        return self._known[free]


def candidates(
    estimator: Estimator,
    states: States,
    free_gpus: Sequence[int],
    *,
    parts: int = PARTS,
    relayed: bool = True,
) -> list[Plan]:
    """Returns the best plans for the typical links of the past and of each of its parts, over direct links
    and, where `relayed`, over unshared relays."""
    edges = np.linspace(0, len(states), parts + 1).round().astype(np.int64).tolist()
    found: dict[Plan, None] = {}
    for first, last in [(0, len(states)), *pairwise(edges)]:
        if last > first:
            part = States(states.bandwidth_bps[first:last], states.latency_s[first:last])
            found |= dict.fromkeys(_searched(estimator, part, free_gpus, relayed=relayed))
    return list(found)


def _searched(estimator: Estimator, part: States, free_gpus: Sequence[int], *, relayed: bool) -> list[Plan]:
    def over(states: States) -> list[Plan]:
        links = typical_links(states, np.ones(len(states)))
        return [plan for plan, _ in best_plans(estimator, links, free_gpus=free_gpus, top=FOUND)]

    found = over(part)
    if not found or not relayed:
        return found
    paths = RelayPaths(estimator.cluster, message_bits(estimator.job, found[0]), share=1.0)
    links, via = paths.best_routes(part)
    return found + over(links) if (via >= 0).any() else found
