"""Candidate plans for look-ahead control, searched again only when links have changed; and link outages.

A search is for one link state, and the best plan of one state may depend on links that will degrade. So plans
are searched for two states, the present links and pessimistic ones at the end of the horizon. All plans found
are ranked by their expected rate over the slices and scenarios of the horizon, by the closed form; where more
than speed has weight, by the objective at that rate, and orders good by it are searched, too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from policy.control.horizon import SCENARIOS, Horizon, Outages, per_iteration
from policy.control.weighted_orders import add_weighted
from policy.core.objective import Objective, PlanOutcome, speed_alone
from policy.search.batch_scoring import CLOSED_FORM_SCHEDULES, OptionRows, Scorer, concatenated
from policy.search.closed_form import ShareTimeTables, tables
from policy.search.mean_rates import mean_rates
from policy.search.plan_search import TimedPlans, build, explore, first_of_each
from twin.core.domain import LinkState, Matrix
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import per_second

Float = NDArray[np.float64]

SAME = 0.05
"""Links and slowdowns that have changed by less than this share need no new search,"""
DRIFTED = 0.3
"""and only a search around known plans if they differ by less than this from those of the last full
search."""
KEPT = 400
"""Plans kept from each search; where more than speed has weight, also the fastest of each order."""
VARIED = 6
"""Where more than speed has weight, this many times the requested plans are compared, and the best of each
order: prices differ by order."""


@dataclass(frozen=True, slots=True, eq=False)
class _Searched:
    """Results of the last search, its links, and the links of the last full search."""

    links: LinkState
    full_search_links: LinkState
    free_gpus: tuple[int, ...]
    slowdown: Matrix
    rows: OptionRows

    def suits(self, view: View) -> bool:
        """Tells whether the GPUs are still those of the search, and about as fast."""
        return self.free_gpus == tuple(view.free_gpus) and np.allclose(
            self.slowdown, view.slowdown, rtol=SAME
        )


class CandidateSearch:
    """Finds the `most` best plans over a horizon, at most one for each shape; migration is not charged."""

    def __init__(self, estimator: Estimator, most: int) -> None:
        self._estimator, self._most = estimator, most
        self._searched: dict[str, _Searched] = {}

    def plans(self, view: View, horizon: Horizon, objective: Objective, running: Plan | None) -> list[Plan]:
        """Returns the plans, best first; searches also start from `running`."""
        known = tables(self._estimator, view.free_gpus)
        links = {"now": horizon.now, "later": horizon.pessimistic}
        found = [
            rows for name in links if len(rows := self._rows(view, name, links[name], running, objective))
        ]
        if not found:
            return []
        rows = concatenated(found)
        rate = _expected_rates(self._estimator, known, horizon, view, rows)
        order = np.lexsort((np.arange(len(rate)), -rate))
        order = order[rate[order] > 0]
        first = np.sort(first_of_each(rows.shapes[order]))
        return self._chosen(view, known, rows[order[first]], rate[order[first]], objective)

    def _rows(
        self, view: View, name: str, links: LinkState, running: Plan | None, objective: Objective
    ) -> OptionRows:
        speed = speed_alone(objective.weights)
        own = self._searched.get(name)
        known = [one for one in self._searched.values() if len(one.rows) and one.suits(view)]
        if own in known and _differ(links, own.links) <= SAME:
            return own.rows
        before = min(known, key=lambda one: _differ(links, one.full_search_links), default=None)
        if before is not None and _differ(links, before.full_search_links) <= DRIFTED:
            full, pool = (
                before.full_search_links,
                TimedPlans(self._estimator, links, view.free_gpus, view.slowdown),
            )
            pool.add(before.rows)
            pool.climb(pool.finalists())
            if running is not None:
                pool.climb_from(running)
        else:
            full = links
            pool = explore(
                self._estimator, links, free_gpus=view.free_gpus, slowdown=view.slowdown, start=running
            )
            if not speed:
                add_weighted(pool, [k for k, gpus in enumerate(view.free_gpus) if gpus > 0], objective)
        rows = pool.fastest(KEPT, of_each_order=not speed)
        self._searched[name] = _Searched(links, full, tuple(view.free_gpus), view.slowdown, rows)
        return rows

    def _chosen(
        self, view: View, known: ShareTimeTables, rows: OptionRows, rate: Float, objective: Objective
    ) -> list[Plan]:
        """Returns the best plans of shapes, which come by falling rate (P,)."""
        if speed_alone(objective.weights):
            return [self._plan(known, rows, row) for row in range(min(self._most, len(rows)))]
        leaders = first_of_each(rows.domain)
        compared = np.unique(np.concatenate([np.arange(min(VARIED * self._most, len(rows))), leaders]))
        found: list[tuple[float, int, Plan]] = []
        for row in compared.tolist():
            plan, seconds = self._plan(known, rows, row), 1.0 / float(rate[row])
            busy_s, usd = per_iteration(self._estimator, plan, view.slowdown)
            found.append((-objective.value(PlanOutcome(seconds, busy_s / seconds, usd)), row, plan))
        return [plan for _, _, plan in sorted(found)[: self._most]]

    def _plan(self, known: ShareTimeTables, rows: OptionRows, row: int) -> Plan:
        return build(self._estimator, rows.shape(known.options, row), rows.cuts(row))


def _expected_rates(
    estimator: Estimator, known: ShareTimeTables, horizon: Horizon, view: View, rows: OptionRows
) -> Float:
    """Returns iterations per second (P,): the mean over the slices and scenarios of the horizon by the closed
    form; for schedules without one the exact mean over the two states that were searched."""
    if estimator.job.schedule in CLOSED_FORM_SCHEDULES:
        weight = np.repeat(np.diff(horizon.edges_s), SCENARIOS) / SCENARIOS / horizon.length_s
        return mean_rates(estimator, known, horizon.states, weight, view.slowdown, rows)
    rate = np.zeros(len(rows))
    for links in (horizon.now, horizon.pessimistic):
        scorer = Scorer(estimator, known.options, links, view.slowdown)
        rate += per_second(scorer.iter_ns(rows)) / 2
    return rate


def _differ(a: LinkState, b: LinkState) -> float:
    """Returns the largest relative difference between the bandwidths of two states; infinite where a link is
    dead in one of them.
    """
    off = ~np.eye(len(a.latency_s), dtype=np.bool_)
    first, second = a.bandwidth_bps[off], b.bandwidth_bps[off]
    both = (first > 0) & (second > 0)
    if not np.array_equal(first > 0, second > 0):
        return float("inf")
    return float(np.abs(first[both] / second[both] - 1).max(initial=0.0))


class DeadLinkTracker:
    """Records since when links are dead, and their bandwidth before."""

    def __init__(self, size: int, outage_s: float) -> None:
        self._outage_s = outage_s
        self._alive_bps: Matrix = np.zeros((size, size))
        self._died_ns = np.full((size, size), -1, dtype=np.int64)

    def outages(self, view: View) -> Outages:
        """Returns the expected ends: a dead link returns with its last bandwidth after `outage_s`, or after
        as long again as it has been dead, whichever is longer."""
        now = view.forecast.bandwidth_bps[0]
        dead = now <= 0
        self._alive_bps = np.where(dead, self._alive_bps, now)
        self._died_ns = np.where(dead, np.where(self._died_ns < 0, view.now_ns, self._died_ns), -1)
        been_s = (view.now_ns - self._died_ns) / NS_PER_S
        return Outages(np.where(dead, np.maximum(self._outage_s, been_s), 0.0), self._alive_bps)
