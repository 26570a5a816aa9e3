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
from math import comb

import numpy as np
from numpy.typing import NDArray

from ingest.units import NS_PER_S
from policy.bound_grid import Grid, optimistic
from policy.paths import ENUMERATE_UP_TO
from policy.rates import States, crossings, iteration_ns, per_second
from policy.search import build
from policy.shapes import Cuts, Shape, choices, concrete, orders, profiles
from twin.costs import open_links
from twin.domain import LinkState
from twin.estimate import Estimator
from twin.plan import Plan
from twin.split import stage_start

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


def plans_of(shape: Shape, layers: int) -> int:
    """How many plans a shape has: ways to give each domain at least one layer per stage."""
    spare = layers - sum(pp for _, pp in shape.inner)
    return 0 if spare < 0 else comb(spare + len(shape.order) - 1, len(shape.order) - 1)


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
    sieves, blocks = [_Parts.of(made, count) for count in SIEVES], _Blocks(estimator)
    left, passed = [], 0
    for shape in shapes:
        cuts = _first_sieve(estimator, shape, sieves[1], value, blocks)
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


def _first_sieve(estimator: Estimator, shape: Shape, parts: _Parts, value: float, blocks: "_Blocks") -> Cuts:
    """Cuts of a shape with which no share alone is too slow: first one share at a time, then all together."""
    layers = estimator.n_layers
    if len(shape.order) == 1:
        return np.array([[0, layers]], dtype=np.int64)
    least = _least_ns(estimator, shape, parts, blocks)
    alone = [(NS_PER_S / ns) @ parts.seconds > value for ns in least]
    caps = [int(np.flatnonzero(enough).max(initial=-1)) for enough in alone]
    if not _holds(caps, shape, layers):
        return np.zeros((0, len(shape.order) + 1), dtype=np.int64)
    cuts = _within(caps, shape, layers)
    counts = np.diff(cuts, axis=1)
    together = np.maximum.reduce([ns[counts[:, k]] for k, ns in enumerate(least)])
    keep: Cuts = cuts[(NS_PER_S / together) @ parts.seconds > value]
    return keep


def _least_ns(estimator: Estimator, shape: Shape, parts: _Parts, blocks: "_Blocks") -> list[Float]:
    """For each share of a shape of two or more: least iteration time (N + 1, G) by its layers and part.

    The last stage of a share is its longest. A stage of 1F1B runs its first forward when the forwards before
    it are through, its first backward after a round trip through all stages behind it (meanwhile it runs `w`
    more forwards), m forwards and backwards in all, and after its last one the backwards before it remain:

        T >= (all other stages) + (links) + m (f + b) - w f          for 1F1B,
        T >= m (f + b)                                               for GPipe,

    with f and b including what a blocking stage waits for its sends. Embedding and head count as free.
    """
    n, layers = len(shape.order), estimator.n_layers
    plan = build(estimator, shape, _even(shape, layers))
    timing = estimator.pipeline(plan, open_links(estimator.cluster.size))
    assert timing is not None, "open links are never dead"
    across = crossings(estimator, plan, parts.best)
    sends = across.occupancy + across.latency
    times = [blocks.times(shape, k) for k in range(n)]
    fastest, m, found = min(f + b for f, b in times), timing.micro_batches, []
    for k, (forward, backward) in enumerate(times):
        pp, last = shape.inner[k][1], sum(pp for _, pp in shape.inner[: k + 1]) - 1
        down = sends[2 * k] if timing.blocking and k < n - 1 else 0
        up = sends[2 * k - 1] if timing.blocking and k > 0 and pp == 1 else 0
        fixed, each = (m - 1) * (down + up) + np.zeros(len(parts.seconds)), m * (forward + backward)
        if timing.schedule == "1f1b":
            w = int(timing.warmup[last])
            fixed += sends.sum(axis=0) + (layers - 2) * fastest - w * down
            each -= w * forward + fastest
        many, ends = np.arange(layers + 1), (k == 0, k == n - 1)
        longest = many - stage_start(pp - 1, pp, many, *ends)
        held = np.maximum(longest - ends[1] - (ends[0] and pp == 1), 0)[:, None]
        found.append(np.where(across.alive, np.maximum(fixed + held * each, 1.0), np.inf))
    return found


def _holds(caps: Sequence[int], shape: Shape, layers: int) -> bool:
    """Whether shares within the caps can hold the model."""
    each = all(cap >= pp for cap, (_, pp) in zip(caps, shape.inner, strict=True))
    return each and sum(caps) >= layers


def _even(shape: Shape, layers: int) -> tuple[int, ...]:
    """Cuts that give every share one layer a stage and spread the rest evenly."""
    depth = [pp for _, pp in shape.inner]
    spare, n = layers - sum(depth), len(depth)
    counts = [pp + spare // n + (k < spare % n) for k, pp in enumerate(depth)]
    return (0, *np.cumsum(counts).tolist())


class _Blocks:
    """Forward and backward nanoseconds of one block in a domain; kept, since they depend on little."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._known: dict[tuple[int, int, int], tuple[int, int]] = {}

    def times(self, shape: Shape, k: int) -> tuple[int, int]:
        """What one more block adds to the stages of share k of a shape with two shares or more."""
        key = (shape.order[k], shape.inner[k][0], shape.micro_batch)
        if key not in self._known:
            more = np.diff(_even(shape, self._estimator.n_layers))
            fewer = more.copy()
            fewer[k] -= 1
            fewer[k - 1 if k > 0 else 1] += 1
            forward, backward = self._busy(shape, more, k) - self._busy(shape, fewer, k)
            self._known[key] = (int(forward), int(backward))
        return self._known[key]

    def _busy(self, shape: Shape, counts: NDArray[np.int64], k: int) -> NDArray[np.int64]:
        plan = build(self._estimator, shape, (0, *np.cumsum(counts).tolist()))
        timing = self._estimator.pipeline(plan, open_links(self._estimator.cluster.size))
        assert timing is not None, "open links are never dead"
        first = sum(pp for _, pp in shape.inner[:k])
        stages = slice(first, first + shape.inner[k][1])
        return np.array([timing.tf[stages].sum(), timing.tb[stages].sum()])


def _ranges(caps: Sequence[int], shape: Shape, layers: int) -> list[range]:
    """Layers of each share but the last: what the caps of the others leave."""
    total = sum(caps)
    return [
        range(max(pp, layers - (total - cap)), cap + 1)
        for cap, (_, pp) in zip(caps[:-1], shape.inner[:-1], strict=True)
    ]


def _box_size(caps: Sequence[int], shape: Shape, layers: int) -> int:
    """Upper bound of the rows of `_within`."""
    size = 1
    for choice in _ranges(caps, shape, layers):
        size *= max(0, len(choice))
    return size


def cuts_of(shape: Shape, layers: int) -> Cuts:
    """All cuts of a shape, one row a plan."""
    return _within([layers] * len(shape.order), shape, layers)


def _within(caps: Sequence[int], shape: Shape, layers: int) -> Cuts:
    """All cuts whose shares respect the caps."""
    choices, n = _ranges(caps, shape, layers), len(shape.order)
    counts = np.array(list(product(*choices)), dtype=np.int64).reshape(_box_size(caps, shape, layers), n - 1)
    rest = layers - counts.sum(axis=1)
    keep = (rest >= shape.inner[-1][1]) & (rest <= caps[-1])
    inside = np.cumsum(counts[keep], axis=1)
    rows = len(inside)
    return np.concatenate([np.zeros((rows, 1)), inside, np.full((rows, 1), layers)], axis=1).astype(np.int64)
