"""`alpa`: Alpa-style inter- and intra-operator planning; a dynamic program over layer clusters and submeshes.

Re-implementation of Alpa (Zheng et al., OSDI 2022, section 5 and algorithm 1; recipe 6). Layers are clustered
into blocks of equal FLOPs; a stage is a run of blocks on a submesh; for every limit t_max on the cost of a
stage the program minimises the sum of stage costs, and the solution with the least

    sum_i t_i + (B - 1) max_i t_i

wins, B micro-batches; limits are tried in ascending order until t_max B reaches the best value. The cost of a
stage is its computation with tensor parallelism and, once in B micro-batches, its gradient synchronisation:
for uniform Transformer blocks Alpa's integer program comes down to that. Communication between stages is
neglected, as Alpa does; all devices are used; the mesh is laid over the domains in index order.

Adapted to what a plan can say: dp is the same everywhere, and a domain holds equal stages of one width that
fill it. `alpa` lets the referee, which sees links, pick among all solutions; `alpa-native` keeps Alpa's own
value.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy.kit.even_stages import Closest, living, widths
from policy.kit.planner_base import Planner, fastest
from policy.kit.stage_cost_tables import Filling, filling
from twin.estimate.estimator import Estimator
from twin.core.plan import Plan
from twin.core.transformer import Transformer
from twin.core.view import View

Float = NDArray[np.float64]
Int = NDArray[np.int64]
BLOCKS = 24
"""Clusters of layers at most, plus what domains and stages need; Alpa's examples take 8 to 16."""
GAP_S = 1e-6
"""Limits closer together than this are one (Alpa's own constant)."""


@dataclass(frozen=True, slots=True)
class Solution:
    """Where each domain's blocks begin, what fills it, and Alpa's value of it in seconds."""

    starts: tuple[int, ...]
    options: tuple[int, ...]
    value_s: float


class Alpa(Planner):
    """Alpa's solutions, graded by the referee."""

    name = "alpa"

    def plans(self, view: View) -> Sequence[Plan]:
        """Every solution that is legal, the fastest by the referee first."""
        return fastest(self.estimator, view, [plan for _, plan in self._solved(view)])

    def _solved(self, view: View) -> list[tuple[float, Plan]]:
        closest = Closest(self.estimator)
        found = [
            (value, plan)
            for value, plan in _every_solution(self.estimator, view)
            if closest.fits(plan, view.free_gpus)
        ]
        if not found:
            raise closest.error("Alpa's program", view.free_gpus)
        return found


class AlpaNative(Alpa):
    """Alpa's solutions by Alpa's own value."""

    name = "alpa-native"

    def plans(self, view: View) -> Sequence[Plan]:
        """Every solution that is legal, the one with the least own value first."""
        solved = self._solved(view)
        ranked = sorted(range(len(solved)), key=lambda n: (solved[n][0], n))
        return list(dict.fromkeys(solved[n][1] for n in ranked))


def _every_solution(estimator: Estimator, view: View) -> Iterator[tuple[float, Plan]]:
    """Alpa's value and plan for every dp and micro-batch, over all limits that the loop looks at."""
    job, order = estimator.job, living(estimator, view.free_gpus)
    if not order:
        return
    for dp in range(1, min(view.free_gpus[k] for k in order) + 1):
        for micro_batch in job.micro_batches_allowed:
            count = job.micro_batches(dp, micro_batch)
            if count is None:
                continue
            points = block_points(job.model, max(BLOCKS, 4 * len(order)))
            tables = [_options(estimator, view, k, dp, micro_batch, count, points) for k in order]
            for solution in solutions(tables, count):
                plan = _plan(estimator, order, tables, points, solution, dp, micro_batch)
                yield solution.value_s, plan


@lru_cache(maxsize=64)
def block_points(model: Transformer, most: int) -> tuple[int, ...]:
    """Cut points 0 = p_0 < ... < p_L = N of at most `most` blocks with FLOPs as equal as layers allow."""
    flops = np.cumsum([0.0] + [layer.forward_flops_per_sequence for layer in model.layers()])
    wanted = flops[-1] * np.arange(1, most) / most
    inside = {int(np.abs(flops - want).argmin()) for want in wanted} - {0, len(flops) - 1}
    return (0, *sorted(inside), len(flops) - 1)


