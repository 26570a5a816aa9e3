"""`sailor`: Sailor-style planning; even stages, a dynamic program over regions, dp from large to small.

Re-implementation of the planner of Sailor (Strati et al., SOSP 2025; recipe 2), whose heuristics keep
their names: H1 tensor parallelism only inside a node; H2 the smallest width that fits; H3 dp from large to
small until throughput no longer rises; H5 data parallelism inside a region, pipeline across. A region is a
domain. The program minimises Sailor's own iteration time,

    T = (m - 1) max_i (comp_i + comm_i) + sum_i (comp_i + comm_i) + max_i (update_i + sync_i),

for each depth, micro-batch and dp over orders of regions. `sailor` lets the referee pick among the program's
answers, `sailor-native` picks by Sailor's formula. Memory is the referee's in both. Adapted: the stages of a
domain share one width (the plan type's rule). Plans again when the GPUs change, as Sailor does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

import numpy as np

from ingest.units import transmission_s
from policy.even import Closest, batches, deal, living, stage_layers, widths
from policy.planner import Planner, iteration_s
from policy.protocol import Context
from policy.stage_tables import span_costs
from twin.alternatives import sailor_ns
from twin.domain import LinkState
from twin.estimate import Estimator
from twin.plan import Plan
from twin.view import View

ORDERS = 12
"""Orders of regions that are planned for, those with the largest summed bandwidth."""
ENUMERATE_UP_TO = 6
"""Regions up to which all orders are looked at for that."""
EVERY_DEPTH_UP_TO = 12
"""Depths that are tried whether or not they divide the blocks."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive stages in one region: their width, the seconds of each, and the slowest tail."""

    tp: int
    compute_s: tuple[float, ...]
    tail_s: float


@dataclass(frozen=True, slots=True)
class Partial:
    """The program's state: pieces in order of regions and Sailor's terms over them."""

    pieces: tuple[Piece, ...]
    slowest_s: float
    sum_s: float
    tail_s: float
    last: tuple[int, float]  # region of the last stage (-1: none yet) and its seconds

    def total_s(self, micro_batches: int) -> float:
        """Sailor's iteration time of what is placed."""
        return (micro_batches - 1) * self.slowest_s + self.sum_s + self.tail_s


class Sailor(Planner):
    """Sailor's plans, graded by the referee."""

    name = "sailor"
    native = False

    def reset(self, context: Context) -> None:
        """Start a run."""
        super().reset(context)
        self._gpus: tuple[int, ...] = ()

    def due(self, view: View) -> str:
        """When the plan cannot go on, and when GPUs came or went."""
        changed = "" if view.free_gpus == self._gpus else "the available GPUs have changed"
        return super().due(view) or changed

    def plans(self, view: View) -> list[Plan]:
        """The best answers of the program for each dp, the best first."""
        self._gpus = view.free_gpus
        closest = Closest(self.estimator)
        found: list[tuple[float, int, Plan]] = []
        best = float("inf")
        for dp in _large_to_small(self.estimator, view.free_gpus):
            scored = [
                (self._seconds(view, plan), len(found) + n, plan)
                for n, plan in enumerate(_answers(self.estimator, view, dp, closest))
            ]
            found += scored
            now = min((seconds for seconds, *_ in scored), default=float("inf"))
            if now >= best and best < float("inf"):
                break  # H3
            best = min(best, now)
        if not found:
            raise closest.error("Sailor's planner", view.free_gpus)
        return [plan for *_, plan in sorted(found, key=lambda entry: entry[:2])]

    def _seconds(self, view: View, plan: Plan) -> float:
        return iteration_s(self.estimator, view, plan)


class SailorNative(Sailor):
    """Sailor's plans, picked by Sailor's own formula."""

    name = "sailor-native"

    def _seconds(self, view: View, plan: Plan) -> float:
        timing = self.estimator.pipeline(plan, view.forecast.links(), view.slowdown)
        return float("inf") if timing is None else sailor_ns(timing) / 1e9


def _large_to_small(estimator: Estimator, free_gpus: Sequence[int]) -> list[int]:
    most = max(free_gpus, default=0)
    return [dp for dp in range(most, 0, -1) if estimator.job.global_batch % dp == 0]


