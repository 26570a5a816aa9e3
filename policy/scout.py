"""What a planner keeps up: the best plans of several forecasts, searched again only when links changed, and
since when links are dead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.units import NS_PER_S
from policy.horizon import Horizon, Outages, per_iteration
from policy.objective import Objective, Outcome
from policy.search import Pool, Ranked, build, explore
from twin.domain import LinkState, Matrix
from twin.estimate import Estimator
from twin.plan import Plan
from twin.view import View

SAME = 0.05
"""Links and machines that differ by less than this share are not searched again,"""
DRIFTED = 0.3
"""and only around what was found when they differ by less than this from those of the last whole search."""


@dataclass(frozen=True, slots=True, eq=False)
class _Searched:
    """What the last search of one part of the horizon found, the links it was for, and those of the last
    whole one.
    """

    links: LinkState
    whole: LinkState
    free_gpus: tuple[int, ...]
    slowdown: Matrix
    plans: tuple[Plan, ...]

    def suits(self, view: View) -> bool:
        """Whether the machines are still those of the search, and about as fast."""
        return self.free_gpus == tuple(view.free_gpus) and np.allclose(
            self.slowdown, view.slowdown, rtol=SAME
        )


class Scout:
    """The `each` best plans of parts of the horizon, at most one for each shape, by the objective without
    moving.
    """

    def __init__(self, estimator: Estimator, each: int) -> None:
        self._estimator, self._each = estimator, each
        self._searched: dict[int, _Searched] = {}

    def plans(
        self,
        view: View,
        horizon: Horizon,
        parts: Sequence[int],
        objective: Objective,
        running: Plan | None,
    ) -> list[Plan]:
        """Those of the slices `parts`, without repetition; searches also start from `running`."""
        plans: dict[Plan, None] = {}
        for part in dict.fromkeys(parts):
            plans |= dict.fromkeys(self._best(view, part, horizon.middle[part], objective, running))
        return list(plans)

    def _best(
        self, view: View, part: int, links: LinkState, objective: Objective, running: Plan | None
    ) -> tuple[Plan, ...]:
        known = [one for one in self._searched.values() if one.suits(view)]
        own = self._searched.get(part)
        if own in known and _differ(links, own.links) <= SAME:
            return own.plans
        before = min(known, key=lambda one: _differ(links, one.whole), default=None)
        if before is not None and _differ(links, before.whole) <= DRIFTED:
            whole, pool = before.whole, Pool(self._estimator, links, view.free_gpus, view.slowdown)
            for plan in dict.fromkeys([*before.plans, *([running] if running else [])]):
                pool.climb_from(plan)
        else:
            whole = links
            pool = explore(
                self._estimator, links, free_gpus=view.free_gpus, slowdown=view.slowdown, start=running
            )
        plans = self._chosen(pool, objective, view)
        self._searched[part] = _Searched(links, whole, tuple(view.free_gpus), view.slowdown, plans)
        return plans

    def _chosen(self, pool: Pool, objective: Objective, view: View) -> tuple[Plan, ...]:
        if objective.weights[1:] == (0.0, 0.0):  # nothing but speed counts
            ranked = pool.best_by_shape(self._each)
            return tuple(build(self._estimator, shape, cuts) for _, shape, cuts in ranked)
        found: list[tuple[float, int, Plan]] = []
        for ns, shape, cuts in _varied(pool, 6 * self._each):
            plan = build(self._estimator, shape, cuts)
            busy_s, usd = per_iteration(self._estimator, plan, view.slowdown)
            seconds = ns / NS_PER_S
            found.append((-objective.value(Outcome(seconds, busy_s / seconds, usd)), len(found), plan))
        return tuple(plan for _, _, plan in sorted(found)[: self._each])


def _varied(pool: Pool, fastest: int) -> list[Ranked]:
    """The fastest shapes, and the fastest one of every order: prices differ by order, not by speed."""
    ranked = pool.best_by_shape()
    by_order: dict[tuple[int, ...], Ranked] = {}
    for entry in ranked:
        by_order.setdefault(entry[1].order, entry)
    return list(dict.fromkeys([*ranked[:fastest], *by_order.values()]))


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
