"""Search for the fastest plans under one link state: orders of domains, parallel sizes and cuts.

1. Orders: all of them up to five living domains, else a beam (`policy.search.domain_orders`).
2. For each order and size the split with the least bottleneck in closed form
   (`policy.search.bottleneck_split`), improved by hill climbing (`policy.search.closed_form`).
3. The fastest of these are timed exactly (`policy.search.batch_scoring`).
4. The best shapes climb by exact times over cuts and options (`policy.search.neighbours`).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy.search.batch_scoring import OptionRows, Scorer, concatenated, no_rows, row_of
from policy.search.bottleneck_split import bottleneck_splits
from policy.search.closed_form import ShareTimeTables, closed_form_s, hill_climb, tables
from policy.search.domain_orders import Beam, beams, every_order
from policy.search.neighbours import neighbours
from policy.search.plan_shapes import Shape
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.estimator import DEAD, Estimator

Int = NDArray[np.int64]
Ranked = tuple[int, Shape, tuple[int, ...]]
"""Iteration time in ns, shape and cuts."""
Splits = tuple[NDArray[np.float64], OptionRows]
"""Seconds by the closed form, and rows."""

MAX_PATH_RATIO = 1.2
"""Paths whose splits take longer than this times the best one so far are dropped."""
TIMED = 64
"""Splits timed exactly, at least."""
SPLITS_PER_LENGTH = 24
"""Splits kept for each length of paths."""
TIMED_NEIGHBOURS = 24
"""Neighbours of a plan that are timed exactly, the fastest by the closed form."""
FINALISTS = 6
"""Shapes that climb by exact times; the best one of each number of domains is added."""
PATIENCE = 3
"""Path lengths in a row without improvement after which growing stops."""
NEARBY_PATHS = 48
"""Paths near the best one that are tried where orders are not enumerated."""


class TimedPlans:
    """The plans timed so far under one link state."""

    def __init__(
        self,
        estimator: Estimator,
        links: LinkState,
        free_gpus: Sequence[int],
        slowdown: NDArray[np.float64] | None,
    ) -> None:
        self.estimator = estimator
        self.tables: ShareTimeTables = tables(estimator, free_gpus)
        self.scorer = Scorer(estimator, self.tables.options, links, slowdown)
        self._rows: list[OptionRows] = []
        self._ns: list[Int] = []

    def add(self, rows: OptionRows) -> Int:
        """Times these plans and returns their ns (P,); `DEAD` ones are not kept."""
        ns = self.scorer.iter_ns(rows)
        alive = ns != DEAD
        if alive.any():
            self._rows.append(rows[alive])
            self._ns.append(ns[alive])
        return ns

    def climb(self, rows: OptionRows) -> None:
        """Moves from each of these plans to its best neighbour until none is better, all in parallel."""
        current, best = rows, self.add(rows)
        while len(current):
            near, origin = neighbours(self.tables, current)
            fastest = _fastest_of_each(
                closed_form_s(self.scorer, self.tables, near), origin, TIMED_NEIGHBOURS
            )
            near, origin = near[fastest], origin[fastest]
            if not len(near):
                return
            ns = self.add(near)
            order = np.lexsort((np.arange(len(ns)), ns, origin))
            first = np.searchsorted(origin[order], np.arange(len(current)))
            exists = first < len(order)
            lead = order[np.minimum(first, len(order) - 1)]
            better = exists & (origin[lead] == np.arange(len(current))) & (ns[lead] < best)
            current, best = near[lead[better]], ns[lead[better]]

    def add_orders(self, orders: Sequence[tuple[int, ...]]) -> None:
        """Times the fastest split of each of these orders, improved by hill climbing."""
        seconds, rows = bottleneck_splits(self.scorer, self.tables, orders, most=1)
        if not len(rows):
            return
        _, rows = hill_climb(self.scorer, self.tables, rows[_fastest(seconds, 0, rows.domain)])
        self.add(rows)

    def climb_from(self, plan: Plan) -> None:
        """Climbs from a plan, if it can run on the living GPUs."""
        row = row_of(self.tables.options, plan)
        if row is not None:
            self.climb(row)

    def ranked(self, top: int | None = None) -> list[Ranked]:
        """Returns all plans that run, fastest first, ties in the order in which they were added."""
        return self._described(self._distinct(cuts=True)[:top])

    def fastest(self, most: int, *, of_each_order: bool = False) -> OptionRows:
        """Returns the `most` fastest distinct plans, with `of_each_order` also the fastest of each order."""
        chosen = self._distinct(cuts=True)
        if not len(chosen):
            return no_rows(self.estimator.cluster.size)
        rows = self._all()[0][chosen]
        kept = np.arange(min(most, len(rows)))
        return rows[np.union1d(kept, first_of_each(rows.domain)) if of_each_order else kept]

    def finalists(self) -> OptionRows:
        """Returns the plans to climb from: the best shapes, and the best one of each number of domains."""
        rows, _ = self._all()
        chosen: list[int] = []
        of_length: Counter[int] = Counter()
        for place, row in enumerate(self._distinct(cuts=False).tolist()):
            length = int(rows.count[row])
            if place < FINALISTS or of_length[length] < 1:
                of_length[length] += 1
                chosen.append(row)
        return rows[np.array(chosen, dtype=np.int64)]

    def _all(self) -> tuple[OptionRows, Int]:
        if len(self._rows) > 1:
            self._rows, self._ns = [concatenated(self._rows)], [np.concatenate(self._ns)]
        return self._rows[0], self._ns[0]

    def _distinct(self, *, cuts: bool) -> Int:
        """Returns indices of the distinct rows, fastest first; without `cuts` the fastest of each shape."""
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
        return [
            (int(ns[row]), rows.shape(self.tables.options, row), rows.cuts(row)) for row in chosen.tolist()
        ]


def best_plans(
    estimator: Estimator,
    links: LinkState,
    *,
    free_gpus: Sequence[int],
    slowdown: NDArray[np.float64] | None = None,
    top: int = 32,
    start: Plan | None = None,
) -> list[tuple[Plan, int]]:
    """Returns up to `top` distinct plans for this link state with their iteration times in ns, fastest first.

    `start` is one more plan to climb from. The list is empty when no plan fits or every one needs a dead
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
) -> TimedPlans:
    """Returns every plan that `best_plans` timed, for callers that rank by more than speed."""
    alive = tuple(k for k in range(estimator.cluster.size) if free_gpus[k] > 0)
    pool = TimedPlans(estimator, links, free_gpus, slowdown)
    if not alive or not pool.tables.options.sizes:
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
    """Returns the plan of a shape and its cuts, at the default placement."""
    counts = tuple(b - a for a, b in pairwise(cuts))
    return estimator.make(shape.order, counts, shape.dp, shape.inner, shape.micro_batch, ep=shape.ep)


