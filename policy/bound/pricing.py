"""A proven ceiling over a whole space of plans, and the plans of it that improve the best path.

The best path over candidates says nothing about other plans. So all plans of a space are priced against it,
like columns in linear programming (Dantzig and Wolfe, "Decomposition principle for linear programs",
Operations Research 8, 1960; Gilmore and Gomory, Operations Research 9, 1961). Let `most[t]` be the most
iterations by time t over the known plans when every migration costs the restart alone. A plan cannot improve
on them if for all a < b

    most[a - restart] + (its iterations from a to b) <= most[b],
    (its iterations from the start to b) <= most[b].

If that holds for every plan of the space, no sequence of plans exceeds `most` at the end, the ceiling: each
leg with the restart before it gains no more than `most` does. Plans for which it fails become candidates,
`most` is computed anew with them, and the space is priced again until it holds for all: a plan that did not
fail may fail now, because it can begin where a new candidate has come further.

The ceiling exceeds the best path by the cost of migrations beyond a restart, by `SLACK`, which lets pruning
remove more, and by links at their best: for each pair the faster of the direct link and an unshared relay,
and the best state within a cell of half a restart. Plans have the best of the warm-up depths that are tried.
The space is that of the static bound (`policy.bound.best_fixed_plan`): shared sizes, default placement, the
job's schedule and point-to-point mode.

Cost: the first pruning step looks at whole shapes (`policy.bound.pruning`), the next ones time the remaining
plans in ever shorter parts of the window. The 91,296 plans of three domains of four GPUs take 1 to 2 s, the
157 million of four domains of 16 some minutes, and much longer on links that often fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ingest.core.compiled import njit
from ingest.core.progress import SILENT, Progress
from ingest.core.units import BITS_PER_BYTE
from policy.bound.best_fixed_plan import enumerable, every_shape
from policy.bound.pruning import BlockTimes, plans_of, unpruned_cuts
from policy.bound.time_grid import Grid, best_links, optimistic
from policy.control.knobs import WARMUP_DEPTHS, WARMUP_SCHEDULES, free_variants
from policy.control.relay_links import UNLIMITED_BITS, RelayPaths
from policy.search.plan_search import build
from policy.search.plan_shapes import Cuts, Shape
from twin.core.plan import Plan
from twin.estimation.estimator import Estimator
from twin.estimation.link_state_times import States, fastest_ns, iteration_ns, per_second

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

CELLS_PER_RESTART = 2
"""Cells into which the time of a restart is divided."""
MOST_CELLS = 20_000
"""Most cells of a window; a restart may then last fewer of them, down to none."""
FIRST_PARTS = 96
"""Parts of the window in the first pruning step."""
PARTS = (8, 32, 128)
"""Parts of the window in the successive steps that time plans."""
SLACK = 1e-3
"""Share by which a plan may exceed `most` and still not become a candidate; the ceiling includes it."""
MOST_KNOWN = 2_000
"""Most plans that may fail in all."""
AT_ONCE = 2**16
"""Plans times parts that one call times."""
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Priced:
    """Plans that improve on the candidates, and the iterations that no sequence of candidates and plans of
    the space exceeds; None where that was not proven."""

    plans: tuple[Plan, ...]
    ceiling: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The window in C cells: `edges_s` (C + 1,), `pause` the cells of a restart, rounded down, and the first
    and last slot that each cell touches (C,)."""

    edges_s: Float
    pause: int
    first: Int
    last: Int

    @classmethod
    def of(cls, window: Grid, restart_s: float) -> "Cells":
        """Returns equal cells but for the last one."""
        window_s = float(window.edges_s[-1])
        length_s = max(restart_s / CELLS_PER_RESTART, window_s / MOST_CELLS)
        edges = np.append(np.arange(0.0, window_s * (1 - ROUNDING), length_s), window_s)
        first = np.searchsorted(window.edges_s, edges[:-1], side="right") - 1
        last = np.searchsorted(window.edges_s, edges[1:], side="left") - 1
        pause = int(restart_s / length_s * (1 + ROUNDING))
        return cls(edges, pause, first, np.maximum(first, np.minimum(last, window.slots - 1)))

    @property
    def lengths_s(self) -> Float:
        """Seconds of each cell (C,)."""
        return np.diff(self.edges_s)

    def parts(self, count: int) -> Int:
        """Returns for each cell its part of `count` or fewer parts of the window (C,)."""
        cells = len(self.first)
        return np.arange(cells) * min(count, cells) // cells

    def best(self, rate: Float) -> Float:
        """Returns the best rate in each cell (P, C) of rates in slots (P, S)."""
        found = rate[:, self.first]
        for offset in range(1, self._most() + 1):
            np.maximum(found, rate[:, np.minimum(self.first + offset, self.last)], out=found)
        return np.ascontiguousarray(found)

    def states(self, window: Grid, group: Int) -> States:
        """Returns the best state of each link in the cells of each group, `group` (C,)."""
        ends = [self.first, *(np.minimum(self.first + k, self.last) for k in range(1, self._most() + 1))]
        slots, groups = np.concatenate(ends), np.tile(group, len(ends))
        pairs = np.unique(np.stack([window.state[slots], groups]), axis=1)
        return optimistic(Grid(window.edges_s, window.states, pairs[0]), pairs[1], int(group.max()) + 1)

    def _most(self) -> int:
        """Returns the most slots that a cell touches beyond its first."""
        return int((self.last - self.first).max())


