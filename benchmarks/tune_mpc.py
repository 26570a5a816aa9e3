"""Choose the constants of `mpc` on training windows: every horizon x margin, the same worlds for all.

    python benchmarks/tune_mpc.py --store .twin --scenario tri-7b --scenario quad-70b

A setting is scored by the objective R that the runs reached (spec 4.2, relative to `static` in the same
world, moving and waiting included), averaged over scenarios, telemetry seeds and two weightings: pure speed
and the scenario's own. Of settings within 0.001 of the best the most reluctant one is taken: the largest
margin, then the longest horizon. The test window is never touched.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean

from ingest.units import NS_PER_S
from policy.mpc import Mpc, Tuning
from policy.objective import Objective, Outcome
from policy.protocol import Context, Policy
from policy.registry import create
from twin.cluster import World
from twin.estimate import Estimator
from twin.facts import Trigger
from twin.scenario import Setup, load, prepare
from twin.seeds import generator

HORIZONS_S = (1800.0, 3600.0, 7200.0, 14400.0)
MARGINS = (0.005, 0.01, 0.02, 0.04, 0.08)
CLOSE = 0.001
Weights = tuple[float, float, float]


@dataclass(frozen=True)
class Case:
    """One world with one weighting, and the run of `static` in it."""

    setup: Setup
    seed: int
    weights: Weights
    base: Outcome


def run(setup: Setup, policy: Policy, weights: Weights, seed: int) -> Outcome:
    """What a policy reaches over the whole window."""
    estimator = Estimator(setup.cluster, setup.job, restart_s=setup.scenario.moving.restart_s)
    control, moving = setup.scenario.control, setup.scenario.moving
    policy.reset(Context(estimator, control.period_s, moving.restart_s, weights, generator(seed, "policy")))
    totals = {}
    world = World(setup, seed=seed)
    for fact in world:
        if isinstance(fact, Trigger):
            assert fact.view is not None
            world.apply(policy.decide(fact.view).plan)
        if fact.type == "run_finished":
            totals = fact.payload["totals"]
    wall_s, iterations = setup.wan.end_ns / NS_PER_S, totals["iterations"]
    active = [c / a for c, a in zip(totals["compute_ns"], totals["active_ns"], strict=True) if a]
    if not iterations:
        return Outcome(float("inf"), 0.0, 0.0)
    return Outcome(wall_s / iterations, fmean(active), totals["egress_usd"] / iterations)


def cases(store: Path, scenarios: Sequence[str], seeds: int) -> list[Case]:
    """Every scenario's training window x seeds x weightings."""
    made = []
    for name, seed in product(scenarios, range(seeds)):
        setup = prepare(load(name), store, window="train", seed=seed)
        base = run(setup, create("static"), (1.0, 0.0, 0.0), seed)
        for weights in dict.fromkeys(((1.0, 0.0, 0.0), setup.scenario.weights.vector)):
            made.append(Case(setup, seed, weights, base))
    return made


def score(case: Case, tuning: Tuning) -> float:
    """R of `mpc` with these constants in one case."""
    reached = run(case.setup, Mpc(tuning), case.weights, case.seed)
    return Objective(case.weights, case.base).value(reached)


def main() -> None:
    """Print the table and the choice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--scenario", action="append", required=True)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    worlds = cases(arguments.store, arguments.scenario, arguments.seeds)
    print("horizon_s  margin  mean R  each case", flush=True)
    found = {}
    for horizon_s, margin in product(HORIZONS_S, MARGINS):
        each = [score(case, Tuning(horizon_s, margin)) for case in worlds]
        found[margin, horizon_s] = fmean(each)
        row = " ".join(f"{value:.4f}" for value in each)
        print(f"{horizon_s:9.0f}  {margin:6.3f}  {fmean(each):.4f}  {row}", flush=True)
    best = max(found.values())
    margin, horizon_s = max(key for key, value in found.items() if value >= best - CLOSE)
    print(f"chosen: Tuning(horizon_s={horizon_s}, margin={margin}), mean R {found[margin, horizon_s]:.4f}")


if __name__ == "__main__":
    main()
