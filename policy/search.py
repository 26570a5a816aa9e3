"""The best plans for one link state: orders, parallel sizes and cuts, scored by the estimator alone.

Small clusters (K <= 5 living domains): every order of every subset is looked at; larger ones: a beam over
orders. Per order the search starts from compute-balanced cuts under the few best parallel sizes, then climbs
over cuts and over each domain's own (tp, pp). Every score is `Estimator.iter_ns_cuts`, in batches.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy.shapes import Cuts, Profile, Shape, choices, concrete, neighbours, orders, profiles, starts
from twin.domain import LinkState
from twin.estimate import DEAD, Estimator
from twin.plan import Plan

ENUMERATE_UP_TO = 5
"""Living domains up to which every order is looked at."""
BEAM = 12
"""Orders kept at each length above that."""
EXTEND = 8
"""Domains tried as the next one, those with the best link to the last, above that."""
SHORTLIST = 4
"""Profiles kept for each number of domains."""
SCREENED = 5
"""Orders that are tried under every profile of the shortlist."""
FINALISTS = 5
"""Shapes whose cuts are climbed; the best two of each number of domains are added."""


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
        """Shortest iteration at the shape's starting cuts."""
        cuts = starts(self.estimator, shape, self.slowdown)
        self.score(shape, cuts)
        return min(self.scores[shape, tuple(row)] for row in cuts.tolist())

    def climb(self, shape: Shape, cuts: Sequence[int]) -> tuple[int, tuple[int, ...]]:
        """Move layers between domains while that helps; the local optimum and its cuts."""
        here = tuple(cuts)
        self.score(shape, np.array([here], dtype=np.int64))
        while True:
            near = neighbours(here, shape)
            self.score(shape, near)
            best = min([here, *map(tuple, near.tolist())], key=lambda row: (self.scores[shape, row], row))
            if self.scores[shape, best] >= self.scores[shape, here]:
                return self.scores[shape, here], here
            here = best

    def climb_from(self, plan: Plan) -> None:
        """Climb from the cuts of a plan, if it can run with the GPUs that live."""
        if plan.sync is not None:
            return  # replicas have no cuts
        shape = shape_of(plan)
        legal = all(
            pair in choices(self.estimator, domain, shape.dp, self.free_gpus)
            for domain, pair in zip(shape.order, shape.inner, strict=True)
        )
        if legal:
            self.climb(shape, plan.cuts)

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
        pool.climb_from(start)
    for _, shape, cuts in _finalists(pool):
        pool.climb(shape, cuts)
    for _, shape, cuts in pool.best_by_shape()[:2]:
        pool.climb(*_mirrored(estimator, shape, cuts))
    for _, shape, cuts in pool.best_by_shape()[:1]:
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


def _shortlist(pool: Pool, alive: tuple[int, ...]) -> dict[int, tuple[Profile, ...]]:
    """For each number of domains the best profiles, judged on one typical link for all pairs.

    What is typical is rounded to powers of two, so that the list is made once for links that differ little;
    it stays a function of the arguments alone.
    """
    pairs = [(i, j) for i in alive for j in alive if i != j]
    living = [pair for pair in pairs if pool.links.bandwidth_bps[pair] > 0]
    bandwidth = _power_of_two([float(pool.links.bandwidth_bps[pair]) for pair in living])
    latency = _power_of_two([float(pool.links.latency_s[pair]) for pair in living])
    return _typical_shortlist(pool.estimator, tuple(pool.free_gpus), alive, bandwidth, latency)


def _power_of_two(values: Sequence[float]) -> float:
    """The median rounded to a power of two; 0 stays 0."""
    middle = float(np.median(values)) if values else 0.0
    return 2.0 ** round(float(np.log2(middle))) if middle > 0 else 0.0