def space_of(estimator: Estimator, most_plans: int) -> list[Shape]:
    """Returns the shapes of the space; none where it cannot be enumerated or has more than `most_plans`
    plans."""
    shapes = every_shape(estimator) if enumerable(estimator) else []
    return shapes if sum(plans_of(shape, estimator.n_layers) for shape in shapes) <= most_plans else []


def price(
    estimator: Estimator,
    window: Grid,
    restart_s: float,
    rate: Float,
    shapes: Sequence[Shape],
    progress: Progress = SILENT,
) -> Priced:
    """Prices all plans of these shapes against known plans with `rate` (P, S) in the slots of the window."""
    count = sum(plans_of(shape, estimator.n_layers) for shape in shapes)
    cells = Cells.of(window, restart_s)
    columns, space = cells.best(rate), _Space(estimator, window, cells, shapes)
    progress.start(len(shapes), f"pricing {count:,} plans", "shapes")
    found: list[Plan] = []
    while True:
        most = (1 + SLACK) * most_by(columns, cells.lengths_s, cells.pause)
        failed = space.failing(most, progress)
        if failed is None or len(found) + len(failed[0]) > MOST_KNOWN:
            return Priced((), None)
        if not failed[0]:
            return Priced(tuple(found), float(most[-1]))
        found += failed[0]
        columns = np.concatenate([columns, failed[1]])
        progress.start(len(shapes), f"pricing {count:,} plans again, {len(found):,} more known", "shapes")


@njit(cache=True, nogil=True)
def most_by(rate, lengths_s, pause):  # type: ignore[no-untyped-def]
    """Returns the most iterations by each edge of the cells (C + 1,) over plans with `rate` (P, C), when a
    migration takes `pause` cells."""
    plans, cells = rate.shape
    most, work = np.zeros(cells + 1), np.zeros(plans)
    for c in range(cells):
        most[c + 1] = most[c]
        for p in range(plans):
            if c >= pause:
                work[p] = max(work[p], most[c - pause])
            work[p] += rate[p, c] * lengths_s[c]
            most[c + 1] = max(most[c + 1], work[p])
    return most


@njit(cache=True, nogil=True)
def failing(rate, part, lengths_s, pause, most):  # type: ignore[no-untyped-def]
    """Tells which plans (P,) exceed `most` (C + 1,) somewhere, with `rate` (P, G) in part `part` (C,)."""
    plans = rate.shape[0]
    found = np.zeros(plans, np.bool_)
    for p in range(plans):
        work = 0.0
        for c in range(len(part)):
            if c >= pause:
                work = max(work, most[c - pause])
            work += rate[p, part[c]] * lengths_s[c]
            if work > most[c + 1] * (1 + ROUNDING):
                found[p] = True
                break
    return found


