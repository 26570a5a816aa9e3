"""The best plans for one link state: orders, parallel sizes and cuts, scored by the estimator alone.

Small clusters (K <= 5 living domains): every order of every subset is looked at; larger ones: a beam over
orders. Per order the search starts from compute-balanced cuts under the few best parallel sizes, then climbs
over cuts and over each domain's own (tp, pp). Every score is `Estimator.iter_ns_cuts`, in batches.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy.shapes import Cuts, Profile, Shape, balanced, choices, concrete, neighbours, orders, profiles
from twin.domain import LinkState
from twin.estimate import DEAD, Estimator
from twin.plan import Plan

ENUMERATE_UP_TO = 5
"""Living domains up to which every order is looked at."""
BEAM = 12
"""Orders kept at each length above that."""
EXTEND = 8
"""Domains tried as the next one, those with the best link to the last, above that."""
SHORTLIST = 6
"""Profiles kept for each number of domains."""
FINALISTS = 8
"""Shapes whose cuts are climbed."""


class Pool:
    """Every (shape, cuts) scored so far under one link state, each scored once."""

    def __init__(
        self,
        estimator: Estimator,
        links: LinkState,
        free_gpus: Sequence[int],
        slowdown: NDArray[np.float64] | None,
    ) -> None:
        self.estimator, self.links, self.free_gpus, self.slowdown = estimator, links, free_gpus, slowdown
        self.scores: dict[tuple[Shape, tuple[int, ...]], int] = {}

    def score(self, shape: Shape, cuts: Cuts) -> None:
        """Score the rows that are new."""
        keys = [(shape, tuple(row)) for row in cuts.tolist()]
        new = [i for i, key in enumerate(keys) if key not in self.scores]
        if not new:
            return
        ns = self.estimator.iter_ns_cuts(
            shape.order, cuts[new], shape.dp, shape.inner, shape.micro_batch, self.links, self.slowdown
        )
        for i, value in zip(new, ns.tolist(), strict=True):
            self.scores[keys[i]] = value

    def start(self, shape: Shape) -> int:
        """Iteration time at the compute-balanced cuts."""
        cuts = balanced(self.estimator, shape, self.slowdown)
        self.score(shape, cuts)
        return self.scores[shape, tuple(cuts[0].tolist())]

    def climb(self, shape: Shape, cuts: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """Move layers between domains while that helps; the local optimum and its cuts."""
        here = tuple(cuts)
        while True:
            near = neighbours(np.array([here], dtype=np.int64), shape)
            self.score(shape, near)
            rows = [tuple(row) for row in near.tolist()]
            best = min([here, *rows], key=lambda row: (self.scores[shape, row], row))
            if self.scores[shape, best] >= self.scores[shape, here]:
                return self.scores[shape, here], here
            here = best

    def ranked(self) -> list[tuple[int, Shape, tuple[int, ...]]]:
        """Everything that runs, fastest first, ties in a fixed order."""
        return sorted((ns, shape, cuts) for (shape, cuts), ns in self.scores.items() if ns != DEAD)

    def best_by_shape(self) -> list[tuple[int, Shape, tuple[int, ...]]]:
        """The fastest cuts of every shape that runs, fastest shape first."""
        best: dict[Shape, tuple[int, Shape, tuple[int, ...]]] = {}
        for entry in self.ranked():
            best.setdefault(entry[1], entry)
        return list(best.values())


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
    return [(build(estimator, shape, cuts), ns) for ns, shape, cuts in pool.ranked()[:top]]


def explore(
    estimator: Estimator,
    links: LinkState,
    *,
    free_gpus: Sequence[int],
    slowdown: NDArray[np.float64] | None = None,
    start: Plan | None = None,
) -> Pool:
    """Everything that `best_plans` looked at, for callers that rank by more than speed."""
    pool = Pool(estimator, links, free_gpus, slowdown)
    alive = tuple(k for k in range(estimator.cluster.size) if free_gpus[k] > 0)
    if not alive:
        return pool
    short = _shortlist(pool, alive)
    candidates = orders(alive) if len(alive) <= ENUMERATE_UP_TO else _beam(pool, alive, short)
    _screen(pool, candidates, short)
    if start is not None:
        _climb_from(pool, start)
    for _, shape, cuts in _finalists(pool):
        pool.climb(shape, cuts)
    for _, shape, cuts in pool.best_by_shape()[:3]:
        _climb_inner(pool, shape, cuts)
    return pool


def build(estimator: Estimator, shape: Shape, cuts: Sequence[int]) -> Plan:
    """The plan of a shape and its cuts, at the default placement."""
    counts = tuple(b - a for a, b in pairwise(cuts))
    return estimator.make(shape.order, counts, shape.dp, shape.inner, shape.micro_batch)


def shape_of(plan: Plan) -> Shape:
    """The shape of a plan."""
    return Shape(plan.order, plan.dp, tuple((s.tp, s.pp) for s in plan.shares), plan.micro_batch)


def _bottleneck(links: LinkState, order: tuple[int, ...]) -> tuple[float, float]:
    """Smallest bandwidth and negated latency along an order, both directions: larger is better."""
    there = list(pairwise(order))
    both = there + [(b, a) for a, b in there]
    bandwidth = min((float(links.bandwidth_bps[pair]) for pair in both), default=float("inf"))
    return bandwidth, -sum(float(links.latency_s[pair]) for pair in both)


def _shortlist(pool: Pool, alive: tuple[int, ...]) -> dict[int, list[Profile]]:
    """For each number of domains the best profiles, judged on its best-connected order."""
    every = profiles(pool.estimator, alive, pool.free_gpus)
    short: dict[int, list[Profile]] = {}
    for n in range(1, len(alive) + 1):
        order = _connected(pool, alive, n)
        found = []
        for profile in every:
            shape = concrete(pool.estimator, profile, order, pool.free_gpus)
            if shape is not None:
                found.append((pool.start(shape), profile))
        short[n] = [profile for ns, profile in sorted(found)[:SHORTLIST] if ns != DEAD]
    return short


def _connected(pool: Pool, alive: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The order of `n` domains with the best bottleneck; greedy from each start where there are too many."""
    if len(alive) <= ENUMERATE_UP_TO:
        some: Iterable[tuple[int, ...]] = (order for order in orders(alive) if len(order) == n)
    else:
        some = [_walk(pool, alive, first, n) for first in alive]
    return max(some, key=lambda order: (_bottleneck(pool.links, order), pool_size(pool, order)))