@lru_cache(maxsize=64)
def _typical_shortlist(
    estimator: Estimator,
    free_gpus: tuple[int, ...],
    alive: tuple[int, ...],
    bandwidth_bps: float,
    latency_s: float,
) -> dict[int, tuple[Profile, ...]]:
    size = estimator.cluster.size
    links = LinkState(np.full((size, size), bandwidth_bps), np.full((size, size), latency_s))
    pool = Pool(estimator, links, free_gpus, None)
    every = profiles(estimator, alive, free_gpus)
    largest = sorted(alive, key=lambda k: (-free_gpus[k], k))
    short = {}
    for n in range(1, len(alive) + 1):
        found = []
        for profile in every:
            shape = concrete(estimator, profile, tuple(largest[:n]), free_gpus)
            if shape is not None:
                found.append((pool.start(shape), profile))
        short[n] = tuple(profile for ns, profile in sorted(found)[:SHORTLIST] if ns != DEAD)
    return short


def _beam(
    pool: Pool, alive: tuple[int, ...], short: dict[int, tuple[Profile, ...]]
) -> tuple[tuple[int, ...], ...]:
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


def _first_score(pool: Pool, order: tuple[int, ...], short: Sequence[Profile]) -> int:
    """Time of an order under the best profile of its length that it can have; DEAD without one."""
    for profile in short:
        shape = concrete(pool.estimator, profile, order, pool.free_gpus)
        if shape is not None:
            return pool.start(shape)
    return DEAD


def _screen(pool: Pool, candidates: Iterable[tuple[int, ...]], short: dict[int, tuple[Profile, ...]]) -> None:
    """Every order, one of the two directions of each, under its first profile; the best ones under all of
    them."""
    one_way = dict.fromkeys(min(order, order[::-1]) for order in candidates)
    scored = sorted((_first_score(pool, order, short[len(order)]), order) for order in one_way)
    for _, order in scored[:SCREENED]:
        for profile in short[len(order)]:
            shape = concrete(pool.estimator, profile, order, pool.free_gpus)
            if shape is not None:
                pool.start(shape)


def _finalists(pool: Pool) -> list[tuple[int, Shape, tuple[int, ...]]]:
    """The best shapes, and the best two of each number of domains."""
    ranked = pool.best_by_shape()
    chosen = ranked[:FINALISTS]
    of_length = Counter(len(shape.order) for _, shape, _ in chosen)
    for entry in ranked[FINALISTS:]:
        length = len(entry[1].order)
        if of_length[length] < 2:
            of_length[length] += 1
            chosen.append(entry)
    return chosen


def _mirrored(estimator: Estimator, shape: Shape, cuts: tuple[int, ...]) -> tuple[Shape, tuple[int, ...]]:
    """The same split with the pipeline the other way round; links differ by direction."""
    back = Shape(shape.order[::-1], shape.dp, shape.inner[::-1], shape.micro_batch)
    return back, tuple(estimator.n_layers - cut for cut in reversed(cuts))


def _climb_inner(pool: Pool, shape: Shape, cuts: tuple[int, ...]) -> None:
    """Give each domain in turn the (tp, pp) that is best for it; climb the cuts after each round that
    helped.
    """
    best = pool.scores[shape, cuts]
    while True:
        before = best
        for position in range(len(shape.order)):
            for other in _inner_variants(pool, shape, position, cuts):
                pool.score(other, np.array([cuts], dtype=np.int64))
                if pool.scores[other, cuts] < best:
                    best, shape = pool.scores[other, cuts], other
        if best == before:
            return
        best, cuts = pool.climb(shape, cuts)


def _inner_variants(pool: Pool, shape: Shape, position: int, cuts: tuple[int, ...]) -> list[Shape]:
    """The shape with another (tp, pp) at one position; at least half of the living GPUs used, no stage
    empty.
    """
    domain, layers = shape.order[position], cuts[position + 1] - cuts[position]
    found = []
    for tp, pp in choices(pool.estimator, domain, shape.dp, pool.free_gpus):
        worth = 2 * shape.dp * tp * pp >= pool.free_gpus[domain] and pp <= layers
        if worth and (tp, pp) != shape.inner[position]:
            inner = (*shape.inner[:position], (tp, pp), *shape.inner[position + 1 :])
            found.append(Shape(shape.order, shape.dp, inner, shape.micro_batch))
    return found
