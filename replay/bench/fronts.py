"""Pareto fronts of a benchmark: time, money and utilisation of policies over a grid of weights."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from policy.core import registry
from replay.bench.cells import Cell, RunOutcome
from replay.bench.world import BenchWorld
from replay.metrics import pareto
from replay.run.scenario_overrides import weighted
from twin.settings.scenario_file import ObjectiveWeights

Json = dict[str, Any]
EMPTY: Mapping[int, pareto.Values | None] = MappingProxyType({})
SUPPORTED = "best for each weights"
BASE = "static"
"""Policy whose plan is the unit of the objective."""
STEPS = 4
"""Default number of steps of a weight from 0 to 1."""
Grid = Sequence[ObjectiveWeights]


@dataclass(frozen=True, slots=True)
class Reach:
    """Share of the reference front that one policy reaches: means over worlds."""

    policy: str
    points: int  # runs of all worlds
    coverage: float
    volume: float  # hypervolume, as a share of the front's


@dataclass(frozen=True, slots=True)
class Front:
    """Share of the reference front that each policy reaches.

    The reference of a world are the points that no run of any policy dominates, and no fixed plan where all
    of them can be enumerated. `supported` is the reach of the reference's own best point for each weights of
    the grid (`supported_points`). It is no upper limit: runs may find other points of the front.
    """

    reaches: tuple[Reach, ...]
    points: tuple[Json, ...]
    exact: bool = False  # fixed plans were enumerated in every world
    supported: Reach | None = None

    def to_json(self) -> Json:
        """Returns the reach of each policy, and every point."""
        reaches = [asdict(reach) for reach in self.reaches]
        supported = None if self.supported is None else asdict(self.supported)
        return {"exact": self.exact, "askable": supported, "reaches": reaches, "points": list(self.points)}


def grid(steps: int = STEPS) -> tuple[ObjectiveWeights, ...]:
    """Returns the steps (steps + 1) / 2 weights on the simplex that are multiples of 1 / `steps`, highest
    efficiency first. That of efficiency is never 0, or idling would be optimal."""
    return tuple(
        ObjectiveWeights(efficiency=e / steps, utilisation=u / steps, cost=(steps - e - u) / steps)
        for e in range(steps, 0, -1)
        for u in range(steps - e, -1, -1)
    )


def cells(
    worlds: Sequence[BenchWorld], policies: Sequence[str], checkpoint: str | None, weights_grid: Grid
) -> list[Cell]:
    """Returns a cell for each weights of the grid, each policy that follows weights and each plain world."""
    following = [policy for policy in policies if registry.entry(policy).weighted]
    return [
        Cell(replace(world, scenario=weighted(world.scenario, weights)), policy, checkpoint)
        for world in worlds
        if world.plain
        for policy in following
        for weights in weights_grid
        if weights != world.scenario.weights  # already a run of the benchmark
    ]


def front_of(
    played: Sequence[tuple[str, int, RunOutcome]],
    weights_grid: Grid,
    fixed: Mapping[int, pareto.Values | None] = EMPTY,
) -> Front:
    """Returns coverage and hypervolume of each policy, from (policy, seed, outcome) of one scenario that ran
    with the weights of the grid; `fixed` holds the objectives of fixed plans in the world of a seed."""
    known = [(policy, seed, o, objectives(o)) for policy, seed, o in played]
    by_world: dict[int, dict[str, list[tuple[float, ...]]]] = {}
    for policy, seed, _, values in known:
        if values is not None:
            by_world.setdefault(seed, {}).setdefault(policy, []).append(values)
    reached: dict[str, list[Reach]] = {}
    supported: list[Reach] = []
    for seed, world in by_world.items():
        every = np.array([values for points in world.values() for values in points])
        fixed_points = fixed.get(seed)
        reference = pareto.front(every if fixed_points is None else np.concatenate([every, fixed_points]))
        for policy, points in world.items():
            reached.setdefault(policy, []).append(_reach(policy, np.array(points), reference))
        if BASE in world and weights_grid:  # its first run has the scenario's own weights, as all of its runs
            supported.append(
                _reach(SUPPORTED, supported_points(reference, world[BASE][0], weights_grid), reference)
            )
    return Front(
        tuple(_mean(found) for found in reached.values()),
        tuple(_point(policy, seed, o) for policy, seed, o, values in known if values),
        all(fixed.get(seed) is not None for seed in by_world),
        _mean(supported) if supported else None,
    )


def supported_points(reference: pareto.Values, base: Sequence[float], weights_grid: Grid) -> pareto.Values:
    """Returns the points of `reference` (m, 3) that are optimal for some weights of the grid, (n, 3).

    A weighted sum of objectives is optimal on the convex hull of a front, never at the points inside, however
    good (Das and Dennis 1997, section 2). `base` is the static plan's point, the unit of the objective
    (`policy.core.objective`).
    """
    gain = 1 - reference[:, 0] / base[0]
    usd = reference[:, 1] / base[1] if base[1] > 0 else reference[:, 1]
    worth = np.array([weights.vector for weights in weights_grid]) @ np.stack([gain, -reference[:, 2], -usd])
    return np.asarray(reference[np.unique(worth.argmax(axis=1))])


def _reach(policy: str, own: pareto.Values, reference: pareto.Values) -> Reach:
    return Reach(policy, len(own), pareto.coverage(own, reference), pareto.volume_ratio(own, reference))


def _mean(found: Sequence[Reach]) -> Reach:
    """Returns the mean reach of one policy over worlds."""
    return Reach(
        found[0].policy,
        sum(reach.points for reach in found),
        float(np.mean([reach.coverage for reach in found])),
        float(np.mean([reach.volume for reach in found])),
    )


def objectives(outcome: RunOutcome) -> tuple[float, float, float] | None:
    """Returns seconds and USD per token and negative utilisation, all minimised; None without tokens."""
    if outcome.kpis is None:
        return None
    kpis = outcome.kpis
    if kpis.time_per_token_s is None or kpis.usd_per_token is None or kpis.utilisation is None:
        return None
    return (kpis.time_per_token_s, kpis.usd_per_token, -kpis.utilisation)


def _point(policy: str, seed: int, outcome: RunOutcome) -> Json:
    values = objectives(outcome)
    assert values is not None
    seconds, usd, negative = values
    return {
        "policy": policy, "seed": seed, "run": outcome.run_id, "time_per_token_s": seconds,
        "usd_per_token": usd, "utilisation": -negative,
    }  # fmt: skip