class _Links:
    """The best states of the links, relays included, in parts of the window, or for None in cells that touch
    the same states."""

    def __init__(self, estimator: Estimator, window: Grid, cells: Cells) -> None:
        self._estimator, self._window, self._cells = estimator, window, cells
        domains = estimator.cluster.domains
        limit = [[min(i.egress_bps, j.ingress_bps) for j in domains] for i in domains]
        self._direct = replace(window.states, bandwidth_bps=np.minimum(window.states.bandwidth_bps, limit))
        touched = np.stack([window.state[cells.first], window.state[cells.last]])
        self._distinct: Int = np.unique(touched, axis=1, return_inverse=True)[1].reshape(-1)
        self._relayed: dict[float, Grid] = {}
        self._found: dict[tuple[float, int | None], States] = {}

    def part(self, count: int | None) -> Int:
        """Returns the part, or the distinct cell, of each cell (C,)."""
        return self._distinct if count is None else self._cells.parts(count)

    def states(self, dp: int, micro_batch: int, count: int | None) -> States:
        """Returns the best links of each part for the messages of such plans."""
        bits = self._bits(dp, micro_batch)
        if (bits, count) not in self._found:
            if bits not in self._relayed:
                self._relayed[bits] = replace(self._window, states=self._best_routes(bits))
            self._found[bits, count] = self._cells.states(self._relayed[bits], self.part(count))
        return self._found[bits, count]

    def _best_routes(self, bits: float) -> States:
        if bits == UNLIMITED_BITS:
            return best_links(self._estimator.cluster, self._direct)
        return RelayPaths(self._estimator.cluster, bits, share=1.0).best_routes(self._direct)[0]

    def _bits(self, dp: int, micro_batch: int) -> float:
        """Returns the bits of a message where the best route is the one on which it arrives first: its
        sender, or under rendezvous its receiver, waits for it alone. Else bandwidth and latency are bounded
        separately."""
        job = self._estimator.job
        if job.p2p == "overlapped" or job.model.tied:
            return UNLIMITED_BITS
        return float(dp * job.message_bytes(micro_batch) * BITS_PER_BYTE)


class _Space:
    """Every plan of the space, priced in successive pruning steps."""

    def __init__(self, estimator: Estimator, window: Grid, cells: Cells, shapes: Sequence[Shape]) -> None:
        self._estimator, self._cells, self._shapes = estimator, cells, shapes
        self._blocks = BlockTimes(estimator)
        self._links = _Links(estimator, window, cells)
        own = estimator.job.extra_warmup
        deepens = estimator.job.schedule in WARMUP_SCHEDULES
        self._depths = sorted({*WARMUP_DEPTHS, own}) if deepens else [own]

    def failing(self, most: Float, progress: Progress) -> tuple[list[Plan], Float] | None:
        """Returns the plans that exceed `most` (C + 1,), and their rates (P, C); None if they are too
        many."""
        plans: list[Plan] = []
        for shape in self._shapes:
            cuts = self._unpruned(shape, most)
            for count in PARTS:
                cuts = self._timed(shape, cuts, count, most)
            plans += [build(self._estimator, shape, row) for row in cuts.tolist()]
            progress.advance()
            if len(plans) > MOST_KNOWN:
                return None
        part = self._links.part(None)
        rate = np.array([self._rate(plan) for plan in plans]).reshape(len(plans), int(part.max()) + 1)
        failed = self._fails(rate, part, most)
        return [plans[p] for p in np.flatnonzero(failed)], rate[failed][:, part]

    def _fails(self, rate: Float, part: Int, most: Float) -> Bool:
        found: Bool = failing(
            np.ascontiguousarray(rate), part, self._cells.lengths_s, self._cells.pause, most
        )
        return found

    def _unpruned(self, shape: Shape, most: Float) -> Cuts:
        """Returns the cuts of a shape that remain after the first pruning step and fit in memory."""
        part = self._links.part(FIRST_PARTS)

        def may_win(rate: Float) -> Bool:
            return self._fails(rate, part, most)

        best = self._links.states(shape.dp, shape.micro_batch, FIRST_PARTS)
        cuts = unpruned_cuts(self._estimator, shape, best, may_win, self._blocks, self._depths)
        if not len(cuts):
            return cuts
        order, dp, inner, size = shape.order, shape.dp, shape.inner, shape.micro_batch
        return cuts[self._estimator.fits_cuts(order, cuts, dp, inner, size, self._depths[0])]

    def _timed(self, shape: Shape, cuts: Cuts, count: int, most: Float) -> Cuts:
        """Returns the cuts that remain when they are timed in so many parts."""
        part, best = self._links.part(count), self._links.states(shape.dp, shape.micro_batch, count)
        kept, at_once = [cuts[:0]], max(AT_ONCE // len(best), 1)
        for first in range(0, len(cuts), at_once):
            rows = cuts[first : first + at_once]
            plan = build(self._estimator, shape, rows[0].tolist())
            rate = per_second(fastest_ns(self._estimator, plan, rows, best, self._depths))
            kept.append(rows[self._fails(rate, part, most)])
        return np.concatenate(kept)

    def _rate(self, plan: Plan) -> Float:
        """Returns iterations per second under the links of each distinct cell with the best depth there."""
        states = self._links.states(plan.dp, plan.micro_batch, None)
        variants = [plan, *free_variants(self._estimator, plan)]
        best: Float = np.maximum.reduce(
            [per_second(iteration_ns(self._estimator, one, states)) for one in variants]
        )
        return best