def _answers(estimator: Estimator, view: View, dp: int, closest: Closest) -> Iterator[Plan]:
    """For each depth and micro-batch the program's best plan over the orders of regions, if it is legal."""
    blocks, links = estimator.job.model.blocks, view.forecast.links()
    orders = region_orders(living(estimator, view.free_gpus), links)
    room = sum(view.free_gpus[k] // dp for k in living(estimator, view.free_gpus))
    depths = [p for p in range(1, min(room, blocks) + 1) if p <= EVERY_DEPTH_UP_TO or blocks % p == 0]
    for depth in depths:
        for micro_batch in batches(estimator, dp, depth):
            program = Program(estimator, view, dp, micro_batch, depth)
            solved = [(program.solve(order), order) for order in orders]
            ranked = sorted(
                ((part.total_s(program.micro_batches), n) for n, (part, _) in enumerate(solved) if part),
            )
            for _, n in ranked[:1]:
                part, order = solved[n]
                assert part is not None
                stages, tps = [len(p.compute_s) for p in part.pieces], [p.tp for p in part.pieces]
                plan = deal(estimator, order, stages, dp, tps, micro_batch)
                if plan is not None and closest.fits(plan, view.free_gpus):
                    yield plan


def region_orders(regions: Sequence[int], links: LinkState) -> list[tuple[int, ...]]:
    """Up to `ORDERS` orders of the regions by the summed bandwidth of consecutive ones, largest first.

    Where there are too many regions to look at all orders: from every start, the widest link next.
    """

    def summed(order: tuple[int, ...]) -> float:
        return sum(
            float(min(links.bandwidth_bps[a, b], links.bandwidth_bps[b, a])) for a, b in pairwise(order)
        )

    if len(regions) <= ENUMERATE_UP_TO:
        every = list(permutations(regions))
    else:
        every = [_widest_next(start, regions, links) for start in regions]
    return sorted(every, key=lambda order: (-summed(order), order))[:ORDERS]


def _widest_next(start: int, regions: Sequence[int], links: LinkState) -> tuple[int, ...]:
    order = [start]
    while len(order) < len(regions):
        left = [k for k in regions if k not in order]
        order.append(min(left, key=lambda k: (-float(links.bandwidth_bps[order[-1], k]), k)))
    return tuple(order)


class Program:
    """Sailor's dynamic program for one dp, micro-batch and depth."""

    def __init__(self, estimator: Estimator, view: View, dp: int, micro_batch: int, depth: int) -> None:
        self._estimator, self._view, self._dp, self._depth = estimator, view, dp, depth
        count = estimator.job.micro_batches(dp, micro_batch)
        layers = stage_layers(estimator.n_layers, depth)
        assert count is not None and layers is not None
        self.micro_batches = count
        self._micro_batch = micro_batch
        cuts = np.cumsum([0, *layers])
        self._spans = (cuts[:-1], cuts[1:])
        self._columns: dict[int, list[tuple[int, list[float], list[float], list[bool]]]] = {}
        self._pieces: dict[tuple[int, int, int], Piece | None] = {}

    def solve(self, order: Sequence[int]) -> Partial | None:
        """The best dealing of all stages to the regions in this order; None without one.

        T[n][q]: the best partial plan of the first q stages on the first n regions; a region takes any
        number of the next stages, none included.
        """
        none = Partial((), 0.0, 0.0, 0.0, (-1, 0.0))
        best: dict[int, Partial] = {0: none}
        for region in order:
            reached: dict[int, Partial] = {}
            for placed, partial in best.items():
                for stages in range(self._depth - placed + 1):
                    after = self._extend(partial, region, placed, stages)
                    if after is None:
                        break  # more stages fit even less
                    other = reached.get(placed + stages)
                    if other is None or after.total_s(self.micro_batches) < other.total_s(self.micro_batches):
                        reached[placed + stages] = after
            best = reached
        return best.get(self._depth)

    def _extend(self, before: Partial, region: int, placed: int, stages: int) -> Partial | None:
        if stages == 0:
            return Partial((*before.pieces, Piece(1, (), 0.0)), *_terms(before))
        piece = self._piece(region, placed, stages)
        if piece is None:
            return None
        seconds, slowest, (last, last_s) = list(piece.compute_s), before.slowest_s, before.last
        total = before.sum_s
        if last >= 0:  # the activation counts with the stage that sends it, the gradient likewise
            down, up = self._crossing_s(last, region), self._crossing_s(region, last)
            slowest, total = max(slowest, last_s + down), total + down
            seconds[0] += up
        return Partial(
            (*before.pieces, piece), max(slowest, *seconds), total + sum(seconds),
            max(before.tail_s, piece.tail_s), (region, seconds[-1]),
        )  # fmt: skip

    def _piece(self, region: int, placed: int, stages: int) -> Piece | None:
        """`stages` stages from number `placed` on in a region: the smallest width that fits them (H2)."""
        key = (region, placed, stages)
        if key not in self._pieces:
            self._pieces[key] = next(
                (
                    Piece(tp, tuple(compute[part]), max(tail[part]))
                    for part in (slice(placed, placed + stages),)
                    for tp, compute, tail, fits in self._column(region)
                    if stages * tp * self._dp <= self._view.free_gpus[region] and all(fits[part])
                ),
                None,
            )
        return self._pieces[key]

    def _column(self, region: int) -> list[tuple[int, list[float], list[float], list[bool]]]:
        """For each width of a region: seconds of every stage, its tail, and whether it fits there (H1)."""
        if region not in self._columns:
            domain = self._estimator.cluster.domains[region]
            flight = np.minimum(self.micro_batches, self._depth - np.arange(self._depth))
            found = []
            for tp in widths(self._estimator, domain):
                if tp * self._dp > domain.gpus:
                    break
                costs = span_costs(
                    self._estimator,
                    region,
                    self._dp,
                    tp,
                    self._micro_batch,
                    float(self._view.slowdown[region]),
                )
                fits = costs.most_in_flight(domain.gpu.memory_bytes)[self._spans] >= flight
                rows = costs.compute_s[self._spans].tolist(), costs.tail_s[self._spans].tolist()
                found.append((tp, *rows, fits.tolist()))
            self._columns[region] = found
        return self._columns[region]

    def _crossing_s(self, i: int, j: int) -> float:
        links, job = self._view.forecast.links(), self._estimator.job
        size = self._dp * job.message_bytes(self._micro_batch)
        bps = float(links.bandwidth_bps[i, j])
        return float("inf") if bps <= 0 else transmission_s(size, bps) + float(links.latency_s[i, j])


def _terms(partial: Partial) -> tuple[float, float, float, tuple[int, float]]:
    return partial.slowest_s, partial.sum_s, partial.tail_s, partial.last