def _options(
    estimator: Estimator, view: View, k: int, dp: int, micro_batch: int, count: int, points: Sequence[int]
) -> list[Filling]:
    """Every width of domain `k` with as many stages as it holds."""
    found = []
    for tp in widths(estimator, estimator.cluster.domains[k]):
        stages = min(view.free_gpus[k] // (dp * tp), estimator.n_layers)
        if stages:
            slow = float(view.slowdown[k])
            found.append(filling(estimator, k, dp, tp, stages, micro_batch, count, points, slow))
    return found


def solutions(tables: Sequence[Sequence[Filling]], micro_batches: int) -> list[Solution]:
    """Alpa's outer loop: the best solution under each limit on stage costs that can still win.

    `tables[n]`: the options of the n-th domain. The last one has the least value.
    """
    if any(not options for options in tables):
        return []
    limits = _limits(tables)
    low, high = 0, len(limits)
    while low < high:  # more is possible under a larger limit: skip those under which nothing is
        middle = (low + high) // 2
        low, high = (low, middle) if solve(tables, limits[middle], micro_batches) else (middle + 1, high)
    found: list[Solution] = []
    for limit in limits[low:]:
        if found and limit * micro_batches >= found[-1].value_s:
            break
        solution = solve(tables, limit, micro_batches)
        if solution and (not found or solution.value_s < found[-1].value_s):
            found.append(solution)
    return found


def _limits(tables: Sequence[Sequence[Filling]]) -> list[float]:
    """The distinct stage costs in ascending order, those within `GAP_S` of the last one skipped."""
    every = np.unique(np.concatenate([option.slowest.ravel() for options in tables for option in options]))
    limits: list[float] = []
    for cost in every[np.isfinite(every)].tolist():
        if not limits or cost - limits[-1] >= GAP_S:
            limits.append(cost)
        else:
            limits[-1] = cost
    return limits


def solve(tables: Sequence[Sequence[Filling]], limit_s: float, micro_batches: int) -> Solution | None:
    """The program for one limit: from the last domain backwards, over stages behind and the first block.

    f[s][a] is the least sum of stage costs of blocks a.. on the domains from here on in s stages.
    """
    size = len(tables[0][0].total)
    start = np.full(size, np.inf)
    start[-1] = 0.0
    best: dict[int, Float] = {0: start}
    choice: list[dict[int, tuple[Int, Int]]] = []
    for options in reversed(tables):
        best, taken = _step(options, best, limit_s)
        choice.append(taken)
    values = [(float(row[0]), stages) for stages, row in best.items() if np.isfinite(row[0])]
    if not values:
        return None
    total, stages = min(values)
    starts, picked, slowest, at = [], [], 0.0, 0
    for options, taken in zip(tables, reversed(choice), strict=True):
        which, until = int(taken[stages][0][at]), int(taken[stages][1][at])
        starts.append(at)
        picked.append(which)
        slowest = max(slowest, float(options[which].slowest[at, until]))
        at, stages = until, stages - options[which].stages
    return Solution(tuple(starts), tuple(picked), total + (micro_batches - 1) * slowest)


def _step(
    options: Sequence[Filling], behind: dict[int, Float], limit_s: float
) -> tuple[dict[int, Float], dict[int, tuple[Int, Int]]]:
    """One domain more: the least sums, and the option and the end that give them."""
    best: dict[int, Float] = {}
    taken: dict[int, tuple[Int, Int]] = {}
    for n, option in enumerate(options):
        allowed = np.where(option.slowest <= limit_s, option.total, np.inf)
        for stages, rest in behind.items():
            sums = np.where(option.successors >= stages, allowed, np.inf) + rest
            until = sums.argmin(axis=1)
            least = sums[np.arange(len(sums)), until]
            if not np.isfinite(least).any():
                continue
            here = stages + option.stages
            if here not in best:
                best[here], taken[here] = np.full(len(least), np.inf), (until * 0, until * 0)
            better = least < best[here]
            best[here] = np.where(better, least, best[here])
            taken[here] = np.where(better, n, taken[here][0]), np.where(better, until, taken[here][1])
    return _undominated(best), taken


def _undominated(best: dict[int, Float]) -> dict[int, Float]:
    """Sums that are not beaten by fewer stages: those leave more memory to the stages in front of them."""
    kept: dict[int, Float] = {}
    least: Float | None = None
    for stages in sorted(best):
        row = best[stages] if least is None else np.where(best[stages] < least, best[stages], np.inf)
        if np.isfinite(row).any():
            kept[stages] = row
            least = row if least is None else np.minimum(least, row)
    return kept


def _plan(
    estimator: Estimator,
    order: Sequence[int],
    tables: Sequence[Sequence[Filling]],
    points: Sequence[int],
    solution: Solution,
    dp: int,
    micro_batch: int,
) -> Plan:
    """The plan of a solution."""
    cuts = [points[a] for a in solution.starts] + [points[-1]]
    counts = [b - a for a, b in pairwise(cuts)]
    chosen = [options[n] for options, n in zip(tables, solution.options, strict=True)]
    return estimator.make(order, counts, dp, [(one.tp, one.stages) for one in chosen], micro_batch)
