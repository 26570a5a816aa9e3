"""Pruning of plans in bulk, before any is timed, by the largest number of layers that a share may have.

It is the first step of both searches of whole spaces, for the best fixed plan
(`policy.bound.best_fixed_plan`) and for plans that improve the best path (`policy.bound.pricing`).
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.units import NS_PER_S
from policy.search.plan_search import build
from policy.search.plan_shapes import Cuts, Shape
from twin.core.layer_split import stage_start
from twin.core.plan import PointToPoint
from twin.costs.stage_costs import slots, warmup_of
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, crossings
from twin.estimation.resource_use import open_links

Float = NDArray[np.float64]
MayWin = Callable[[Float], NDArray[np.bool_]]
"""Tells which rows of iterations per second (P, G), one column for each part of the window, remain (P,)."""


def plans_of(shape: Shape, layers: int) -> int:
    """Returns the number of plans of a shape: ways to give each domain at least one layer per stage."""
    spare = layers - sum(pp for _, pp in shape.inner)
    return 0 if spare < 0 else comb(spare + len(shape.order) - 1, len(shape.order) - 1)


def unpruned_cuts(
    estimator: Estimator,
    shape: Shape,
    best: States,
    may_win: MayWin,
    blocks: "BlockTimes",
    depths: Sequence[int],
) -> Cuts:
    """Returns the cuts of a shape with which no share alone is too slow, each share on its own first, then
    all together.

    `best` holds the best state of the links in each of G parts of the window, `depths` the extra warm-up
    depths that a plan may have.
    """
    layers = estimator.n_layers
    if len(shape.order) == 1:
        return np.array([[0, layers]], dtype=np.int64)
    least = _least_ns(estimator, shape, best, blocks, depths)
    caps = [int(np.flatnonzero(may_win(NS_PER_S / ns)).max(initial=-1)) for ns in least]
    if not _holds(caps, shape, layers):
        return np.zeros((0, len(shape.order) + 1), dtype=np.int64)
    cuts = _within(caps, shape, layers)
    counts = np.diff(cuts, axis=1)
    together = np.maximum.reduce([ns[counts[:, k]] for k, ns in enumerate(least)])
    keep: Cuts = cuts[may_win(NS_PER_S / together)]
    return keep


def _least_ns(
    estimator: Estimator, shape: Shape, best: States, blocks: "BlockTimes", depths: Sequence[int]
) -> list[Float]:
    """Returns lower bounds of the iteration time (N + 1, G) by layers and part, for each share of a shape of
    two or more shares.

    The last stage of a share is its longest. A stage of 1F1B runs its first forward after the forwards of the
    stages before it, its first backward after a round trip through all stages behind it (meanwhile it runs
    `w` more forwards), m forwards and backwards in all; after its last one the backwards of the stages before
    it remain:

        T >= (all other stages) + (links) + m (f + b) - w f          for 1F1B, the least of its depths,
        T >= m (f + b)                                               for both it and GPipe,

    with f and b including the waits of a stage for its messages (`_waits`; in the second line only for
    GPipe). Embedding and head are free.
    """
    n, layers = len(shape.order), estimator.n_layers
    plan = build(estimator, shape, _even_cuts(shape, layers))
    timing = estimator.pipeline(plan, open_links(estimator.cluster.size))
    assert timing is not None, "open links are never dead"
    across = crossings(estimator, plan, best)
    sends = across.occupancy + across.latency
    times = [blocks.times(shape, k) for k in range(n)]
    fastest, m, found = min(f + b for f, b in times), timing.micro_batches, []
    warmups = [warmup_of(slots(shape.order, shape.inner), m, depth) for depth in depths]
    for k, (forward, backward) in enumerate(times):
        pp, last = shape.inner[k][1], sum(pp for _, pp in shape.inner[: k + 1]) - 1
        down, up = _waits(timing.p2p, sends, k, pp)
        fixed, each = (m - 1) * (down + up) + np.zeros(len(best)), m * (forward + backward)
        many, ends = np.arange(layers + 1), (k == 0, k == n - 1)
        longest = many - stage_start(pp - 1, pp, many, *ends)
        held = np.maximum(longest - ends[1] - (ends[0] and pp == 1), 0)[:, None]
        if timing.schedule == "1f1b":
            fixed += sends.sum(axis=0) + (layers - 2) * fastest
            ahead = {int(warmup[last]) for warmup in warmups}
            least = [fixed - w * down + held * (each - w * forward - fastest) for w in ahead]
            needed = np.maximum(np.minimum.reduce(least), held * each)
        else:
            needed = fixed + held * each
        found.append(np.where(across.alive, np.maximum(needed, 1.0), np.inf))
    return found


def _waits(p2p: PointToPoint, sends: NDArray[np.int64], k: int, pp: int) -> tuple[Any, Any]:
    """Returns what the last stage of share k of `pp` stages waits for in each forward and backward: for its
    own sends if blocking, for what it receives under rendezvous; `sends` (2 (n - 1), G) as boundaries lie,
    downstream and upstream in turn."""
    ahead, behind = 2 * k if 2 * k < len(sends) else None, 2 * k - 2 if k > 0 and pp == 1 else None
    if p2p == "blocking":
        return (0 if ahead is None else sends[ahead], 0 if behind is None else sends[behind + 1])
    if p2p == "rendezvous":
        return (0 if behind is None else sends[behind], 0 if ahead is None else sends[ahead + 1])
    return 0, 0


def _holds(caps: Sequence[int], shape: Shape, layers: int) -> bool:
    """Tells whether shares within the caps can hold the model."""
    each = all(cap >= pp for cap, (_, pp) in zip(caps, shape.inner, strict=True))
    return each and sum(caps) >= layers


def _even_cuts(shape: Shape, layers: int) -> tuple[int, ...]:
    """Returns cuts that give every share one layer a stage and spread the rest evenly."""
    depth = [pp for _, pp in shape.inner]
    spare, n = layers - sum(depth), len(depth)
    counts = [pp + spare // n + (k < spare % n) for k, pp in enumerate(depth)]
    return (0, *np.cumsum(counts).tolist())


class BlockTimes:
    """Computes forward and backward nanoseconds of one block in a domain; cached."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._known: dict[tuple[int, int, int], tuple[int, int]] = {}

    def times(self, shape: Shape, k: int) -> tuple[int, int]:
        """Returns the time that one more block adds to the stages of share k; the shape has two shares or
        more."""
        key = (shape.order[k], shape.inner[k][0], shape.micro_batch)
        if key not in self._known:
            more = np.diff(_even_cuts(shape, self._estimator.n_layers))
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
    """Returns the possible layers of each share but the last one under the caps of the others."""
    total = sum(caps)
    return [
        range(max(pp, layers - (total - cap)), cap + 1)
        for cap, (_, pp) in zip(caps[:-1], shape.inner[:-1], strict=True)
    ]


def _box_size(caps: Sequence[int], shape: Shape, layers: int) -> int:
    """Returns an upper bound of the rows of `_within`."""
    size = 1
    for choice in _ranges(caps, shape, layers):
        size *= max(0, len(choice))
    return size


def cuts_of(shape: Shape, layers: int) -> Cuts:
    """Returns all cuts of a shape, one row for each plan."""
    return _within([layers] * len(shape.order), shape, layers)


def _within(caps: Sequence[int], shape: Shape, layers: int) -> Cuts:
    """Returns all cuts whose shares respect the caps."""
    choices, n = _ranges(caps, shape, layers), len(shape.order)
    counts = np.array(list(product(*choices)), dtype=np.int64).reshape(_box_size(caps, shape, layers), n - 1)
    rest = layers - counts.sum(axis=1)
    keep = (rest >= shape.inner[-1][1]) & (rest <= caps[-1])
    inside = np.cumsum(counts[keep], axis=1)
    rows = len(inside)
    return np.concatenate([np.zeros((rows, 1)), inside, np.full((rows, 1), layers)], axis=1).astype(np.int64)
