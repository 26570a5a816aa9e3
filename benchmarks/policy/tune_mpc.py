"""Compare the constants of `mpc` on training windows: every horizon x margin, in the same worlds.

    python -m benchmarks.policy.tune_mpc --store .twin --scenario tri-7b --scenario quad-70b --scenario storm

The training window is cut into runs of three hours, since the first plan of a run is worth as much as all
that follows. A setting is scored by the objective R that the runs reached (relative to `static` in
the same world, moving and waiting included), averaged over runs, then over scenarios. Of settings within
0.001 of the best the most reluctant one is named: the largest margin, then the longest horizon. The test
window is never touched.
"""

import argparse
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean

from benchmarks.played import played
from ingest.core.units import NS_PER_S
from policy.baselines.mpc import Mpc, Tuning
from policy.core.objective import Objective, PlanOutcome
from policy.core.protocol import Policy
from policy.core.registry import create
from twin.filters import long_run
from twin.filters.history import warm
from twin.scenario.prepare import PreparedScenario, load, prepare, telemetry_model

HORIZONS_S = (1800.0, 3600.0, 7200.0)
MARGINS = (0.01, 0.02, 0.04, 0.08)
RUN_S = 3 * 3600.0
MOST_RUNS = 4
CLOSE = 0.001
Weights = tuple[float, float, float]


@dataclass(frozen=True)
class Case:
    """One world, the weights of its scenario, and what `static` reaches in it."""

    setup: PreparedScenario
    weights: Weights
    base: PlanOutcome


def run(setup: PreparedScenario, policy: Policy, weights: Weights) -> PlanOutcome:
    """What a policy reaches over the whole window, which knows the past before it; the iteration under way
    counts by its share."""
    reached = played(setup, policy, weights)
    iterations, totals = reached.iterations, reached.totals
    active = [c / a for c, a in zip(totals["compute_ns"], totals["active_ns"], strict=True) if a]
    if not iterations:
        return PlanOutcome(float("inf"), 0.0, 0.0)
    wall_s = setup.wan.end_ns / NS_PER_S
    return PlanOutcome(wall_s / iterations, fmean(active), totals["egress_usd"] / iterations)


def progress(setup: PreparedScenario, policy: Policy, weights: Weights) -> float:
    """Iterations of a policy over the whole window, as `run` counts them."""
    return played(setup, policy, weights).iterations


def cases(store: Path, name: str) -> list[Case]:
    """The first stretches of a scenario's training window, each a run of its own; filters know the past."""
    setup = prepare(load(name), store, window="train")
    length = min(round(RUN_S * NS_PER_S), setup.wan.end_ns)
    made = []
    for start in range(0, setup.wan.end_ns - length + 1, length)[:MOST_RUNS]:
        telemetry = telemetry_model(setup.scenario)
        past = warm(setup.filters, setup.wan, start, telemetry)
        known = long_run.before(setup.wan, start, telemetry)
        part = replace(setup, wan=setup.wan.window(start, start + length), start=past, history=known)
        weights = setup.scenario.weights.vector
        made.append(Case(part, weights, run(part, create("static"), weights)))
    return made


def score(case: Case, tuning: Tuning) -> float:
    """R of `mpc` with these constants in one case."""
    return Objective(case.weights, case.base).value(run(case.setup, Mpc(tuning), case.weights))


def main() -> None:
    """Print the table and the choice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--scenario", action="append", required=True)
    arguments = parser.parse_args()
    worlds = {name: cases(arguments.store, name) for name in arguments.scenario}
    print("horizon_s  margin  mean R  " + "  ".join(worlds), flush=True)
    found = {}
    for horizon_s, margin in product(HORIZONS_S, MARGINS):
        tuning = Tuning(horizon_s, margin)
        each = [fmean(score(case, tuning) for case in runs) for runs in worlds.values()]
        found[margin, horizon_s] = fmean(each)
        row = "  ".join(f"{value:.4f}" for value in each)
        print(f"{horizon_s:9.0f}  {margin:6.3f}  {fmean(each):.4f}  {row}", flush=True)
    best = max(found.values())
    margin, horizon_s = max(key for key, value in found.items() if value >= best - CLOSE)
    print(f"best: {Tuning(horizon_s, margin)}")


if __name__ == "__main__":
    main()