def pool_size(pool: Pool, order: tuple[int, ...]) -> int:
    """Living GPUs along an order."""
    return sum(pool.free_gpus[k] for k in order)


def _walk(pool: Pool, alive: tuple[int, ...], first: int, n: int) -> tuple[int, ...]:
    order = (first,)
    while len(order) < n:
        rest = [k for k in alive if k not in order]
        order += (max(rest, key=lambda k: (_bottleneck(pool.links, (order[-1], k)), -k)),)
    return order


def _beam(pool: Pool, alive: tuple[int, ...], short: dict[int, list[Profile]]) -> tuple[tuple[int, ...], ...]:
    """Orders grown domain by domain at either end, the best `BEAM` of each length kept."""
    kept: list[tuple[int, ...]] = [(k,) for k in alive]
    every = list(kept)
    for n in range(2, len(alive) + 1):
        grown = sorted({order for base in kept for order in _extensions(pool, base, alive)})
        scored = sorted((_first_score(pool, order, short[n]), order) for order in grown)
        kept = [order for ns, order in scored[:BEAM] if ns != DEAD]
        every += kept
    return tuple(every)


def _extensions(pool: Pool, base: tuple[int, ...], alive: tuple[int, ...]) -> list[tuple[int, ...]]:
    rest = [k for k in alive if k not in base]
    last = sorted(rest, key=lambda k: _bottleneck(pool.links, (base[-1], k)), reverse=True)[:EXTEND]
    first = sorted(rest, key=lambda k: _bottleneck(pool.links, (k, base[0])), reverse=True)[:EXTEND]
    return [(*base, k) for k in last] + [(k, *base) for k in first]


def _first_score(pool: Pool, order: tuple[int, ...], short: list[Profile]) -> int:
    """Time of an order under the best profile of its length that it can have; DEAD without one."""
    for profile in short:
        shape = concrete(pool.estimator, profile, order, pool.free_gpus)
        if shape is not None:
            return pool.start(shape)
    return DEAD


def _screen(pool: Pool, candidates: Iterable[tuple[int, ...]], short: dict[int, list[Profile]]) -> None:
    """Every order under its first profile; the better half of the finalists' orders under all of them."""
    scored = sorted((_first_score(pool, order, short[len(order)]), order) for order in candidates)
    for _, order in scored[: 2 * FINALISTS]:
        for profile in short[len(order)]:
            shape = concrete(pool.estimator, profile, order, pool.free_gpus)
            if shape is not None:
                pool.start(shape)


def _climb_from(pool: Pool, plan: Plan) -> None:
    shape = shape_of(plan)
    legal = all(
        pair in choices(pool.estimator, domain, shape.dp, pool.free_gpus)
        for domain, pair in zip(shape.order, shape.inner, strict=True)
    )
    if legal:
        pool.score(shape, np.array([plan.cuts], dtype=np.int64))
        pool.climb(shape, plan.cuts)


def _finalists(pool: Pool) -> list[tuple[int, Shape, tuple[int, ...]]]:
    """The best shapes, and the best one of each number of domains."""
    ranked = pool.best_by_shape()
    chosen = ranked[:FINALISTS]
    lengths = {len(shape.order) for _, shape, _ in chosen}
    for entry in ranked[FINALISTS:]:
        if len(entry[1].order) not in lengths:
            lengths.add(len(entry[1].order))
            chosen.append(entry)
    return chosen


def _climb_inner(pool: Pool, shape: Shape, cuts: tuple[int, ...]) -> None:
    """Change one domain's (tp, pp) at a time while that helps, climbing the cuts after each change."""
    best, cuts = pool.climb(shape, cuts)
    improved = True
    while improved:
        improved = False
        for other in _inner_variants(pool, shape):
            if any(b - a < pp for a, b, (_, pp) in zip(cuts, cuts[1:], other.inner, strict=False)):
                continue
            pool.score(other, np.array([cuts], dtype=np.int64))
            ns, at = pool.climb(other, cuts) if pool.scores[other, cuts] < 1.05 * best else (DEAD, cuts)
            if ns < best:
                best, shape, cuts, improved = ns, other, at, True
                break


def _inner_variants(pool: Pool, shape: Shape) -> list[Shape]:
    found = []
    for position, domain in enumerate(shape.order):
        for pair in choices(pool.estimator, domain, shape.dp, pool.free_gpus):
            inner = (*shape.inner[:position], pair, *shape.inner[position + 1 :])
            if pair != shape.inner[position]:
                found.append(Shape(shape.order, shape.dp, inner, shape.micro_batch))
    return found
