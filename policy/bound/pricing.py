"""Which plans of a whole space the bound's candidates lack, and how much no sequence of plans can exceed.

The best path over some plans says nothing of plans that are not among them. So all others are held against
it, as columns are priced in linear programming (Dantzig and Wolfe, "Decomposition principle for linear
programs", Operations Research 8, 1960; Gilmore and Gomory, Operations Research 9, 1961). Let `most[t]` be the
most that is done by t over the plans that are known, when every move costs the restart alone. A plan is worth
nothing if for all a < b

    most[a - restart] + (its work from a to b) <= most[b],
    (its work from the start to b) <= most[b].

If that holds for every plan of the space, no sequence of them does more than `most` at the end: each leg and
the restart before it gain at most what `most` does. That is the ceiling. Plans for which it fails are worth a
place among the candidates; with them `most` is found anew and everything is priced again, until none fails.

The ceiling lies above the best path by what moving layers costs beyond a restart, by `SLACK`, which lets
sieves rule out more, and by links taken at their best: of each pair the way on which a message arrives first,
direct or over a relay that it has to itself, and the best state that touches a cell of half a restart. Plans
have the best of the warm-up depths that are tried. The space is that of the static bound
(`policy.bound_static`): shared sizes, default placement, the job's schedule and point-to-point mode.

Cost. The first sieve looks at whole shapes (`policy.bound_sieve`), the next ones time what is left in ever
shorter parts of the window. The 91,296 plans of three domains of four GPUs take 2 to 3 s, the 157 million of
four domains of 16 some minutes, and many more on links that often fail.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ingest.core.progress import SILENT, Progress
from ingest.core.units import BITS_PER_BYTE
from policy.bound.time_grid import Grid, fastest, optimistic
from policy.bound.pruning import Blocks, first_sieve, plans_of
from policy.bound.best_fixed_plan import enumerable, every_shape
from policy.control.knobs import DEEPENED, DEPTHS, deepened
from twin.estimate.link_state_times import States, fastest_ns, iteration_ns, per_second
from policy.control.relay_links import ENDLESS_BITS, Relays
from policy.search.plan_search import build
from policy.search.plan_shapes import Cuts, Shape
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

CELLS_A_RESTART = 2
"""Cells into which the time of a restart is divided."""
MOST_CELLS = 20_000
"""Cells of a window at most; a restart then lasts fewer of them, down to none."""
FIRST_PARTS = 96
"""Parts of the window of the first sieve."""
SIEVES = (8, 32, 128)
"""Parts of the window of those that time plans, one after the other."""
SLACK = 1e-3
"""Share by which plans may exceed what is known and yet count as worth nothing; the ceiling has it on top."""
MOST_KNOWN = 2_000
"""Plans that may fail in all."""
ROUNDS = 8
"""Times that the space is priced."""
AT_ONCE = 2**16
"""Plans times parts timed in one call."""
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Priced:
    """Plans that the candidates lacked, and iterations that no sequence of candidates and plans of the space
    exceeds; None where that was not proven."""

    plans: tuple[Plan, ...]
    ceiling: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The window in C cells: `edges_s` (C + 1,), `pause` the cells of a restart, rounded down, and the first
    and last slot of a grid that each touches (C,)."""

    edges_s: Float
    pause: int
    first: Int
    last: Int

    @classmethod
    def of(cls, made: Grid, restart_s: float) -> "Cells":
        """Equal cells but for the last one."""
        window_s = float(made.edges_s[-1])
        length_s = max(restart_s / CELLS_A_RESTART, window_s / MOST_CELLS)
        edges = np.append(np.arange(0.0, window_s * (1 - ROUNDING), length_s), window_s)
        first = np.searchsorted(made.edges_s, edges[:-1], side="right") - 1
        last = np.searchsorted(made.edges_s, edges[1:], side="left") - 1
        pause = int(restart_s / length_s * (1 + ROUNDING))
        return cls(edges, pause, first, np.maximum(first, np.minimum(last, made.slots - 1)))

    @property
    def lengths_s(self) -> Float:
        """Seconds of each cell (C,)."""
        return np.diff(self.edges_s)

    def parts(self, count: int) -> Int:
        """Which of `count` parts of the window, or fewer, each cell is in (C,)."""
        cells = len(self.first)
        return np.arange(cells) * min(count, cells) // cells

    def best(self, rate: Float) -> Float:
        """The best rate in each cell (P, C) of rates in slots (P, S)."""
        found = rate[:, self.first]
        for offset in range(1, self._most() + 1):
            np.maximum(found, rate[:, np.minimum(self.first + offset, self.last)], out=found)
        return np.ascontiguousarray(found)

    def states(self, made: Grid, group: Int) -> States:
        """The best that each link has in the cells of each group, `group` (C,)."""
        ends = [self.first, *(np.minimum(self.first + k, self.last) for k in range(1, self._most() + 1))]
        slots, groups = np.concatenate(ends), np.tile(group, len(ends))
        pairs = np.unique(np.stack([made.state[slots], groups]), axis=1)
        return optimistic(Grid(made.edges_s, made.states, pairs[0]), pairs[1], int(group.max()) + 1)

    def _most(self) -> int:
        """Slots that a cell touches beyond its first, at most."""
        return int((self.last - self.first).max())


