"""Expected outcome of plans over a forecast horizon: time slices, scenarios of the links, migration pauses.

The log bandwidth of a link is its forecast median plus two independent errors: *drift*, which grows with the
horizon and persists, and *scatter*, which exists already now and is drawn anew in every slice. A plan can be
left when links drift (`policy.core.recourse`), not because of scatter. Both errors have the calibrated
distribution of the forecast: a link that rarely drops far differs from one that varies all the time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import GB
from policy.core.objective import Objective, PlanOutcome
from policy.core.recourse import TwoStageProgram
from twin.core.domain import LinkState, Matrix
from twin.core.plan import Plan
from twin.core.view import Forecast
from twin.estimation.estimator import Estimator, Migration
from twin.estimation.link_state_times import States, iteration_ns, per_second
from twin.estimation.many_moves import moves
from twin.estimation.resource_use import open_links

SCENARIOS = 8
"""Equally likely scenarios; each link has each eighth of its distribution in one of them (a Latin
hypercube)."""
LEVELS = (np.arange(SCENARIOS) + 0.5) / SCENARIOS
DEVIATIONS = np.array([NormalDist().inv_cdf(level) for level in LEVELS.tolist()])
WAITS = np.log1p(-LEVELS) / np.log(0.5)
"""Centres of the eighths of a standard normal, and of an exponential distribution relative to its median."""
Rates = Callable[[Plan, States, NDArray[np.float64] | None], NDArray[np.float64]]
"""Iterations per second of a plan in T states (T,), for a slowdown of each domain."""


@dataclass(frozen=True, slots=True, eq=False)
class Outages:
    """Links that are dead now (K, K): median time until each is back, 0 if it lives, and its bandwidth
    then."""

    back_s: Matrix
    bandwidth_bps: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Horizon:
    """The time ahead in S slices with the links expected in each.

    `edges_s` (S + 1,) from 0 to the horizon. `states` holds, slice after slice, the links of each of N
    scenarios; `summary` the median links of each slice, then those of each scenario in the last slice;
    `bulk_links` the present links of a migration's transfers where messages take other routes.
    """

    edges_s: NDArray[np.float64]
    states: States
    summary: States
    bulk_links: LinkState | None = None

    @property
    def slices(self) -> int:
        """S."""
        return len(self.edges_s) - 1

    @property
    def median(self) -> tuple[LinkState, ...]:
        """The median links of each slice."""
        bandwidth = self.summary.bandwidth_bps[: self.slices]
        return tuple(map(LinkState, bandwidth, self.summary.latency_s))

    @property
    def now(self) -> LinkState:
        """The median links of the first slice."""
        return LinkState(self.summary.bandwidth_bps[0], self.summary.latency_s[0])

    @property
    def migration_links(self) -> LinkState:
        """The present links of a migration's transfers."""
        return self.bulk_links or self.now

    @property
    def pessimistic(self) -> LinkState:
        """The links of the last slice, each at the lower third of its scenarios."""
        low = np.sort(self.summary.bandwidth_bps[self.slices :], axis=0)[SCENARIOS // 3]
        return LinkState(low, self.summary.latency_s[-1])

    @property
    def length_s(self) -> float:
        """Seconds ahead."""
        return float(self.edges_s[-1])

    def sliced(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns values (P, S * N) of plans in `states` as (P, S, N)."""
        return values.reshape(len(values), self.slices, SCENARIOS)


def make_horizon(forecast: Forecast, horizon_s: float, outages: Outages) -> Horizon:
    """Returns [0, horizon_s) in slices, split midway between the forecast's horizons; the last forecast holds
    to the end.

    There is one more split where a dead link is expected back; in the scenarios its outage lasts as long as
    the eighths of an exponential distribution.
    """
    times = [float(h) for h in forecast.horizons_s if h < horizon_s]
    between = [(a + b) / 2 for a, b in pairwise(times)]
    back = outages.back_s[(outages.back_s > 0) & (outages.back_s < horizon_s)]
    edges = np.unique([0.0, *between, *back.tolist(), horizon_s])
    which = np.searchsorted(between, edges[:-1], side="right")  # the forecast of each slice
    revived = (outages.back_s > 0) & (outages.back_s <= edges[:-1, None, None])
    median = np.where(revived, outages.bandwidth_bps, forecast.bandwidth_bps[which])
    scenarios = _scenarios((edges[:-1] + edges[1:]) / 2, forecast, which, outages)
    summary = np.concatenate([median, scenarios[-SCENARIOS:]])
    latency = forecast.latency_s
    states, shown = (States(x, np.broadcast_to(latency, x.shape)) for x in (scenarios, summary))
    return Horizon(edges, states, shown)


def _scenarios(
    middle_s: NDArray[np.float64], forecast: Forecast, which: NDArray[np.int64], outages: Outages
) -> Matrix:
    """Returns bandwidths (S * N, K, K) of slices centred at `middle_s` (S,), under the forecasts `which`
    (S,)."""
    slices, size = len(middle_s), len(forecast.latency_s)
    persistent, transient = _draws(slices, size)
    sd_log, now_sd = forecast.sd_log[which], forecast.sd_log[0]
    drift = np.sqrt(np.maximum(sd_log**2 - now_sd**2, 0.0))
    scatter = np.minimum(sd_log, now_sd)
    reach = forecast.reach(DEVIATIONS)  # of each horizon's eighths: measured errors are not Gaussian
    error = drift[:, None] * reach[which][:, persistent] + scatter[:, None] * reach[0][transient]
    back = (outages.back_s > 0) & (outages.back_s * WAITS[persistent] <= middle_s[:, None, None, None])
    level = np.where(back, outages.bandwidth_bps, forecast.bandwidth_bps[which][:, None])
    states: Matrix = (level * np.exp(error)).reshape(-1, size, size)
    return states


@lru_cache(maxsize=64)
def _draws(slices: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the eighth of each link's drift in each scenario (N, K, K), and of its scatter in each slice
    (slices, N, K, K). The draws are always the same.
    """
    eighths = np.arange(SCENARIOS)[:, None, None]
    drawn = np.random.default_rng(0).permuted(
        np.broadcast_to(eighths, (slices + 1, SCENARIOS, size, size)), axis=1
    )
    return drawn[0], drawn[1:]


@dataclass(frozen=True, slots=True, eq=False)
class PlanComparison:
    """Computes expected outcomes of plans to which the job migrates from `running` now; `rates` are those of
    the plans as they stand unless given."""

    estimator: Estimator
    horizon: Horizon
    running: Plan | None
    restart_s: float
    slowdown: NDArray[np.float64] | None
    rates: Rates | None = None

    def kept_outcomes(self, plans: Sequence[Plan]) -> list[PlanOutcome]:
        """Returns the expected outcome of each plan over the horizon if it is kept.

        Nothing is done during the pause of the migration (transfer over the present links, restart), and its
        egress is charged. The iteration under way is finished under the old plan, so that none of it is lost.
        """
        return outcomes_of(self._program(plans).without_recourse(), self.horizon.length_s)

    def outcomes(
        self, plans: Sequence[Plan], objective: Objective
    ) -> tuple[list[PlanOutcome], list[PlanOutcome]]:
        """Returns the expected outcome of each plan if it may be left later for another one of them, and if
        it is kept.
        """
        program, seconds = self._program(plans), self.horizon.length_s
        best = program.best_somewhere(objective)
        pause, usd = self._moves(plans, [plans[q] for q in best])
        expected = program.with_recourse(best, pause, usd, objective)
        return outcomes_of(expected, seconds), outcomes_of(program.without_recourse(), seconds)

    def _program(self, plans: Sequence[Plan]) -> TwoStageProgram:
        estimator, horizon = self.estimator, self.horizon
        found = [self._rates(plan) for plan in plans]
        each = [per_iteration(estimator, plan, self.slowdown) for plan in plans]
        none = np.zeros((2, 1, len(plans)))  # nothing moves at the start
        pause, usd = none if self.running is None else self._moves([self.running], plans)
        columns = (pause[0], usd[0], *zip(*each, strict=True))
        return TwoStageProgram(horizon.edges_s, horizon.sliced(np.stack(found)), *map(np.array, columns))

    def _rates(self, plan: Plan) -> NDArray[np.float64]:
        """Returns iterations per second in every slice and scenario, (S * N,)."""
        states = self.horizon.states
        if self.rates is not None:
            return self.rates(plan, states, self.slowdown)
        return per_second(iteration_ns(self.estimator, plan, states, self.slowdown))

    def _moves(self, old: Sequence[Plan], new: Sequence[Plan]) -> NDArray[np.float64]:
        """Returns pauses and egress (2, P, Q) of migrating from each plan to each of the new ones."""
        links, estimator = self.horizon.migration_links, self.estimator
        if all(plan.sync is None for plan in (*old, *new)) and not any(plan.routes for plan in new):
            seconds, moved = moves(estimator, old, new, links)
            pauses = np.where(seconds > 0, seconds - estimator.restart_s + self.restart_s, 0.0)
            return np.stack([pauses, egress_usd(estimator, moved)])
        found = [[estimator.move(one, plan, links) for plan in new] for one in old]
        each = [
            [
                (pause_s(estimator, move, self.restart_s), float(egress_usd(estimator, move.bytes)))
                for move in row
            ]
            for row in found
        ]
        return np.array(each).transpose(2, 0, 1)


def outcomes_of(totals: Matrix, seconds: float) -> list[PlanOutcome]:
    """Returns outcomes of plans with iterations, compute seconds and USD (P, 3) over so many seconds."""
    return [
        PlanOutcome(seconds / done, busy / seconds, usd / done)
        if done > 0
        else PlanOutcome(float("inf"), 0.0, 0.0)
        for done, busy, usd in totals.tolist()
    ]


def pause_s(estimator: Estimator, move: Migration, restart_s: float) -> float:
    """Returns the pause of a migration when a restart takes `restart_s` in this run; 0 for free knobs."""
    return move.seconds - estimator.restart_s + restart_s if move.seconds > 0 else 0.0


def per_iteration(
    estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64] | None
) -> tuple[float, float]:
    """Returns mean compute seconds of the active domains and egress USD of an iteration, which no link
    changes."""
    slower = None if slowdown is None else tuple(float(s) for s in slowdown)
    return _per_iteration(estimator, plan, slower)


@lru_cache(maxsize=4096)
def _per_iteration(
    estimator: Estimator, plan: Plan, slowdown: tuple[float, ...] | None
) -> tuple[float, float]:
    slower = None if slowdown is None else np.array(slowdown)
    estimate = estimator.iteration(plan, open_links(estimator.cluster.size), slower)
    return estimate.utilisation * estimate.iter_s, estimate.usd


def egress_usd(estimator: Estimator, moved: Matrix) -> NDArray[np.float64]:
    """Returns the price of bytes between domains (..., K, K); the diagonal is traffic inside and free."""
    prices = np.array(estimator.cluster.usd_per_gb)
    off = moved * ~np.eye(len(prices), dtype=np.bool_) * prices
    usd: NDArray[np.float64] = off.reshape(*moved.shape[:-2], -1).sum(axis=-1) / GB
    return usd
