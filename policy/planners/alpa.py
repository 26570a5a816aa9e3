"""`alpa`: Alpa-style inter- and intra-operator planning; a dynamic program over layer clusters and submeshes.

Re-implementation of Alpa (Zheng et al., OSDI 2022, section 5 and algorithm 1). Layers are clustered into
blocks of equal FLOPs; a stage is a run of blocks on a submesh; for every limit t_max on the cost of a stage
the program minimises the sum of stage costs, and the solution with the least

    sum_i t_i + (B - 1) max_i t_i

wins, with B micro-batches; limits are tried in ascending order until t_max B reaches the best value. The cost
of a stage is its computation with tensor parallelism and, once in B micro-batches, its gradient
synchronisation: for uniform Transformer blocks Alpa's integer program reduces to that. Communication between
stages is ignored, as in Alpa; all devices are used; the mesh covers the domains in index order.

Adapted to the plans of the twin: dp is the same everywhere, and a domain is filled with equal stages of one
width. `alpa` ranks all solutions by the twin's estimate, which includes links; `alpa-native` by Alpa's own
objective.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from policy.kit.even_stages import ClosestFit, domains_with_gpus, tensor_widths
from policy.kit.planner_base import Planner, fastest
from policy.kit.stage_cost_tables import DomainStages, domain_stages
from twin.core.plan import Plan
from twin.core.transformer import Transformer
from twin.core.view import View
from twin.estimation.estimator import Estimator

Float = NDArray[np.float64]
Int = NDArray[np.int64]
BLOCKS = 24
"""Most clusters of layers, unless there are many domains; Alpa's examples take 8 to 16."""
GAP_S = 1e-6
"""Limits closer together than this count as one (Alpa's own constant)."""


@dataclass(frozen=True, slots=True)
class StagePartition:
    """First block and option of each domain, and Alpa's objective in seconds."""

    starts: tuple[int, ...]
    options: tuple[int, ...]
    value_s: float


class Alpa(Planner):
    """Ranks Alpa's solutions by the twin's estimate."""

    name = "alpa"

    def plans(self, view: View) -> Sequence[Plan]:
        """Returns every legal solution, the fastest by the twin's estimate first."""
        return fastest(self.estimator, view, [plan for _, plan in self._solved(view)])

    def _solved(self, view: View) -> list[tuple[float, Plan]]:
        closest = ClosestFit(self.estimator)
        found = [
            (value, plan)
            for value, plan in _every_solution(self.estimator, view)
            if closest.fits(plan, view.free_gpus)
        ]
        if not found:
            raise closest.error("Alpa's program", view.free_gpus)
        return found


class AlpaNative(Alpa):
    """Ranks Alpa's solutions by Alpa's own objective."""

    name = "alpa-native"

    def plans(self, view: View) -> Sequence[Plan]:
        """Returns every legal solution, the one with the least objective first."""
        solved = self._solved(view)
        ranked = sorted(range(len(solved)), key=lambda n: (solved[n][0], n))
        return list(dict.fromkeys(solved[n][1] for n in ranked))


def _every_solution(estimator: Estimator, view: View) -> Iterator[tuple[float, Plan]]:
    """Yields Alpa's objective and plan for every dp and micro-batch, over all limits that are tried."""
    job, order = estimator.job, domains_with_gpus(estimator, view.free_gpus)
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
    """Returns cut points 0 = p_0 < ... < p_L = N of at most `most` blocks with FLOPs as equal as layers
    allow."""
    flops = np.cumsum([0.0] + [layer.forward_flops_per_sequence for layer in model.layers()])
    wanted = flops[-1] * np.arange(1, most) / most
    inside = {int(np.abs(flops - want).argmin()) for want in wanted} - {0, len(flops) - 1}
    return (0, *sorted(inside), len(flops) - 1)


def _options(
    estimator: Estimator, view: View, k: int, dp: int, micro_batch: int, count: int, points: Sequence[int]
) -> list[DomainStages]:
    """Returns the costs of domain `k` under every width, with as many stages as it holds."""
    found = []
    for tp in tensor_widths(estimator, estimator.cluster.domains[k]):
        stages = min(view.free_gpus[k] // (dp * tp), estimator.n_layers)
        if stages:
            slow = float(view.slowdown[k])
            found.append(domain_stages(estimator, k, dp, tp, stages, micro_batch, count, points, slow))
    return found


def solutions(tables: Sequence[Sequence[DomainStages]], micro_batches: int) -> list[StagePartition]:
    """Returns the best solution under each limit on stage costs that can still win (Alpa's outer loop).

    `tables[n]`: the options of the n-th domain. The last solution has the least objective.
    """
    if any(not options for options in tables):
        return []
    limits = _limits(tables)
    low, high = 0, len(limits)
    while low < high:  # skip limits under which nothing is feasible
        middle = (low + high) // 2
        low, high = (low, middle) if solve(tables, limits[middle], micro_batches) else (middle + 1, high)
    found: list[StagePartition] = []
    for limit in limits[low:]:
        if found and limit * micro_batches >= found[-1].value_s:
            break
        solution = solve(tables, limit, micro_batches)
        if solution and (not found or solution.value_s < found[-1].value_s):
            found.append(solution)
    return found


def _limits(tables: Sequence[Sequence[DomainStages]]) -> list[float]:
    """Returns the distinct stage costs in ascending order, with those within `GAP_S` of each other merged."""
    every = np.unique(np.concatenate([option.slowest.ravel() for options in tables for option in options]))
    limits: list[float] = []
    for cost in every[np.isfinite(every)].tolist():
        if not limits or cost - limits[-1] >= GAP_S:
            limits.append(cost)
        else:
            limits[-1] = cost
    return limits


def solve(
    tables: Sequence[Sequence[DomainStages]], limit_s: float, micro_batches: int
) -> StagePartition | None:
    """Returns the best solution under one limit, by dynamic programming from the last domain backwards.

    f[s][a] is the least sum of stage costs of blocks a.. in s stages on this domain and those after it.
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
    starts, picked, slowest, block = [], [], 0.0, 0
    for options, taken in zip(tables, reversed(choice), strict=True):
        which, until = int(taken[stages][0][block]), int(taken[stages][1][block])
        starts.append(block)
        picked.append(which)
        slowest = max(slowest, float(options[which].slowest[block, until]))
        block, stages = until, stages - options[which].stages
    return StagePartition(tuple(starts), tuple(picked), total + (micro_batches - 1) * slowest)


def _step(
    options: Sequence[DomainStages], behind: dict[int, Float], limit_s: float
) -> tuple[dict[int, Float], dict[int, tuple[Int, Int]]]:
    """Returns the least sums with one more domain, and the option and the last block that give them."""
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
    """Drops sums that fewer stages also reach: those leave more memory to the stages before them."""
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
    tables: Sequence[Sequence[DomainStages]],
    points: Sequence[int],
    solution: StagePartition,
    dp: int,
    micro_batch: int,
) -> Plan:
    """Returns the plan of a solution."""
    cuts = [points[a] for a in solution.starts] + [points[-1]]
    counts = [b - a for a, b in pairwise(cuts)]
    chosen = [options[n] for options, n in zip(tables, solution.options, strict=True)]
    return estimator.make(order, counts, dp, [(one.tp, one.stages) for one in chosen], micro_batch)
