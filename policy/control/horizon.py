"""Expected outcome of plans over a horizon: forecast slices, scenarios of the links, the pause of a move.

A link's log bandwidth is its forecast median plus two doubts, each link's own: *drift*, which grows with the
horizon and lasts, and *scatter*, which is there already now and is another one in every slice. A plan can be
left when links drift (`policy.recourse`); scatter has to be borne. Both have the calibrated shape of the
forecast's errors: a link that falls rarely and far is not one that wavers all the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import GB
from policy.core.objective import Objective, Outcome
from twin.estimate.link_state_times import States, iteration_ns, per_second
from policy.core.recourse import Prospects
from twin.estimate.resource_use import open_links
from twin.core.domain import LinkState, Matrix
from twin.estimate.estimator import Estimator, Move
from twin.core.plan import Plan
from twin.core.view import Forecast

SCENARIOS = 8
"""Equally likely ones; each link has each eighth of its distribution in one of them (a Latin hypercube)."""


LEVELS = (np.arange(SCENARIOS) + 0.5) / SCENARIOS
DEVIATIONS = np.array([NormalDist().inv_cdf(level) for level in LEVELS.tolist()])
WAITS = np.log1p(-LEVELS) / np.log(0.5)
"""Middles of the eighths of a standard normal, and of an exponential distribution over its median."""


@dataclass(frozen=True, slots=True, eq=False)
class Outages:
    """Links that are dead now: the median time until each is back (0 = it lives), and with which bandwidth;
    (K, K)."""

    back_s: Matrix
    bandwidth_bps: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Horizon:
    """The time ahead in S slices with the links expected in each.

    `edges_s` (S + 1,) from 0 to the horizon. `states` holds, slice after slice, the links of each of N
    scenarios; `glimpse` the median links of each slice, then those of each scenario in the last one;
    `carriers` what the layers of a move find now where that is something else than messages find.
    """

    edges_s: NDArray[np.float64]
    states: States
    glimpse: States
    carriers: LinkState | None = None

    @property
    def slices(self) -> int:
        """S."""
        return len(self.edges_s) - 1

    @property
    def middle(self) -> tuple[LinkState, ...]:
        """The median links of each slice."""
        median = self.glimpse.bandwidth_bps[: self.slices]
        return tuple(map(LinkState, median, self.glimpse.latency_s))

    @property
    def now(self) -> LinkState:
        """The median links of the first slice."""
        return LinkState(self.glimpse.bandwidth_bps[0], self.glimpse.latency_s[0])

    @property
    def moving(self) -> LinkState:
        """The links that the layers of a move take now."""
        return self.carriers or self.now

    @property
    def cautious(self) -> LinkState:
        """The links of the last slice, each at the lower third of its scenarios."""
        low = np.sort(self.glimpse.bandwidth_bps[self.slices :], axis=0)[SCENARIOS // 3]
        return LinkState(low, self.glimpse.latency_s[-1])

    @property
    def length_s(self) -> float:
        """Seconds ahead."""
        return float(self.edges_s[-1])

    def sliced(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values (P, S * N) of plans in `states` as (P, S, N)."""
        return values.reshape(len(values), self.slices, SCENARIOS)


def ahead(forecast: Forecast, horizon_s: float, outages: Outages) -> Horizon:
    """Cut [0, horizon_s) midway between the forecast's horizons; the last forecast holds to the end.

    Where a dead link is expected back there is one more cut; in scenarios its outage lasts as long as the
    eighths of an exponential distribution do.
    """
    times = [float(h) for h in forecast.horizons_s if h < horizon_s]
    between = [(a + b) / 2 for a, b in pairwise(times)]
    back = outages.back_s[(outages.back_s > 0) & (outages.back_s < horizon_s)]
    edges = np.unique([0.0, *between, *back.tolist(), horizon_s])
    at = np.searchsorted(between, edges[:-1], side="right")  # the forecast that each slice takes
    revived = (outages.back_s > 0) & (outages.back_s <= edges[:-1, None, None])
    median = np.where(revived, outages.bandwidth_bps, forecast.bandwidth_bps[at])
    states = _scenarios((edges[:-1] + edges[1:]) / 2, forecast, at, outages)
    glimpse = np.concatenate([median, states[-SCENARIOS:]])
    latency = forecast.latency_s
    shown, seen = (States(x, np.broadcast_to(latency, x.shape)) for x in (states, glimpse))
    return Horizon(edges, shown, seen)