def space_of(estimator: Estimator, most_plans: int) -> list[Shape]:
    """The shapes of the space; none where it cannot be enumerated or has more than `most_plans` plans."""
    shapes = every_shape(estimator) if enumerable(estimator) else []
    return shapes if sum(plans_of(shape, estimator.n_layers) for shape in shapes) <= most_plans else []


def price(
    estimator: Estimator,
    made: Grid,
    restart_s: float,
    rate: Float,
    shapes: Sequence[Shape],
    progress: Progress = SILENT,
) -> Priced:
    """Price all plans of these shapes against known ones that have `rate` (P, S) in the slots of the grid."""
    count = sum(plans_of(shape, estimator.n_layers) for shape in shapes)
    cells = Cells.of(made, restart_s)
    space = _Space(estimator, made, cells, shapes)
    columns, found = cells.best(rate), dict[Plan, None]()
    for n in range(ROUNDS):
        progress.start(len(shapes), f"pricing {count:,} plans" + (f", round {n + 1}" if n else ""))
        most = (1 + SLACK) * most_by(columns, cells.lengths_s, cells.pause)
        failed = space.failing(most, progress)
        if failed is None or len(found) + len(failed[0]) > MOST_KNOWN:
            break
        if not failed[0]:
            return Priced(tuple(found), float(most[-1]))
        found |= dict.fromkeys(failed[0])
        columns = np.concatenate([columns, failed[1]])
    return Priced(tuple(found), None)


