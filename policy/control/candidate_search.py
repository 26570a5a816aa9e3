"""What a planner keeps up: plans worth comparing, searched again only when links changed, and since when
links are dead.

A search knows one link state; the plan that is best in it leans on links that may fall. So plans are searched
for two states, the links as they are and as they may well be at the end of the horizon (below their
forecast), and whatever these searches came across is ranked by what it brings in expectation, over all slices
and scenarios of the horizon, by the closed form.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from policy.search.closed_form import Tables, estimated, tables
from policy.control.horizon import SCENARIOS, Horizon, Outages, per_iteration
from policy.core.objective import Objective, Outcome, speed_alone
from twin.estimate.link_state_times import per_second
from policy.search.batch_scoring import STANDARD, Rows, Scorer, joined
from policy.search.plan_search import Pool, build, explore, first_of_each
from twin.core.domain import LinkState, Matrix
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.core.view import View

Float = NDArray[np.float64]

SAME = 0.05
"""Links and machines that differ by less than this share are not searched again,"""
DRIFTED = 0.3
"""and only around what was found when they differ by less than this from those of the last whole search."""
KEPT = 400
"""Plans kept from each search; where more than speed counts also the fastest of each order."""
VARIED = 6
"""Where more than speed counts, so many times the plans asked for are looked at, and the best of each order:
prices differ by order, not by speed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Searched:
    """What the last search found, the links it was for, and those of the last whole one."""

    links: LinkState
    whole: LinkState
    free_gpus: tuple[int, ...]
    slowdown: Matrix
    rows: Rows

    def suits(self, view: View) -> bool:
        """Whether the machines are still those of the search, and about as fast."""
        return self.free_gpus == tuple(view.free_gpus) and np.allclose(
            self.slowdown, view.slowdown, rtol=SAME
        )


class Scout:
    """The `most` best plans over a horizon, at most one for each shape, by the objective without moving."""

    def __init__(self, estimator: Estimator, most: int) -> None:
        self._estimator, self._most = estimator, most
        self._searched: dict[str, _Searched] = {}

    def plans(self, view: View, horizon: Horizon, objective: Objective, running: Plan | None) -> list[Plan]:
        """Best first; searches also start from `running`."""
        known = tables(self._estimator, view.free_gpus)
        links = {"now": horizon.now, "later": horizon.cautious}
        speed = speed_alone(objective.weights)
        found = [
            rows for name in links if len(rows := self._rows(view, name, links[name], running, speed=speed))
        ]
        if not found:
            return []
        rows = joined(found)
        rate = _expected_rates(self._estimator, known, horizon, view, rows)
        order = np.lexsort((np.arange(len(rate)), -rate))
        order = order[rate[order] > 0]
        first = np.sort(first_of_each(rows.shapes[order]))
        return self._chosen(view, known, rows[order[first]], rate[order[first]], objective)

    def _rows(self, view: View, name: str, links: LinkState, running: Plan | None, *, speed: bool) -> Rows:
        own = self._searched.get(name)
        known = [one for one in self._searched.values() if len(one.rows) and one.suits(view)]
        if own in known and _differ(links, own.links) <= SAME:
            return own.rows
        before = min(known, key=lambda one: _differ(links, one.whole), default=None)
        if before is not None and _differ(links, before.whole) <= DRIFTED:
            whole, pool = before.whole, Pool(self._estimator, links, view.free_gpus, view.slowdown)
            pool.add(before.rows)
            pool.climb(pool.finalists())
            if running is not None:
                pool.climb_from(running)
        else:
            whole = links
            pool = explore(
                self._estimator, links, free_gpus=view.free_gpus, slowdown=view.slowdown, start=running
            )
        rows = pool.fastest(KEPT, of_each_order=not speed)
        self._searched[name] = _Searched(links, whole, tuple(view.free_gpus), view.slowdown, rows)
        return rows

    def _chosen(self, view: View, known: Tables, rows: Rows, rate: Float, objective: Objective) -> list[Plan]:
        """Of shapes by falling rate (P,) those that bring most."""
        if speed_alone(objective.weights):
            return [self._plan(known, rows, row) for row in range(min(self._most, len(rows)))]
        leaders = first_of_each(rows.domain)
        looked = np.unique(np.concatenate([np.arange(min(VARIED * self._most, len(rows))), leaders]))
        found: list[tuple[float, int, Plan]] = []
        for row in looked.tolist():
            plan, seconds = self._plan(known, rows, row), 1.0 / float(rate[row])
            busy_s, usd = per_iteration(self._estimator, plan, view.slowdown)
            found.append((-objective.value(Outcome(seconds, busy_s / seconds, usd)), row, plan))
        return [plan for _, _, plan in sorted(found)[: self._most]]

    def _plan(self, known: Tables, rows: Rows, row: int) -> Plan:
        return build(self._estimator, rows.shape(known.menu, row), rows.cuts(row))


def _expected_rates(estimator: Estimator, known: Tables, horizon: Horizon, view: View, rows: Rows) -> Float:
    """Iterations per second (P,), mean over the slices and scenarios of the horizon by the closed form; of
    schedules that have none, exactly, mean over the two states that were searched."""
    rate = np.zeros(len(rows))
    if estimator.job.schedule not in STANDARD:
        for links in (horizon.now, horizon.cautious):
            scorer = Scorer(estimator, known.menu, links, view.slowdown)
            rate += per_second(scorer.iter_ns(rows)) / 2
        return rate
    weight = np.repeat(np.diff(horizon.edges_s), SCENARIOS) / SCENARIOS / horizon.length_s
    for part, bps, latency_s in zip(
        weight.tolist(), horizon.states.bandwidth_bps, horizon.states.latency_s, strict=True
    ):
        scorer = Scorer(estimator, known.menu, LinkState(bps, latency_s), view.slowdown)
        rate += part / estimated(scorer, known, rows)
    return rate


def _differ(a: LinkState, b: LinkState) -> float:
    """Largest relative difference between the bandwidths of two states; infinite where one lives and one
    is dead.
    """
    off = ~np.eye(len(a.latency_s), dtype=np.bool_)
    first, second = a.bandwidth_bps[off], b.bandwidth_bps[off]
    both = (first > 0) & (second > 0)
    if not np.array_equal(first > 0, second > 0):
        return float("inf")
    return float(np.abs(first[both] / second[both] - 1).max(initial=0.0))


class Watch:
    """Since when links are dead and what they had before."""

    def __init__(self, size: int, outage_s: float) -> None:
        self._outage_s = outage_s
        self._alive_bps: Matrix = np.zeros((size, size))
        self._died_ns = np.full((size, size), -1, dtype=np.int64)

    def outages(self, view: View) -> Outages:
        """A dead link is expected back with its last bandwidth, after `outage_s` or after as long again as it
        has been dead."""
        now = view.forecast.bandwidth_bps[0]
        dead = now <= 0
        self._alive_bps = np.where(dead, self._alive_bps, now)
        self._died_ns = np.where(dead, np.where(self._died_ns < 0, view.now_ns, self._died_ns), -1)
        been_s = (view.now_ns - self._died_ns) / NS_PER_S
        return Outages(np.where(dead, np.maximum(self._outage_s, been_s), 0.0), self._alive_bps)
