"""Stretches of a training window as a policy meets them: plans, what it knows of them, what they really do.

The training window, 70 % of a series, is cut into stretches. Each is a run of its own: filters and the past
are of what came before it. At the begin of every period a moment holds, for P plans, rates predicted from the
filtered links and the true ones that follow, knobs turned in both; all rates are iterations per second.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S, to_ns
from policy.baselines.mpc import TUNED
from policy.control.candidate_search import DeadLinkTracker
from policy.control.horizon import Horizon, make_horizon, pause_s
from policy.control.knobs import default_knobs
from policy.control.long_run import LongRunRates, PastPlans, typical_links
from policy.control.plan_rates import PlanRates
from policy.core.protocol import Context
from policy.search.plan_search import best_plans
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.seeds import generator
from twin.core.view import Forecast, View
from twin.costs.wan_traffic import crossings
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States
from twin.filters.link_filter import pairs
from twin.filters.past_telemetry import read
from twin.scenario.prepare import PreparedScenario, Scenario, assemble
from twin.settings.window import TRAIN_SHARE, TimeSpan
from twin.traces import measured_links
from twin.traces.wan_trace import WanTrace

Float = NDArray[np.float64]

EDGES = (0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
"""Of the stretches, shares of the training window."""
BEYOND = 36
"""Periods after a stretch whose true rates are known, where the window has them."""
STEPS = 3
"""True link states in a period."""
FROM_PAST, MOMENTS, OF_MOMENT = 16, 8, 2
"""Plans of the past, and the best ones under the filtered links of some moments."""
LEARNED_SEEDS = (1, 2)
"""Of the disturbances of a stretch that is learned from, where a scenario has any; 0 is that of the test."""
RECENT = 12
"""Periods of which the mean prediction is known."""
FEATURES = (
    "now", "ahead", "recent", "spread of the rate", "share of slow times", "hour", "domains",
    "worst link now", "spread of links", "outages of links", "error of forecasts", "a link is dead",
    "behind the best",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Stretch:
    """One run over I moments."""

    setup: PreparedScenario
    estimator: Estimator
    past: PastPlans
    views: tuple[View, ...]
    horizons: tuple[Horizon, ...]
    _columns: dict[Plan, Float] = field(default_factory=dict)

    @property
    def period_s(self) -> float:
        """Seconds of a period."""
        return self.setup.scenario.control.period_s

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """P placements that policies choose from; the first one is worth most over the past."""
        free = tuple(domain.gpus for domain in self.estimator.cluster.domains)
        found = self.past.legal(free, FROM_PAST)
        for n in np.linspace(0, len(self.views) - 1, MOMENTS).astype(int):
            links = self.views[n].forecast.links()
            found += [one for one, _ in best_plans(self.estimator, links, free_gpus=free, top=OF_MOMENT)]
        job = self.estimator.job
        return tuple(dict.fromkeys(default_knobs(job, plan) for plan in found))

    @cached_property
    def truth(self) -> States:
        """True links, `STEPS` in each period, to the end of what is known."""
        step_ns = to_ns(self.period_s) // STEPS
        return states_of(self.setup.wan, self.setup.wan.end_ns // step_ns, step_ns)

    def true(self, plan: Plan) -> Float:
        """Returns the mean true rate of a placement in each period, (I + some,)."""
        if plan not in self._columns:
            rates = self._true_rates.turned_in_each(plan)[1]
            whole = len(rates) // STEPS * STEPS
            self._columns[plan] = rates[:whole].reshape(-1, STEPS).mean(axis=1)
        return self._columns[plan]

    @cached_property
    def _true_rates(self) -> LongRunRates:
        return LongRunRates(self.estimator, self.truth)

    @cached_property
    def truths(self) -> Float:
        """True rates of all plans, (I + some, P)."""
        return np.stack([self.true(plan) for plan in self.plans], axis=1)

    def future(self, periods: int) -> Float:
        """Returns mean true rates over so many periods from each moment on, (I, P); not a number where the
        window ends before."""
        total = np.concatenate([np.zeros((1, len(self.plans))), np.cumsum(self.truths, axis=0)])
        mean = np.full((len(self.views), len(self.plans)), np.nan)
        known = min(len(self.views), len(self.truths) - periods + 1)
        if known > 0:
            mean[:known] = (total[periods : periods + known] - total[:known]) / periods
        return mean

    @cached_property
    def _past_in_each(self) -> tuple[list[Plan], Float]:
        """Plans at the depth that was best over the past, and their rates in every sample of it (P, T)."""
        assert self.past.states is not None
        rates = LongRunRates(self.estimator, self.past.states)
        found = [rates.turned_in_each(plan) for plan in self.plans]
        return [plan for plan, _ in found], np.stack([row for _, row in found])

    @cached_property
    def mean(self) -> Float:
        """Mean rates over the past (P,)."""
        return np.maximum(self._past_in_each[1].mean(axis=1), 1e-9)

    @cached_property
    def now(self) -> Float:
        """Rates under the filtered present (I, P)."""
        rates = LongRunRates(self.estimator, States.of([view.forecast.links() for view in self.views]))
        return np.stack([rates.turned_in_each(plan)[1] for plan in self.plans], axis=1)

    @cached_property
    def ahead(self) -> Float:
        """Expected rates over the hour that `mpc` looks ahead (I, P), as it computes them."""
        rates, deep = PlanRates(self.estimator, True), self._past_in_each[0]
        found = []
        for horizon in self.horizons:
            each = horizon.sliced(np.stack([rates(plan, horizon.states) for plan in deep])).mean(axis=2)
            found.append(each @ np.diff(horizon.edges_s) / horizon.length_s)
        return np.stack(found)

    @cached_property
    def features(self) -> Float:
        """What a policy knows of every plan at every moment (I, P, F), in the order of `FEATURES`."""
        rows, links = self._past_in_each[1], self._of_links
        ends = range(1, len(self.now) + 1)
        recent = np.stack([self.now[max(0, end - RECENT) : end].mean(axis=0) for end in ends])
        rest = [rows.std(axis=1) / self.mean, (rows < 0.5 * self.mean[:, None]).mean(axis=1)]
        domains = np.array([len(plan.shares) - 1.0 for plan in self.plans])
        behind = np.log(self.mean / self.mean.max())
        columns = [
            *(_log_ratio(rate, self.mean) for rate in (self.now, self.ahead, recent)), *rest,
            self._hours, domains, *links, behind,
        ]  # fmt: skip
        return np.stack([np.broadcast_to(column, self.now.shape) for column in columns], axis=2)

    @cached_property
    def _hours(self) -> Float:
        """Log of the mean rate at this hour of the day over the long-run mean (I, P), the hours beside it
        counted; 0 where less than a day is known."""
        history = self.setup.history
        assert history is not None
        if history.length_s < 24 * 3600.0:
            return np.zeros((len(self.views), len(self.plans)))
        rows = self._past_in_each[1]
        hour_of = history.hours_of_day[history.evenly(rows.shape[1])]
        found = []
        for view in self.views:
            apart = (hour_of - history.hour(view.now_ns)) % 24
            near = (apart <= 1) | (apart == 23)
            found.append(rows[:, near].mean(axis=1) if near.any() else self.mean)
        return _log_ratio(np.stack(found), self.mean)

    @cached_property
    def _of_links(self) -> list[Float]:
        """For the links between domains that each plan uses: the least log of the bandwidth now over its
        mean, the largest spread and share of outages, the mean error of the farthest forecast, and whether
        one is dead; (I, P) each, 0 for a plan in one domain."""
        history = self.setup.history
        assert history is not None
        ahead = [view.forecast for view in self.views]
        size = history.mean_bps.shape[0]
        off = ~np.eye(size, dtype=np.bool_)
        level = np.zeros((len(ahead), size, size))
        bandwidth = np.stack([one.bandwidth_bps[0] for one in ahead])
        level[:, off] = _log_ratio(bandwidth[:, off], history.mean_bps[off])
        error, dead = np.stack([one.sd_log[-1] for one in ahead]), (bandwidth <= 0).astype(np.float64)
        columns: list[list[Float]] = [[], [], [], [], []]
        for plan in self.plans:
            used = list(crossings(self.estimator.job, plan))
            rows, targets = np.array(used, dtype=np.int64).reshape(-1, 2).T
            here = (
                level[:, rows, targets].min(axis=1, initial=0.0),
                np.full(len(ahead), history.sd_log[rows, targets].max(initial=0.0)),
                np.full(len(ahead), history.outage_share[rows, targets].max(initial=0.0)),
                error[:, rows, targets].sum(axis=1) / max(len(used), 1),
                dead[:, rows, targets].max(axis=1, initial=0.0),
            )
            for column, values in zip(columns, here, strict=True):
                column.append(values)
        return [np.stack(column, axis=1) for column in columns]

    def pause(self, old: Plan, new: Plan) -> float:
        """Returns the seconds of a move over the typical links of the past."""
        move = self.estimator.move(old, new, self._typical)
        return pause_s(self.estimator, move, self.setup.scenario.moving.restart_s)

    @cached_property
    def _typical(self) -> LinkState:
        assert self.past.states is not None
        return typical_links(self.past.states, np.ones(len(self.past.states)))

    @cached_property
    def pauses(self) -> Float:
        """Seconds of a move from each plan to each other one (P, P)."""
        plans = self.plans
        return np.array([[self.pause(old, new) if old != new else 0.0 for new in plans] for old in plans])

    def context(self) -> Context:
        """Returns what a policy knows when a run begins."""
        scenario, rng = self.setup.scenario, generator(self.setup.seed, "policy")
        return Context(
            self.estimator, self.period_s, scenario.moving.restart_s, scenario.weights.vector, rng,
            self.setup.history,
        )  # fmt: skip


def stretches(scenario: Scenario, store: Path) -> tuple[list[list[Stretch]], list[Stretch]]:
    """Returns for each part of the training window the stretches that are learned from, and the one that is a
    test; they differ where links are disturbed at random."""
    wan = measured_links.load(store, scenario.wan, scenario.domains, TRAIN_SHARE)
    wan = wan.window(0, round(TRAIN_SHARE * wan.end_ns))
    calm = scenario.model_copy(update={"outages": ()})  # whose times no policy is told
    disturbed = scenario.perturbation.noise is not None or scenario.perturbation.regimes
    learned, tests = [], []
    for first, last in pairwise(EDGES):
        tests.append(_stretch(scenario, wan, first, last, 0))
        seeds = LEARNED_SEEDS if disturbed else ()
        learned.append([_stretch(calm, wan, first, last, seed) for seed in seeds] or [tests[-1]])
    return learned, tests


def _stretch(scenario: Scenario, wan: WanTrace, first: float, last: float, seed: int) -> Stretch:
    period_ns = to_ns(scenario.control.period_s)
    from_ns, count = round(first * wan.end_ns), round((last - first) * wan.end_ns) // period_ns
    to = min(from_ns + (count + BEYOND) * period_ns, wan.end_ns)
    setup = assemble(scenario, wan, window=TimeSpan(from_ns, to, wan.end_ns), seed=seed)
    views = tuple(_views(setup, int(count)))
    tracker = DeadLinkTracker(setup.cluster.size, TUNED.outage_s)
    horizons = tuple(make_horizon(one.forecast, TUNED.horizon_s, tracker.outages(one)) for one in views)
    estimator = setup.estimator()
    return Stretch(setup, estimator, PastPlans(estimator, setup.history), views, horizons)


def _views(setup: PreparedScenario, count: int) -> list[View]:
    """Returns what a policy sees at the begin of each period: samples arrive a moment after they are made."""
    filter_, telemetry = setup.link_filter(), setup.scenario.telemetry
    period_ns, step_ns = to_ns(setup.scenario.control.period_s), to_ns(telemetry.period_s)
    truth = states_of(setup.wan, -(-count * period_ns // step_ns), step_ns)
    rng, found = generator(setup.seed, "telemetry"), []
    for n in range(len(truth)):
        now_ns, bandwidth = n * step_ns, truth.bandwidth_bps[n]
        noise = np.exp(telemetry.noise * rng.standard_normal((2, *bandwidth.shape)))
        sample = LinkState(bandwidth * noise[0], truth.latency_s[n] * noise[1])
        if n == 0:
            filter_.observe(now_ns, sample)
        filter_.dead = bandwidth[filter_.rows, filter_.columns] <= 0
        if now_ns % period_ns == 0:
            found.append(_view(setup, now_ns, filter_.forecast(now_ns)))
        if n > 0:
            filter_.observe(now_ns, sample)
    return found


def _view(setup: PreparedScenario, now_ns: int, forecast: Forecast) -> View:
    free = tuple(domain.gpus for domain in setup.cluster.domains)
    return View(now_ns, "period", forecast, None, free, np.ones(len(free)), now_ns / NS_PER_S, 0.0)


def states_of(wan: WanTrace, count: int, step_ns: int) -> States:
    """Returns the true links at `count` regular steps from the begin on."""
    _, links = read(wan, 0, count * step_ns, step_ns)
    size = len(wan.names)
    bandwidth, latency = np.full((count, size, size), np.inf), np.zeros((count, size, size))
    rows, columns = pairs(size)
    bandwidth[:, rows, columns], latency[:, rows, columns] = links.bandwidth_bps.T, links.latency_s.T
    return States(bandwidth, latency)


def _log_ratio(part: Float, whole: Float) -> Float:
    """Returns the log of a ratio, at least that of a tenth."""
    ratio: Float = np.log(np.maximum(part / whole, 0.1))
    return ratio
