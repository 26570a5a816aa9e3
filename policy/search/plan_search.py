"""The best plans for one link state, scored exactly: orders, parallel sizes of every domain, and cuts.

Every order worth a look (`policy.paths`: all of them up to five living domains) gets its best split under
every size in closed form (`policy.pacing`), improved domain by domain as long as that helps. The most
promising ones are timed exactly (`policy.scoring`, the Estimator's own numbers), and the best of these climb
over cuts.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy.search.closed_form import Tables, climbed, estimated, tables
from policy.search.neighbours import neighbours
from policy.search.bottleneck_split import paced
from policy.search.domain_orders import beams, every_order
from policy.search.batch_scoring import Rows, Scorer, joined, nothing, row_of
from policy.search.plan_shapes import Shape
from twin.core.domain import LinkState
from twin.estimate.estimator import DEAD, Estimator
from twin.core.plan import Plan

Int = NDArray[np.int64]
Ranked = tuple[int, Shape, tuple[int, ...]]
"""Iteration time in ns, shape and cuts."""
Found = tuple[NDArray[np.float64], Rows]
"""Splits and their seconds by the closed form."""

NEAR = 1.2
"""Paths that take longer than this times the best one so far are left out."""
TIMED = 64
"""Splits timed exactly at least."""
EACH = 24
"""Splits kept for each length of paths."""
LIKELY = 24
"""Neighbours of a plan that are timed, those with the best times by the closed form."""
FINALISTS = 6
"""Shapes that climb by exact times; the best one of each number of domains is added."""
PATIENCE = 3
"""Lengths of paths in a row that may bring nothing before longer ones are left alone."""
AROUND = 48
"""Paths near the best one that are looked at where orders are not enumerated."""


class Pool:
    """Every plan timed so far under one link state."""

    def __init__(
        self,
        estimator: Estimator,
        links: LinkState,
        free_gpus: Sequence[int],
        slowdown: NDArray[np.float64] | None,
    ) -> None:
        self.estimator = estimator
        self.tables: Tables = tables(estimator, free_gpus)
        self.scorer = Scorer(estimator, self.tables.menu, links, slowdown)
        self._rows: list[Rows] = []
        self._ns: list[Int] = []

    def add(self, rows: Rows) -> Int:
        """Time these plans (P,)."""
        ns = self.scorer.iter_ns(rows)
        alive = ns != DEAD
        if alive.any():
            self._rows.append(rows[alive])
            self._ns.append(ns[alive])
        return ns

    def climb(self, rows: Rows) -> None:
        """From each of these plans to a better neighbour until there is none, all side by side."""
        here, best = rows, self.add(rows)
        while len(here):
            near, origin = neighbours(self.tables, here)
            likely = _first_in_each(estimated(self.scorer, self.tables, near), origin, LIKELY)
            near, origin = near[likely], origin[likely]
            if not len(near):
                return
            ns = self.add(near)
            order = np.lexsort((np.arange(len(ns)), ns, origin))
            first = np.searchsorted(origin[order], np.arange(len(here)))
            known = first < len(order)
            lead = order[np.minimum(first, len(order) - 1)]
            better = known & (origin[lead] == np.arange(len(here))) & (ns[lead] < best)
            here, best = near[lead[better]], ns[lead[better]]

    def climb_from(self, plan: Plan) -> None:
        """Climb from a plan, if it can run with the GPUs that live."""
        row = row_of(self.tables.menu, plan)
        if row is not None:
            self.climb(row)

    def ranked(self, top: int | None = None) -> list[Ranked]:
        """Everything that runs, fastest first, ties in the order in which they were found."""
        return self._described(self._distinct(cuts=True)[:top])

    def fastest(self, most: int, *, of_each_order: bool = False) -> Rows:
        """The `most` fastest distinct plans, and if asked for the fastest one `of_each_order` of domains."""
        chosen = self._distinct(cuts=True)
        if not len(chosen):
            return nothing(self.estimator.cluster.size)
        rows = self._all()[0][chosen]
        kept = np.arange(min(most, len(rows)))
        return rows[np.union1d(kept, first_of_each(rows.domain)) if of_each_order else kept]

    def finalists(self) -> Rows:
        """The plans to climb from: the best shapes, and the best one of each number of domains."""
        rows, _ = self._all()
        chosen: list[int] = []
        of_length: Counter[int] = Counter()
        for place, row in enumerate(self._distinct(cuts=False).tolist()):
            length = int(rows.count[row])
            if place < FINALISTS or of_length[length] < 1:
                of_length[length] += 1
                chosen.append(row)
        return rows[np.array(chosen, dtype=np.int64)]

    def _all(self) -> tuple[Rows, Int]:
        if len(self._rows) > 1:
            self._rows, self._ns = [joined(self._rows)], [np.concatenate(self._ns)]
        return self._rows[0], self._ns[0]

    def _distinct(self, *, cuts: bool) -> Int:
        """Numbers of the distinct rows, fastest first; without cuts the fastest row of each shape."""
        if not self._rows:
            return np.zeros(0, np.int64)
        rows, ns = self._all()
        order = np.argsort(ns, kind="stable")
        keys = rows.keys[order] if cuts else rows.shapes[order]
        return order[np.sort(first_of_each(keys))]

    def _described(self, chosen: Int) -> list[Ranked]:
        if not len(chosen):
            return []
        rows, ns = self._all()
        return [(int(ns[row]), rows.shape(self.tables.menu, row), rows.cuts(row)) for row in chosen.tolist()]


def best_plans(
    estimator: Estimator,
    links: LinkState,
    *,
    free_gpus: Sequence[int],
    slowdown: NDArray[np.float64] | None = None,
    top: int = 32,
    start: Plan | None = None,
) -> list[tuple[Plan, int]]:
    """Up to `top` distinct plans for this link state with their iteration times in ns, fastest first.

    `start` is one more place to climb from. The list is empty when no plan fits or every one needs a dead
    link.
    """
    pool = explore(estimator, links, free_gpus=free_gpus, slowdown=slowdown, start=start)
    return [(build(estimator, shape, cuts), ns) for ns, shape, cuts in pool.ranked(top)]


def explore(
    estimator: Estimator,
    links: LinkState,
    *,
    free_gpus: Sequence[int],
    slowdown: NDArray[np.float64] | None = None,
    start: Plan | None = None,
) -> Pool:
    """Everything that `best_plans` looked at, for callers that rank by more than speed."""
    alive = tuple(k for k in range(estimator.cluster.size) if free_gpus[k] > 0)
    pool = Pool(estimator, links, free_gpus, slowdown)
    if not alive or not pool.tables.menu.sizes:
        return pool
    every = every_order(alive)
    rows = _along_paths(pool, alive) if every is None else _every_order(pool, every)
    if not len(rows):
        return pool
    pool.add(rows)
    pool.climb(pool.finalists())
    if start is not None:
        pool.climb_from(start)
    return pool


def build(estimator: Estimator, shape: Shape, cuts: Sequence[int]) -> Plan:
    """The plan of a shape and its cuts, at the default placement."""
    counts = tuple(b - a for a, b in pairwise(cuts))
    return estimator.make(shape.order, counts, shape.dp, shape.inner, shape.micro_batch)


def shape_of(plan: Plan) -> Shape:
    """The shape of a plan."""
    return Shape(plan.order, plan.dp, tuple((s.tp, s.pp) for s in plan.shares), plan.micro_batch)


def _every_order(pool: Pool, orders: Sequence[tuple[int, ...]]) -> Rows:
    """The most promising splits, and the best one of each order: callers look at prices, too."""
    seconds, rows = paced(pool.scorer, pool.tables, orders)
    chosen = _fastest(seconds, 3 * TIMED, rows.domain)
    seconds, rows = climbed(pool.scorer, pool.tables, rows[chosen])
    return rows[_fastest(seconds, TIMED, rows.domain)]


def _fastest(seconds: NDArray[np.float64], most: int, keys: Int) -> Int:
    """Numbers of the `most` fastest rows, and of the fastest one for each distinct row of `keys`."""
    order = np.argsort(seconds, kind="stable")
    first = first_of_each(keys[order])
    chosen: Int = order[np.unique(np.concatenate([np.arange(min(most, len(order))), first]))]
    return chosen


def _first_in_each(seconds: NDArray[np.float64], group: Int, most: int) -> Int:
    """Numbers of the `most` fastest rows of each group that run at all, in ascending order."""
    order = np.lexsort((seconds, group))
    place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    return np.sort(order[(place < most) & np.isfinite(seconds[order])])


def first_of_each(keys: Int) -> Int:
    """Where each distinct row of `keys` is met first, in no particular order."""
    whole = np.ascontiguousarray(keys)
    return np.unique(whole.view(np.dtype((np.void, whole.shape[1] * 8))).ravel(), return_index=True)[1]


def _along_paths(pool: Pool, alive: tuple[int, ...]) -> Rows:
    """The most promising splits of ever longer paths, as long as these help, and of what is near the best
    one; and the best one of each number of domains."""
    grown, best, idle = beams(pool.scorer, pool.tables, alive), float("inf"), 0
    found: list[Found] = []
    while idle < PATIENCE and (paths := list(dict.fromkeys(path for beam in grown for path in beam.paths))):
        found.append(_planned(pool, paths, best))
        now = float(found[-1][0].min(initial=np.inf))
        idle = idle + 1 if best < float("inf") and now >= best else 0
        best = min(best, now)
        for beam in grown:
            beam.grow()
    if best < float("inf"):
        seconds, rows = _together(found)
        leader = tuple(rows.domain[seconds.argmin(), : rows.count[seconds.argmin()]].tolist())
        near = dict.fromkeys(path for beam in grown for path in beam.around(leader, AROUND))
        ways = [way for path in near for way in (path, path[::-1])]
        found.append(_planned(pool, [leader[::-1], *ways], best))
    seconds, rows = _together(found)
    return rows[_fastest(seconds, TIMED, rows.count[:, None])]


def _planned(pool: Pool, orders: Sequence[tuple[int, ...]], best_s: float) -> Found:
    """The `EACH` most promising splits of these orders, those far above `best_s` left out."""
    seconds, rows = paced(pool.scorer, pool.tables, orders, NEAR, best_s)
    seconds, rows = climbed(pool.scorer, pool.tables, rows[np.argsort(seconds, kind="stable")[: 3 * EACH]])
    chosen = np.argsort(seconds, kind="stable")[:EACH]
    return seconds[chosen], rows[chosen]


def _together(found: Sequence[Found]) -> Found:
    return np.concatenate([seconds for seconds, _ in found]), joined([rows for _, rows in found])