def _every_order(pool: TimedPlans, orders: Sequence[tuple[int, ...]]) -> OptionRows:
    """Returns the fastest splits, and the fastest one of each order, since prices differ by order."""
    seconds, rows = bottleneck_splits(pool.scorer, pool.tables, orders, most=3 * TIMED)
    chosen = _fastest(seconds, 3 * TIMED, rows.domain)
    seconds, rows = hill_climb(pool.scorer, pool.tables, rows[chosen])
    return rows[_fastest(seconds, TIMED, rows.domain)]


def _fastest(seconds: NDArray[np.float64], most: int, keys: Int) -> Int:
    """Returns indices of the `most` fastest rows, and of the fastest one for each distinct row of `keys`."""
    order = np.argsort(seconds, kind="stable")
    first = first_of_each(keys[order])
    chosen: Int = order[np.unique(np.concatenate([np.arange(min(most, len(order))), first]))]
    return chosen


def _fastest_of_each(seconds: NDArray[np.float64], group: Int, most: int) -> Int:
    """Returns indices of the `most` fastest rows of each group that can run, in ascending order."""
    order = np.lexsort((seconds, group))
    place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    return np.sort(order[(place < most) & np.isfinite(seconds[order])])


def first_of_each(keys: Int) -> Int:
    """Returns the index of the first occurrence of each distinct row of `keys`, in no particular order."""
    rows = np.ascontiguousarray(keys)
    return np.unique(rows.view(np.dtype((np.void, rows.shape[1] * 8))).ravel(), return_index=True)[1]


def _along_paths(pool: TimedPlans, alive: tuple[int, ...]) -> OptionRows:
    """Returns the fastest splits of paths that grow as long as that helps, then of paths near the best one;
    and the fastest one of each number of domains."""
    growing, best, idle = beams(pool.scorer, pool.tables, alive), float("inf"), 0
    found: list[Splits] = []
    while idle < PATIENCE and (paths := _of_all(growing)):
        found.append(_best_splits(pool, paths, best))
        fastest = float(found[-1][0].min(initial=np.inf))
        idle = idle + 1 if best < float("inf") and fastest >= best else 0
        best = min(best, fastest)
        for beam in growing:
            beam.grow()
    if best < float("inf"):
        seconds, rows = _concatenated(found)
        leader = tuple(rows.domain[seconds.argmin(), : rows.count[seconds.argmin()]].tolist())
        near = dict.fromkeys(path for beam in growing for path in beam.around(leader, NEARBY_PATHS))
        both_directions = [order for path in near for order in (path, path[::-1])]
        found.append(_best_splits(pool, [leader[::-1], *both_directions], best))
    seconds, rows = _concatenated(found)
    return rows[_fastest(seconds, TIMED, rows.count[:, None])]


def _of_all(growing: Sequence[Beam]) -> list[tuple[int, ...]]:
    """Returns the paths of all beams, each once."""
    return list(dict.fromkeys(tuple(path) for beam in growing for path in beam.paths.tolist()))


def _best_splits(pool: TimedPlans, orders: Sequence[tuple[int, ...]], best_s: float) -> Splits:
    """Returns the `SPLITS_PER_LENGTH` fastest splits of these orders, without those far above `best_s`."""
    most = 3 * SPLITS_PER_LENGTH
    seconds, rows = bottleneck_splits(
        pool.scorer, pool.tables, orders, most=most, max_ratio=MAX_PATH_RATIO, best_s=best_s
    )
    fastest = np.argsort(seconds, kind="stable")[:most]
    seconds, rows = hill_climb(pool.scorer, pool.tables, rows[fastest])
    chosen = np.argsort(seconds, kind="stable")[:SPLITS_PER_LENGTH]
    return seconds[chosen], rows[chosen]


def _concatenated(found: Sequence[Splits]) -> Splits:
    return np.concatenate([seconds for seconds, _ in found]), concatenated([rows for _, rows in found])