@njit(cache=True, nogil=True)
def most_by(rate, lengths_s, pause):  # type: ignore[no-untyped-def]
    """The most that is done by each edge of the cells (C + 1,) over plans with `rate` (P, C), when a move
    takes `pause` cells."""
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
    """Which plans (P,) do more than `most` (C + 1,) somewhere, with `rate` (P, G) in part `part` (C,)."""
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
    """The best that links are in parts of the window, or with None in cells that touch the same states,
    relays included."""

    def __init__(self, estimator: Estimator, made: Grid, cells: Cells) -> None:
        self._estimator, self._made, self._cells = estimator, made, cells
        domains = estimator.cluster.domains
        limit = [[min(i.egress_bps, j.ingress_bps) for j in domains] for i in domains]
        self._direct = replace(made.states, bandwidth_bps=np.minimum(made.states.bandwidth_bps, limit))
        touched = np.stack([made.state[cells.first], made.state[cells.last]])
        self._distinct: Int = np.unique(touched, axis=1, return_inverse=True)[1].reshape(-1)
        self._relayed: dict[float, Grid] = {}
        self._found: dict[tuple[float, int | None], States] = {}

    def part(self, count: int | None) -> Int:
        """The part or the distinct cell of each cell (C,)."""
        return self._distinct if count is None else self._cells.parts(count)

    def states(self, dp: int, micro_batch: int, count: int | None) -> States:
        """The links of each part as the messages of such plans could find them."""
        bits = self._bits(dp, micro_batch)
        if (bits, count) not in self._found:
            if bits not in self._relayed:
                self._relayed[bits] = replace(self._made, states=self._ways(bits))
            self._found[bits, count] = self._cells.states(self._relayed[bits], self.part(count))
        return self._found[bits, count]

    def _ways(self, bits: float) -> States:
        if bits == ENDLESS_BITS:
            return fastest(self._estimator.cluster, self._direct)
        return Relays(self._estimator.cluster, bits, share=1.0).ways(self._direct)[0]

    def _bits(self, dp: int, micro_batch: int) -> float:
        """Of a message, where its way is best that brings it first: who sends waits for it, and nothing else
        is sent. Else width and latency count each for itself."""
        job = self._estimator.job
        if job.p2p != "blocking" or job.model.tied:
            return ENDLESS_BITS
        return float(dp * job.message_bytes(micro_batch) * BITS_PER_BYTE)


class _Space:
    """Every plan of the space, priced sieve after sieve."""

    def __init__(self, estimator: Estimator, made: Grid, cells: Cells, shapes: Sequence[Shape]) -> None:
        self._estimator, self._cells, self._shapes = estimator, cells, shapes
        self._blocks = Blocks(estimator)
        self._links = _Links(estimator, made, cells)
        ahead = {*DEPTHS, estimator.job.extra_warmup}
        self._depths = sorted(ahead) if estimator.job.schedule in DEEPENED else [estimator.job.extra_warmup]

    def failing(self, most: Float, progress: Progress) -> tuple[list[Plan], Float] | None:
        """Plans that do more than `most` (C + 1,) allows, and their rates (P, C); None when they are too
        many."""
        plans: list[Plan] = []
        for shape in self._shapes:
            cuts = self._fitting(shape, most)
            for count in SIEVES:
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

    def _fitting(self, shape: Shape, most: Float) -> Cuts:
        """What the first sieve and memory leave of a shape."""
        part = self._links.part(FIRST_PARTS)

        def enough(rate: Float) -> Bool:
            return self._fails(rate, part, most)

        best = self._links.states(shape.dp, shape.micro_batch, FIRST_PARTS)
        cuts = first_sieve(self._estimator, shape, best, enough, self._blocks, self._depths)
        if not len(cuts):
            return cuts
        order, dp, inner, size = shape.order, shape.dp, shape.inner, shape.micro_batch
        return cuts[self._estimator.fits_cuts(order, cuts, dp, inner, size, self._depths[0])]

    def _timed(self, shape: Shape, cuts: Cuts, count: int, most: Float) -> Cuts:
        """Those of the cuts that are left when they are timed in so many parts."""
        part, best = self._links.part(count), self._links.states(shape.dp, shape.micro_batch, count)
        kept, at_once = [cuts[:0]], max(AT_ONCE // len(best), 1)
        for at in range(0, len(cuts), at_once):
            rows = cuts[at : at + at_once]
            plan = build(self._estimator, shape, rows[0].tolist())
            rate = per_second(fastest_ns(self._estimator, plan, rows, best, self._depths))
            kept.append(rows[self._fails(rate, part, most)])
        return np.concatenate(kept)

    def _rate(self, plan: Plan) -> Float:
        """Iterations per second under the links of each distinct cell with the best depth there."""
        states = self._links.states(plan.dp, plan.micro_batch, None)
        every = [plan, *deepened(self._estimator, plan)]
        best: Float = np.maximum.reduce(
            [per_second(iteration_ns(self._estimator, one, states)) for one in every]
        )
        return best
