"""Fronts of a benchmark: what policies reach in time, money and utilisation when their weights vary."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from policy.core import registry
from replay.metrics import pareto
from replay.bench.cells import Cell, Outcome
from replay.bench.bench_world import World
from replay.run.scenario_overrides import weighted
from twin.settings.scenario_file import Weights

Json = dict[str, Any]
EMPTY: Mapping[int, pareto.Values | None] = MappingProxyType({})
ASKABLE = "best for each weights"
BASE = "static"
"""The policy whose plan is the unit of the objective."""
STEPS = 4
"""Into so many parts a grid divides the weights, unless told otherwise."""
Grid = Sequence[Weights]


@dataclass(frozen=True, slots=True)
class Reach:
    """How much of the reference front one policy reaches: means over worlds."""

    policy: str
    points: int  # runs of all worlds
    coverage: float
    volume: float  # hypervolume, as a share of the front's


@dataclass(frozen=True, slots=True)
class Front:
    """The reference front is, in each world, what no run of any policy beats, and no fixed plan where all of
    them can be enumerated. `askable` is what somebody reaches who finds the best point for each weights
    of the grid (`asked_for`): not the most that can be reached, a run may find another point of the front.
    """

    reaches: tuple[Reach, ...]
    points: tuple[Json, ...]
    exact: bool = False  # fixed plans were enumerated in every world
    askable: Reach | None = None

    def to_json(self) -> Json:
        """What each policy reaches, and every point."""
        reaches = [asdict(reach) for reach in self.reaches]
        askable = None if self.askable is None else asdict(self.askable)
        return {"exact": self.exact, "askable": askable, "reaches": reaches, "points": list(self.points)}


def grid(steps: int = STEPS) -> tuple[Weights, ...]:
    """Multiples of 1 / `steps` on the simplex, steps (steps + 1) / 2 of them, the purest in efficiency first;
    that of efficiency is never 0, or idling would win."""
    return tuple(
        Weights(efficiency=e / steps, utilisation=u / steps, cost=(steps - e - u) / steps)
        for e in range(steps, 0, -1)
        for u in range(steps - e, -1, -1)
    )


def cells(
    worlds: Sequence[World], policies: Sequence[str], checkpoint: str | None, asked: Grid
) -> list[Cell]:
    """The weights that are `asked` for, for every policy that follows the weights, in every plain world."""
    following = [policy for policy in policies if registry.entry(policy).weighted]
    return [
        Cell(replace(world, scenario=weighted(world.scenario, weights)), policy, checkpoint)
        for world in worlds
        if world.plain
        for policy in following
        for weights in asked
        if weights != world.scenario.weights  # that run is there already
    ]


def front_of(
    played: Sequence[tuple[str, int, Outcome]],
    asked: Grid,
    fixed: Mapping[int, pareto.Values | None] = EMPTY,
) -> Front:
    """Coverage and hypervolume of each policy, from (policy, seed, outcome) of one scenario that was run
    with the weights `asked`; `fixed` is what fixed plans reach in the world of a seed."""
    known = [(policy, seed, o, objectives(o)) for policy, seed, o in played]
    by_world: dict[int, dict[str, list[tuple[float, ...]]]] = {}
    for policy, seed, _, values in known:
        if values is not None:
            by_world.setdefault(seed, {}).setdefault(policy, []).append(values)
    reached: dict[str, list[Reach]] = {}
    askable: list[Reach] = []
    for seed, world in by_world.items():
        everybody = np.array([values for points in world.values() for values in points])
        beyond = fixed.get(seed)
        reference = pareto.front(everybody if beyond is None else np.concatenate([everybody, beyond]))
        for policy, points in world.items():
            reached.setdefault(policy, []).append(_reach(policy, np.array(points), reference))
        if BASE in world and asked:  # its first run has the scenario's own weights, as all of its runs
            askable.append(_reach(ASKABLE, asked_for(reference, world[BASE][0], asked), reference))
    return Front(
        tuple(_mean(found) for found in reached.values()),
        tuple(_point(policy, seed, o) for policy, seed, o, values in known if values),
        all(fixed.get(seed) is not None for seed in by_world),
        _mean(askable) if askable else None,
    )


def asked_for(reference: pareto.Values, base: Sequence[float], asked: Grid) -> pareto.Values:
    """The points of `reference` (m, 3) that are worth most for some of the weights `asked`, (n, 3).

    A sum of weighted objectives has its best value on the convex hull of a front, so that whoever maximises
    it is never asked for the points inside, however good (Das and Dennis 1997, section 2). `base` is the
    static plan's point, the unit of the objective (`policy.objective`).
    """
    gain = 1 - reference[:, 0] / base[0]
    usd = reference[:, 1] / base[1] if base[1] > 0 else reference[:, 1]
    worth = np.array([weights.vector for weights in asked]) @ np.stack([gain, -reference[:, 2], -usd])
    return np.asarray(reference[np.unique(worth.argmax(axis=1))])


def _reach(policy: str, own: pareto.Values, reference: pareto.Values) -> Reach:
    return Reach(policy, len(own), pareto.coverage(own, reference), pareto.volume_ratio(own, reference))


def _mean(found: Sequence[Reach]) -> Reach:
    """One policy's reach over worlds."""
    return Reach(
        found[0].policy,
        sum(reach.points for reach in found),
        float(np.mean([reach.coverage for reach in found])),
        float(np.mean([reach.volume for reach in found])),
    )


def objectives(outcome: Outcome) -> tuple[float, float, float] | None:
    """Seconds and USD per token and negative utilisation: all to be small. None where nothing was trained."""
    if outcome.kpis is None:
        return None
    kpis = outcome.kpis
    if kpis.time_per_token_s is None or kpis.usd_per_token is None or kpis.utilisation is None:
        return None
    return (kpis.time_per_token_s, kpis.usd_per_token, -kpis.utilisation)


def _point(policy: str, seed: int, outcome: Outcome) -> Json:
    values = objectives(outcome)
    assert values is not None
    seconds, usd, negative = values
    return {
        "policy": policy, "seed": seed, "run": outcome.run_id, "time_per_token_s": seconds,
        "usd_per_token": usd, "utilisation": -negative,
    }  # fmt: skip
