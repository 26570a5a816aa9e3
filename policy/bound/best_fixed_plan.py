"""The best single plan in hindsight: all orders x parallel sizes x cuts, most of them pruned in bulk.

In a part of the window a plan does at most what it would do under the best state of each link in that part.
From this follow exact pruning steps: first the number of layers with which the busiest stage of a share alone
is too slow; then the iterations under the best links of a few long parts, and of many short ones. What
remains is evaluated slot by slot. "All" means: sizes shared by the domains of a plan
(`policy.search.plan_shapes.profiles`), default placement, the job's schedule, point-to-point mode and warm-up
depth, direct routes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from policy.bound.pruning import BlockTimes, cuts_of, plans_of, unpruned_cuts
from policy.bound.time_grid import Grid, optimistic
from policy.search.domain_orders import ENUMERATE_UP_TO
from policy.search.plan_search import build
from policy.search.plan_shapes import Cuts, Shape, choices, concrete, orders, profiles
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, iteration_ns, per_second

Float = NDArray[np.float64]
PARTS = (4, 32, 128)
"""Numbers of parts of the window in the successive pruning steps that time plans; the step before, which
looks at shares alone, uses the second one."""
MOST_LEFT = 50_000
"""Plans that may remain after that step; a space in which more do is not enumerated."""


@dataclass(frozen=True, slots=True)
class BestFixedPlan:
    """The best fixed plan found, its iterations over the window, and whether nothing enumerable beats it."""

    plan: Plan
    iterations: float
    enumerated: int  # plans covered, most of them without looking at each
    exact: bool


def every_shape(estimator: Estimator) -> list[Shape]:
    """Returns all orders of all subsets of the domains x all shared parallel sizes, without repetition."""
    free = [domain.gpus for domain in estimator.cluster.domains]
    alive = tuple(range(estimator.cluster.size))
    sizes = profiles(estimator, alive, free)
    found = (concrete(estimator, size, order, free) for order in orders(alive) for size in sizes)
    return list(dict.fromkeys(shape for shape in found if shape is not None))


def every_plan(estimator: Estimator, most: int) -> list[Plan]:
    """Returns all plans at default placement that fit in memory, each domain with its own (tp, pp); an empty
    list if there are more than `most`.
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


def best_fixed(estimator: Estimator, window: Grid, known: Plan) -> BestFixedPlan:
    """Returns the best fixed plan; `known` is a first one, and the result where not all can be enumerated."""
    lengths = window.lengths_s
    best, value = known, float(lengths @ window.rate(estimator, known))
    if not enumerable(estimator):
        return BestFixedPlan(best, value, 0, False)
    shapes = every_shape(estimator)
    covered = sum(plans_of(shape, estimator.n_layers) for shape in shapes)
    candidates, complete = _unpruned(estimator, window, shapes, value)
    for bound, shape, cuts in candidates:
        if bound <= value:
            break
        plan = build(estimator, shape, cuts)
        work = float(lengths @ window.rate(estimator, plan))
        if work > value:
            best, value = plan, work
    return BestFixedPlan(best, value, covered, complete)


def enumerable(estimator: Estimator) -> bool:
    """Tells whether there are few domains, a schedule that every shape can follow (interleaved stages
    have to divide the micro-batches, with enough layers for all chunks), and one degree of expert
    parallelism."""
    few = estimator.cluster.size <= ENUMERATE_UP_TO and len(set(estimator.job.ep)) == 1
    return few and estimator.job.chunks == 1


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Parts of the window: seconds of each (G,) and the best state of each link in it."""

    seconds: Float
    best: States

    @classmethod
    def of(cls, window: Grid, count: int) -> "_Parts":
        """Returns `count` equal parts without empty ones."""
        scaled = window.edges_s[:-1] / window.edges_s[-1] * count
        _, part = np.unique(np.minimum(scaled, count - 1).astype(np.int64), return_inverse=True)
        seconds: Float = np.bincount(part, weights=window.lengths_s).astype(np.float64)
        return cls(seconds, optimistic(window, part, int(part.max()) + 1))

    def work(self, estimator: Estimator, shape: Shape, cuts: Cuts) -> Float:
        """Returns an upper bound of the iterations of each row of cuts over the window (P,)."""
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


def _unpruned(
    estimator: Estimator, window: Grid, shapes: Sequence[Shape], value: float
) -> tuple[list[tuple[float, Shape, tuple[int, ...]]], bool]:
    """Returns every plan that might do more than `value`, with its bound, the highest first; and whether they
    are complete.
    """
    parts, blocks = [_Parts.of(window, count) for count in PARTS], BlockTimes(estimator)
    share_parts, depths = parts[1], [estimator.job.extra_warmup]

    def may_win(rate: Float) -> NDArray[np.bool_]:
        better: NDArray[np.bool_] = rate @ share_parts.seconds > value
        return better

    left, passed = [], 0
    for shape in shapes:
        cuts = unpruned_cuts(estimator, shape, share_parts.best, may_win, blocks, depths)
        left.append((shape, cuts))
        passed += len(cuts)
        if passed > MOST_LEFT:
            return [], False
    found = []
    for shape, cuts in left:
        work = np.zeros(len(cuts))
        for part in parts:
            if len(cuts):
                work = part.work(estimator, shape, cuts)
                cuts, work = cuts[work > value], work[work > value]
        found += [(most, shape, tuple(row)) for most, row in zip(work.tolist(), cuts.tolist(), strict=True)]
    return sorted(found, reverse=True), True
