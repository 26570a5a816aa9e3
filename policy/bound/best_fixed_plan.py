"""The best single plan in hindsight: every order x parallel sizes x cuts, most of them ruled out in bulk.

A plan does in a part of the window at most what it would do there under the best state that each link has in
that part. Sieves with that, each exact: how many layers a share may have before its busiest stage alone is
too slow; then the work under the best links of a few long parts, and of many short ones. What passes is
evaluated slot by slot. "Every" means: sizes shared by the domains of a plan (`shapes.profiles`), default
placement, the job's schedule, point-to-point mode and warm-up depth, direct routes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from policy.bound.time_grid import Grid, optimistic
from policy.bound.pruning import Blocks, cuts_of, first_sieve, plans_of
from policy.search.domain_orders import ENUMERATE_UP_TO
from twin.estimate.link_state_times import States, iteration_ns, per_second
from policy.search.plan_search import build
from policy.search.plan_shapes import Cuts, Shape, choices, concrete, orders, profiles
from twin.core.domain import LinkState
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan

Float = NDArray[np.float64]
SIEVES = (4, 32, 128)
"""Parts of the window with a best link state each, sieve after sieve; the first sieve uses the second
number.
"""
MOST_LEFT = 50_000
"""Plans that may pass the first sieve; a space in which more do is not enumerated."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """The best fixed plan found, its iterations over the window, and whether nothing enumerable beats it."""

    plan: Plan
    iterations: float
    enumerated: int  # plans covered, most of them without looking at each
    exact: bool


def every_shape(estimator: Estimator) -> list[Shape]:
    """All orders of all subsets of the domains x all shared parallel sizes, without repetition."""
    free = [domain.gpus for domain in estimator.cluster.domains]
    alive = tuple(range(estimator.cluster.size))
    sizes = profiles(estimator, alive, free)
    found = (concrete(estimator, size, order, free) for order in orders(alive) for size in sizes)
    return list(dict.fromkeys(shape for shape in found if shape is not None))


def every_plan(estimator: Estimator, most: int) -> list[Plan]:
    """All plans at default placement, each domain with its own (tp, pp); none at all when there are more
    than `most`.

    Plans that do not fit in memory are left out.
    """
    free = [domain.gpus for domain in estimator.cluster.domains]
    if not enumerable(estimator):
        return []
    found: list[Plan] = []
    for order in orders(tuple(range(estimator.cluster.size))):
        for dp in range(1, max(free) + 1):
            sizes = [b for b in estimator.job.micro_batches_allowed if estimator.job.micro_batches(dp, b)]
            for inner in product(*(choices(estimator, k, dp, free) for k in order)) if sizes else ():
                shape = Shape(order, dp, inner, sizes[0])
                if plans_of(shape, estimator.n_layers) + len(found) > 4 * most:
                    return []
                cuts = cuts_of(shape, estimator.n_layers)
                for size in sizes:
                    sized = Shape(order, dp, inner, size)
                    fits = estimator.fits_cuts(order, cuts, dp, inner, size)
                    found += [build(estimator, sized, row) for row in cuts[fits].tolist()]
                if len(found) > most:
                    return []
    return found


def best_fixed(estimator: Estimator, made: Grid, known: Plan) -> Fixed:
    """The best fixed plan; `known` is one to start from, and the answer where not all can be enumerated."""
    lengths = made.lengths_s
    best, value = known, float(lengths @ made.rate(estimator, known))
    if not enumerable(estimator):
        return Fixed(best, value, 0, False)
    shapes = every_shape(estimator)
    covered = sum(plans_of(shape, estimator.n_layers) for shape in shapes)
    candidates, complete = _sieved(estimator, made, shapes, value)
    for bound, shape, cuts in candidates:
        if bound <= value:
            break
        plan = build(estimator, shape, cuts)
        work = float(lengths @ made.rate(estimator, plan))
        if work > value:
            best, value = plan, work
    return Fixed(best, value, covered, complete)


def enumerable(estimator: Estimator) -> bool:
    """Few domains, and a schedule that every shape can follow: interleaved stages have to divide the
    micro-batches, with layers enough for all chunks."""
    return estimator.cluster.size <= ENUMERATE_UP_TO and estimator.job.chunks == 1


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Parts of the window: seconds of each (G,) and the best each link ever has in it."""

    seconds: Float
    best: States

    @classmethod
    def of(cls, made: Grid, count: int) -> "_Parts":
        """`count` equal parts; empty ones are left out."""
        scaled = made.edges_s[:-1] / made.edges_s[-1] * count
        _, part = np.unique(np.minimum(scaled, count - 1).astype(np.int64), return_inverse=True)
        seconds: Float = np.bincount(part, weights=made.lengths_s).astype(np.float64)
        return cls(seconds, optimistic(made, part, int(part.max()) + 1))

    def work(self, estimator: Estimator, shape: Shape, cuts: Cuts) -> Float:
        """Most iterations of each row of cuts over the window (P,)."""
        if len(cuts) < len(self.seconds):
            plans = [build(estimator, shape, row) for row in cuts.tolist()]
            return np.array(
                [per_second(iteration_ns(estimator, plan, self.best)) @ self.seconds for plan in plans]
            )
        work = np.zeros(len(cuts))
        for g, seconds in enumerate(self.seconds.tolist()):
            links = LinkState(self.best.bandwidth_bps[g], self.best.latency_s[g])
            ns = estimator.iter_ns_cuts(shape.order, cuts, shape.dp, shape.inner, shape.micro_batch, links)
            work += seconds * per_second(ns)
        return work


def _sieved(
    estimator: Estimator, made: Grid, shapes: Sequence[Shape], value: float
) -> tuple[list[tuple[float, Shape, tuple[int, ...]]], bool]:
    """Every plan that might do more than `value`, with its bound, the highest first; and whether that is
    all.
    """
    sieves, blocks = [_Parts.of(made, count) for count in SIEVES], Blocks(estimator)
    coarse, depths = sieves[1], [estimator.job.extra_warmup]

    def enough(rate: Float) -> NDArray[np.bool_]:
        better: NDArray[np.bool_] = rate @ coarse.seconds > value
        return better

    left, passed = [], 0
    for shape in shapes:
        cuts = first_sieve(estimator, shape, coarse.best, enough, blocks, depths)
        left.append((shape, cuts))
        passed += len(cuts)
        if passed > MOST_LEFT:
            return [], False
    found = []
    for shape, cuts in left:
        work = np.zeros(len(cuts))
        for parts in sieves:
            if len(cuts):
                work = parts.work(estimator, shape, cuts)
                cuts, work = cuts[work > value], work[work > value]
        found += [(most, shape, tuple(row)) for most, row in zip(work.tolist(), cuts.tolist(), strict=True)]
    return sorted(found, reverse=True), True
