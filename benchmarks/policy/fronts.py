"""Fronts of time, utilisation and egress that `mpc` and `hippo` reach over a grid of weights.

    python -m benchmarks.policy.fronts --store .twin/results --scenario octo-175b [--dataset synthetic-tri]
    [--steps 4] [--policies mpc,hippo] [--beside static,single] [--points]

A line a policy: coverage and hypervolume (`replay.bench.fronts`; the reference are all runs made here and all
fixed plans where they can be enumerated), and its least egress per token at a time no worse than that of
static. With `--points` also every point of the reference and who covers it. Seed 0, the test window; finished
runs of the same code are taken from the store.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from replay.bench import fronts
from replay.bench.cells import Cell, fixed_plan_values, run_cell
from replay.bench.world import BenchWorld
from replay.metrics import pareto
from replay.run import scenario_overrides

Points = dict[str, list[tuple[float, float, float]]]


@dataclass(frozen=True)
class Measured:
    """The front of one scenario, the points of each policy, and those of all fixed plans if they are few."""

    front: fronts.Front
    points: Points
    fixed: pareto.Values | None

    @property
    def reference(self) -> pareto.Values:
        """What nobody beats in all three objectives."""
        every = np.array([point for found in self.points.values() for point in found])
        return pareto.front(every if self.fixed is None else np.concatenate([every, self.fixed]))


def measured(
    store: Path, world: BenchWorld, asked: Sequence[str], beside: Sequence[str], steps: int
) -> Measured:
    """Runs the policies `asked` at every weights of the grid and those `beside` at the scenario's own."""
    grid = fronts.grid(steps)
    cells = [Cell(world, policy) for policy in (*beside, *asked)] + fronts.cells([world], asked, None, grid)
    played = [(cell.policy, world.seed, run_cell(store, cell)) for cell in cells]
    points: Points = {}
    for policy, _, outcome in played:
        if (values := fronts.objectives(outcome)) is not None:
            points.setdefault(policy, []).append(values)
    fixed = fixed_plan_values(store, world)
    return Measured(fronts.front_of(played, grid, {world.seed: fixed}), points, fixed)


def least_egress(found: Measured, policy: str) -> float | None:
    """Least egress per token of a policy relative to static's, minus 1, at a time no worse than static's."""
    seconds, usd, _ = found.points[fronts.BASE][0]
    kept = [point[1] / usd - 1 for point in found.points.get(policy, ()) if point[0] <= seconds]
    return min(kept, default=None)


def lines(found: Measured, policies: Sequence[str]) -> list[str]:
    """A line for each policy."""
    rows = []
    for reach in found.front.reaches:
        if reach.policy in policies:
            saved = least_egress(found, reach.policy)
            text = "none" if saved is None else f"{saved:+.1%}"
            rows.append(
                f"{reach.policy:8s} coverage {reach.coverage:6.1%}  hypervolume {reach.volume:.3f}  "
                f"least egress no slower than static {text}"
            )
    return rows


def reference_lines(found: Measured, policies: Sequence[str]) -> list[str]:
    """A line for each point of the reference: its figures, and the policies that cover it."""
    rows = []
    for point in found.reference:
        covered = [
            policy
            for policy in policies
            if pareto.coverage(np.array(found.points[policy]), point[None]) == 1.0
        ]
        seconds, usd, negative = point.tolist()
        rows.append(
            f"  {1e6 * seconds:10.3f} us  {1e9 * usd:10.3f} nUSD  utilisation {-negative:.3f}  "
            f"covered by {', '.join(covered) or 'none'}"
        )
    return rows


def main() -> None:
    """Runs, or reads from the store, and prints."""
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument("--store", type=Path, default=Path(".twin/results"))
    parser.add_argument("--scenario", default="octo-175b")
    parser.add_argument("--dataset", default=None)
    parser.add_argument("--steps", type=int, default=fronts.STEPS, help="parts of a weight from 0 to 1")
    parser.add_argument("--policies", default="mpc,hippo")
    parser.add_argument("--beside", default="static,single", help="policies that run once, for the reference")
    parser.add_argument("--points", action="store_true", help="print the reference, too")
    options = parser.parse_args()
    asked = options.policies.split(",")
    beside = list(dict.fromkeys([fronts.BASE, *options.beside.split(",")]))
    world = BenchWorld.of(scenario_overrides.scenario(options.scenario), options.dataset)
    found = measured(options.store, world, asked, beside, options.steps)
    exact = "all fixed plans, and runs" if found.fixed is not None else "runs"
    print(f"{options.scenario}  {options.dataset or ''}  reference: {len(found.reference)} points of {exact}")
    print("\n".join(lines(found, asked)))
    if options.points:
        print("\n".join(reference_lines(found, asked)))


if __name__ == "__main__":
    main()
