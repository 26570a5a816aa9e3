"""`sailor`: Sailor-style planning; even stages, a dynamic program over regions, dp from large to small.

Re-implementation of the planner of Sailor (Strati et al., SOSP 2025), with the paper's numbering of
heuristics: H1 tensor parallelism only inside a node; H2 the smallest width that fits; H3 dp from large to
small until throughput no longer rises; H5 data parallelism inside a region, pipeline across. A region is a
domain. The program minimises Sailor's own iteration time,

    T = (m - 1) max_i (comp_i + comm_i) + sum_i (comp_i + comm_i) + max_i (update_i + sync_i),

for each depth, micro-batch and dp over orders of regions. `sailor` ranks the program's solutions by the
twin's estimate, `sailor-native` by Sailor's formula. Both take memory from the twin. Adapted: the stages of a
domain share one width. It plans again when the GPUs change, as Sailor does.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations

from policy.core.protocol import Context
from policy.kit.even_stages import ClosestFit, domains_with_gpus, even_stage_plan, micro_batch_sizes
from policy.kit.planner_base import Planner, iteration_s
from policy.kit.sailor_program import SailorProgram
from twin.core.domain import LinkState
from twin.core.plan import Plan
from twin.core.view import View
from twin.estimation.estimator import Estimator
from twin.pipeline.other_estimators import sailor_ns

ORDERS = 12
"""Orders of regions that are tried, those with the largest summed bandwidth."""
ENUMERATE_UP_TO = 6
"""Regions up to which all orders are compared for that."""
EVERY_DEPTH_UP_TO = 12
"""Depths up to which all are tried; deeper ones only if they divide the blocks."""


class Sailor(Planner):
    """Ranks Sailor's plans by the twin's estimate."""

    name = "sailor"
    native = False

    def reset(self, context: Context) -> None:
        """Starts a run."""
        super().reset(context)
        self._gpus: tuple[int, ...] = ()

    def due(self, view: View) -> str:
        """Returns a reason when the plan cannot go on, or the available GPUs have changed."""
        changed = "" if view.free_gpus == self._gpus else "the available GPUs have changed"
        return super().due(view) or changed

    def plans(self, view: View) -> list[Plan]:
        """Returns the best solutions of the program for each dp, the best first."""
        self._gpus = view.free_gpus
        closest = ClosestFit(self.estimator)
        found: list[tuple[float, int, Plan]] = []
        best = float("inf")
        for dp in _large_to_small(self.estimator, view.free_gpus):
            scored = [
                (self._seconds(view, plan), len(found) + n, plan)
                for n, plan in enumerate(_solutions(self.estimator, view, dp, closest))
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
    """Ranks Sailor's plans by Sailor's own formula."""

    name = "sailor-native"

    def _seconds(self, view: View, plan: Plan) -> float:
        timing = self.estimator.pipeline(plan, view.forecast.links(), view.slowdown)
        return float("inf") if timing is None else sailor_ns(timing) / 1e9


def _large_to_small(estimator: Estimator, free_gpus: Sequence[int]) -> list[int]:
    most = max(free_gpus, default=0)
    return [dp for dp in range(most, 0, -1) if estimator.job.global_batch % dp == 0]


def _solutions(estimator: Estimator, view: View, dp: int, closest: ClosestFit) -> Iterator[Plan]:
    """Yields for each depth and micro-batch the program's best plan over the orders of regions, if it is
    legal."""
    blocks, links = estimator.job.model.blocks, view.forecast.links()
    orders = region_orders(domains_with_gpus(estimator, view.free_gpus), links)
    most = sum(view.free_gpus[k] // dp for k in domains_with_gpus(estimator, view.free_gpus))
    depths = [p for p in range(1, min(most, blocks) + 1) if p <= EVERY_DEPTH_UP_TO or blocks % p == 0]
    for depth in depths:
        for micro_batch in micro_batch_sizes(estimator, dp, depth):
            program = SailorProgram(estimator, view, dp, micro_batch, depth)
            solved = [(program.solve(order), order) for order in orders]
            ranked = sorted((found.seconds, n) for n, (found, _) in enumerate(solved) if found)
            for _, n in ranked[:1]:
                found, order = solved[n]
                assert found is not None
                plan = even_stage_plan(estimator, order, found.stages, dp, found.widths, micro_batch)
                if plan is not None and closest.fits(plan, view.free_gpus):
                    yield plan


def region_orders(regions: Sequence[int], links: LinkState) -> list[tuple[int, ...]]:
    """Returns up to `ORDERS` orders of the regions by the summed bandwidth of consecutive ones, largest
    first.

    With too many regions for all orders: from every start, the region over the widest link next.
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