def _scenarios(
    middle_s: NDArray[np.float64], forecast: Forecast, at: NDArray[np.int64], outages: Outages
) -> Matrix:
    """Bandwidths (S * N, K, K) of the slices around `middle_s` (S,) that take the forecasts `at` (S,)."""
    slices, size = len(middle_s), len(forecast.latency_s)
    lasting, passing = _draws(slices, size)
    sd_log, now_sd = forecast.sd_log[at], forecast.sd_log[0]
    drift = np.sqrt(np.maximum(sd_log**2 - now_sd**2, 0.0))
    scatter = np.minimum(sd_log, now_sd)
    reach = forecast.reach(DEVIATIONS)  # of each horizon's eighths: measured errors are not Gaussian
    off = drift[:, None] * reach[at][:, lasting] + scatter[:, None] * reach[0][passing]
    back = (outages.back_s > 0) & (outages.back_s * WAITS[lasting] <= middle_s[:, None, None, None])
    level = np.where(back, outages.bandwidth_bps, forecast.bandwidth_bps[at][:, None])
    states: Matrix = (level * np.exp(off)).reshape(-1, size, size)
    return states


@lru_cache(maxsize=64)
def _draws(slices: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which eighth each link is in, in each scenario (N, K, K), and for what passes in each slice (slices, N,
    K, K); always the same ones.
    """
    eighths = np.arange(SCENARIOS)[:, None, None]
    drawn = np.random.default_rng(0).permuted(
        np.broadcast_to(eighths, (slices + 1, SCENARIOS, size, size)), axis=1
    )
    return drawn[0], drawn[1:]


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What is the same for all plans of one decision: the job goes over to them from `running` now."""

    estimator: Estimator
    horizon: Horizon
    running: Plan | None
    restart_s: float
    slowdown: NDArray[np.float64] | None

    def kept(self, plans: Sequence[Plan]) -> list[Outcome]:
        """What each plan is expected to bring over the horizon if it is kept.

        The pause of the move (transfer at the present links, restart) brings nothing and its bytes are paid
        for. The iteration under way is finished under the old plan, so that nothing of it is lost.
        """
        return outcomes_of(self._prospects(plans).kept(), self.horizon.length_s)

    def compared(self, plans: Sequence[Plan], objective: Objective) -> tuple[list[Outcome], list[Outcome]]:
        """What each plan is expected to bring if it may be left later for another of them, and if it is
        kept.
        """
        prospects, seconds = self._prospects(plans), self.horizon.length_s
        best = prospects.leading(objective)
        later = np.array([self._moves(plan, [plans[q] for q in best]) for plan in plans])
        brought = prospects.brought(best, later[:, 0], later[:, 1], objective)
        return outcomes_of(brought, seconds), outcomes_of(prospects.kept(), seconds)

    def _prospects(self, plans: Sequence[Plan]) -> Prospects:
        estimator, horizon = self.estimator, self.horizon
        times = [iteration_ns(estimator, plan, horizon.states, self.slowdown) for plan in plans]
        each = [per_iteration(estimator, plan, self.slowdown) for plan in plans]
        rates = horizon.sliced(per_second(np.stack(times)))
        columns = (*self._moves(self.running, plans), *zip(*each, strict=True))
        return Prospects(horizon.edges_s, rates, *map(np.array, columns))

    def _moves(self, old: Plan | None, new: Sequence[Plan]) -> tuple[list[float], list[float]]:
        """Seconds and egress of going over from a plan to each of some."""
        found = [self.estimator.move(old, plan, self.horizon.moving) for plan in new]
        pauses = [pause_s(self.estimator, move, self.restart_s) for move in found]
        return pauses, [egress_usd(self.estimator, move.bytes) for move in found]


def outcomes_of(brought: Matrix, seconds: float) -> list[Outcome]:
    """Outcomes of plans that bring iterations, compute seconds and USD (P, 3) in so many seconds."""
    return [
        Outcome(seconds / done, busy / seconds, usd / done) if done > 0 else Outcome(float("inf"), 0.0, 0.0)
        for done, busy, usd in brought.tolist()
    ]


def pause_s(estimator: Estimator, move: Move, restart_s: float) -> float:
    """Seconds that a move stops the job when a restart takes `restart_s` in this run; 0 for free knobs."""
    return move.seconds - estimator.restart_s + restart_s if move.seconds > 0 else 0.0


def per_iteration(
    estimator: Estimator, plan: Plan, slowdown: NDArray[np.float64] | None
) -> tuple[float, float]:
    """Mean compute seconds of the active domains, and egress USD, of one iteration: whatever the links do."""
    slower = None if slowdown is None else tuple(float(s) for s in slowdown)
    return _per_iteration(estimator, plan, slower)


@lru_cache(maxsize=4096)
def _per_iteration(
    estimator: Estimator, plan: Plan, slowdown: tuple[float, ...] | None
) -> tuple[float, float]:
    slower = None if slowdown is None else np.array(slowdown)
    estimate = estimator.iteration(plan, open_links(estimator.cluster.size), slower)
    return estimate.utilisation * estimate.iter_s, estimate.usd


def egress_usd(estimator: Estimator, moved: Matrix) -> float:
    """Price of bytes between domains (K, K); the diagonal stays inside and is free."""
    prices = np.array(estimator.cluster.usd_per_gb)
    off = moved * ~np.eye(len(moved), dtype=np.bool_)
    return float((off * prices).sum() / GB)
