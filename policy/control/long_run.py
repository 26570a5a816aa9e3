"""Plans by what they would have done over the past of the links: candidates for it, and their mean rate.

A plan is kept for hours, and a forecast reaches minutes. So a placement is judged by its mean iterations per
second over samples of the past, its free knobs (relays, warm-up depth) turned in each of them; links drift
over hours, so late samples count for more (exponential smoothing: Brown, "Statistical Forecasting for
Inventory Control", 1959). Candidates are searched for the typical links of the past and of its parts, over
direct links and over unshared relays: a plan that is good for the present links alone is seldom among the
best for a day.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InfeasibleError
from policy.control.horizon import per_iteration
from policy.control.knobs import default_knobs, free_variants
from policy.control.plan_rates import PlanRates
from policy.control.relay_links import RelayPaths, message_bits
from policy.control.weighted_orders import add_weighted
from policy.core.objective import Objective, PlanOutcome, free_egress, speed_alone
from policy.core.protocol import Context
from policy.core.reference_plan import equal_cuts
from policy.search.plan_search import best_plans, build, explore
from twin.core.domain import LinkState
from twin.core.link_history import LinkHistory
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, per_second

Float = NDArray[np.float64]

SAMPLES = 96
"""Samples of the past over which plans are judged."""
HALF_LIFE = 0.125
"""Share of the past after which a moment counts half, since links drift; compared with others by rolling
starts within the pasts alone: `benchmarks/policy/past_half_life.py`.
"""
PARTS = 4
"""Parts of the past that are searched on their own, beside the whole."""
FOUND = 24
"""Plans taken from each search."""
VARIED = 6
"""Where more than speed has weight, this many times as many are compared, and the fastest of each order."""
NEAR = 16
"""Plans with the running plan's order of domains that are compared with it: on quad-70b the cut that a shift
of the links asks for is the eleventh of them over the past, and moves two layers."""
DEEPENED = 12
"""Plans whose warm-up depths are tried in every sample: the best of a first trial,"""
TRIED, THINNED = 64, 12
"""which takes more plans and one sample in twelve. On tri-7b the plan that is best with its depth turned is
not among the twelve that are best without."""


def samples_of(history: LinkHistory, count: int = SAMPLES) -> States:
    """Returns at most `count` joint states of the links, spread evenly over the past."""
    chosen = history.evenly(count)
    return States(history.bandwidth_bps[chosen], history.latency_s[chosen])


def late_samples_of(history: LinkHistory, half_life: float, count: int = SAMPLES) -> States:
    """Returns at most `count` joint states of the links, each of which stands for the same weight of the past
    (`LinkHistory.lately`)."""
    chosen = history.lately(count, half_life)
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


def mean_outcome(estimator: Estimator, plan: Plan, rate: float) -> PlanOutcome:
    """Returns the outcome of a plan that does so many iterations per second in the mean."""
    if rate <= 0:
        return PlanOutcome(float("inf"), 0.0, 0.0)
    busy_s, usd = per_iteration(estimator, plan, None)
    return PlanOutcome(1.0 / rate, busy_s * rate, usd)


class LongRunRates:
    """Mean rates of plans over states of the past, each computed once; where `relayed` with relays turned in
    every state."""

    def __init__(self, estimator: Estimator, states: States, *, relayed: bool = True) -> None:
        self.estimator, self.states, self.relayed = estimator, states, relayed
        self._turned = PlanRates(estimator, relayed)
        self._rates: dict[Plan, Float] = {}
        self._turned_plans: dict[Plan, tuple[Plan, Float]] = {}

    @cached_property
    def thinned(self) -> "LongRunRates":
        """Returns the rates over every `THINNED`th state."""
        some = States(self.states.bandwidth_bps[::THINNED], self.states.latency_s[::THINNED])
        return LongRunRates(self.estimator, some, relayed=self.relayed)

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
        if plan not in self._turned_plans:
            variants = [plan, *free_variants(self.estimator, plan)]
            rates = [self.in_each(one) for one in variants]
            best = max(range(len(variants)), key=lambda n: float(rates[n].mean()))
            self._turned_plans[plan] = variants[best], np.maximum.reduce(rates)
        return self._turned_plans[plan]

    def in_each(self, plan: Plan) -> Float:
        """Returns the rate in every state (T,), as `rate` has their mean."""
        plan = replace(plan, routes=()) if plan.routes else plan
        if plan not in self._rates:
            self._rates[plan] = self._turned(plan, self.states)
        return self._rates[plan]


def ranked(rates: LongRunRates, plans: Iterable[Plan], objective: Objective | None = None) -> list[PastPlan]:
    """Returns the plans by falling mean rate, or by `objective` if given, those that never run left out; the
    depths of the best `DEEPENED` are turned, so that the rates of the others are lower bounds."""

    def worth(plan: Plan, rate: float) -> float:
        return rate if objective is None else objective.value(mean_outcome(rates.estimator, plan, rate))

    distinct = list(dict.fromkeys(default_knobs(rates.estimator.job, plan) for plan in plans))
    shallow = sorted(distinct, key=lambda plan: -worth(plan, rates.rate(plan)))
    tried = sorted(shallow[:TRIED], key=lambda plan: -worth(plan, rates.thinned.turned(plan).rate))
    deep = sorted(
        (rates.turned(plan) for plan in tried[:DEEPENED]), key=lambda one: -worth(one.plan, one.rate)
    )
    rest = [PastPlan(plan, rates.rate(plan)) for plan in (*tried[DEEPENED:], *shallow[TRIED:])]
    rest.sort(key=lambda one: -worth(one.plan, one.rate))
    return [one for one in (*deep, *rest) if one.rate > 0]


@dataclass(frozen=True, slots=True, eq=False)
class _Record:
    """Samples of a past, rates of plans in them, and the best plans by weights and free GPUs: each computed
    once for all policies and jobs that are alike."""

    states: States
    rates: LongRunRates
    best: dict[tuple[tuple[float, float, float], tuple[int, ...]], list[PastPlan]]


_records: WeakKeyDictionary[LinkHistory, dict[tuple[object, ...], _Record]] = WeakKeyDictionary()
"""By estimator, half-life and whether relays are turned, as long as their past is kept."""


def _record_of(estimator: Estimator, history: LinkHistory, half_life: float | None, relayed: bool) -> _Record:
    known, key = _records.setdefault(history, {}), (estimator, half_life, relayed)
    if key not in known:
        states = samples_of(history) if half_life is None else late_samples_of(history, half_life)
        known[key] = _Record(states, LongRunRates(estimator, states, relayed=relayed), {})
    return known[key]


class PastPlans:
    """Candidates for the past of a run, ranked by their rates over it, for the GPUs that are free.

    Late moments of the past count for more: the weight halves with every share `half_life` of the past that
    a moment lies back; with None all count alike. Where nothing is known of the past, the links that are
    given take its place. Where more than speed has weight, plans are ranked by the objective under `weights`.
    """

    def __init__(
        self,
        estimator: Estimator,
        history: LinkHistory | None,
        weights: tuple[float, float, float] = (1.0, 0.0, 0.0),
        *,
        half_life: float | None = HALF_LIFE,
    ) -> None:
        self.estimator, self.weights = estimator, weights
        self.relayed = free_egress(weights)
        self._record = None
        self._known: dict[tuple[int, ...], list[PastPlan]] = {}
        if history is not None:  # searched before the run: it takes longer than a decision may
            self._record = _record_of(estimator, history, half_life, self.relayed)
            self.best(tuple(domain.gpus for domain in estimator.cluster.domains), self._record.states)

    @classmethod
    def of(cls, context: Context) -> "PastPlans":
        """Returns the plans for a run."""
        return cls(context.estimator, context.history, context.weights)

    @property
    def states(self) -> States | None:
        """Samples of the past; None where nothing is known."""
        return None if self._record is None else self._record.states

    def legal(self, free_gpus: tuple[int, ...], most: int, running: Plan | None = None) -> list[Plan]:
        """Returns the best plans found so far that the free GPUs allow, at most so many, with default knobs;
        beside them the best `NEAR` with the order of domains of `running`: to reach those few layers move."""
        job = self.estimator.job
        plans = dict.fromkeys(default_knobs(job, one.plan) for found in self._known.values() for one in found)
        alike = [] if running is None else [plan for plan in plans if plan.order == running.order]
        chosen: dict[Plan, None] = {}
        for among, count in ((plans, most), (alike, NEAR)):
            fit = (plan for plan in among if not self.estimator.problems(plan, free_gpus))
            chosen |= dict.fromkeys(islice(fit, count))
        return list(chosen)

    def rates_in_each(self, plan: Plan) -> Float | None:
        """Returns a plan's iterations per second in every sample of the past (T,); None where nothing is
        known."""
        return None if self._record is None else self._record.rates.in_each(plan)

    def judged(self, plans: Iterable[Plan]) -> list[PastPlan]:
        """Returns the plans by falling mean rate over the past (`ranked`); none where nothing is known."""
        return [] if self._record is None else ranked(self._record.rates, plans)

    def best(self, free_gpus: Sequence[int], otherwise: States) -> list[PastPlan]:
        """Returns the plans, best first; searched once for each number of free GPUs."""
        free = tuple(free_gpus)
        if free not in self._known:
            if self._record is None:
                rates = LongRunRates(self.estimator, otherwise, relayed=self.relayed)
                self._known[free] = self._searched(rates, free)
            else:
                found, key = self._record.best, (self.weights, free)
                if key not in found:
                    found[key] = self._searched(self._record.rates, free)
                self._known[free] = found[key]
        return self._known[free]

    def _searched(self, rates: LongRunRates, free: tuple[int, ...]) -> list[PastPlan]:
        objective = self._objective(rates, free)
        found = candidates(self.estimator, rates.states, free, relayed=self.relayed, objective=objective)
        return ranked(rates, found, objective)

    def _objective(self, rates: LongRunRates, free: tuple[int, ...]) -> Objective | None:
        """Returns the objective relative to the static plan's mean outcome; None where speed alone has
        weight."""
        if speed_alone(self.weights):
            return None
        base = PlanOutcome(1.0, 0.0, 0.0)
        try:
            plan = equal_cuts(self.estimator, [k for k, gpus in enumerate(free) if gpus > 0], free)
        except InfeasibleError:
            return Objective(self.weights, base)
        outcome = mean_outcome(self.estimator, plan, rates.rate(plan))
        return Objective(self.weights, outcome if outcome.iter_s < float("inf") else base)


def candidates(
    estimator: Estimator,
    states: States,
    free_gpus: Sequence[int],
    *,
    parts: int = PARTS,
    relayed: bool = True,
    objective: Objective | None = None,
) -> list[Plan]:
    """Returns the best plans for the typical links of the past and of each of its parts, over direct links
    and, where `relayed`, over unshared relays; the fastest ones, and those best by `objective` if given."""
    edges = np.linspace(0, len(states), parts + 1).round().astype(np.int64).tolist()
    found: dict[Plan, None] = {}
    for first, last in [(0, len(states)), *pairwise(edges)]:
        if last > first:
            part = States(states.bandwidth_bps[first:last], states.latency_s[first:last])
            found |= dict.fromkeys(_searched(estimator, part, free_gpus, objective, relayed=relayed))
    return list(found)


def _searched(
    estimator: Estimator,
    part: States,
    free_gpus: Sequence[int],
    objective: Objective | None,
    *,
    relayed: bool,
) -> list[Plan]:
    def over(states: States) -> list[Plan]:
        links = typical_links(states, np.ones(len(states)))
        if objective is not None:
            return _best_by(objective, estimator, links, free_gpus)
        return [plan for plan, _ in best_plans(estimator, links, free_gpus=free_gpus, top=FOUND)]

    found = over(part)
    if not found or not relayed:
        return found
    paths = RelayPaths(estimator.cluster, message_bits(estimator.job, found[0]), share=1.0)
    links, via = paths.best_routes(part)
    return found + over(links) if (via >= 0).any() else found


def _best_by(
    objective: Objective, estimator: Estimator, links: LinkState, free_gpus: Sequence[int]
) -> list[Plan]:
    """Returns the fastest plans under one link state, and those best by the objective."""
    pool = explore(estimator, links, free_gpus=free_gpus)
    add_weighted(pool, [k for k, gpus in enumerate(free_gpus) if gpus > 0], objective)
    rows = pool.fastest(VARIED * FOUND, of_each_order=True)
    if not len(rows):
        return []
    rates = per_second(pool.scorer.iter_ns(rows))
    plans = [build(estimator, rows.shape(pool.tables.options, n), rows.cuts(n)) for n in range(len(rows))]
    worth = [
        objective.value(mean_outcome(estimator, plan, rate))
        for plan, rate in zip(plans, rates.tolist(), strict=True)
    ]
    fastest = np.argsort(-rates, kind="stable")[:FOUND]
    chosen = [*np.argsort(-np.array(worth), kind="stable")[:FOUND].tolist(), *fastest.tolist()]
    return [plans[n] for n in dict.fromkeys(chosen)]
