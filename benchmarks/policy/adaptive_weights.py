"""What weights that follow the network do: time, egress and utilisation against the same weights, fixed.

    python -m benchmarks.policy.adaptive_weights --store .twin/results --scenario tri-7b
    [--dataset wanify-aws8] [--weights 0.5,0,0.5] [--gains 0,0.1,0.3] [--policies mpc,hippo]

A line for each policy and gain: microseconds and nano-USD of egress a token, utilisation, migrations, and
from what to what the weight of efficiency went. Seed 0, the test window; gain 0 are fixed weights.
"""

import argparse
from pathlib import Path

from replay.bench.cells import Cell, run_cell
from replay.bench.world import BenchWorld
from replay.log.run_log import RunReader
from replay.run import scenario_overrides
from replay.store import run_index


def efficiency_weights(store: Path, run_id: str) -> list[float]:
    """The weight of efficiency at each decision of a run; none where weights are fixed."""
    events = RunReader(run_index.folder(store, run_id)).events()
    kept = [event.payload["extra"].get("weights") for event in events if event.type == "decided"]
    return [weights[0] for weights in kept if weights is not None]


def line(store: Path, world: BenchWorld, policy: str, gain: float) -> str:
    """The figures of one policy at one gain."""
    weights = world.scenario.weights.model_copy(update={"adaptive": gain})
    scenario = scenario_overrides.weighted(world.scenario, weights)
    outcome = run_cell(store, Cell(BenchWorld.of(scenario, world.dataset), policy))
    if outcome.run_id is None or outcome.kpis is None:
        return f"{policy:6s} gain {gain:g}  {outcome.problem}"
    kpis, speed = outcome.kpis, efficiency_weights(store, outcome.run_id)
    range_ = f"{min(speed):.3f} to {max(speed):.3f}" if speed else "fixed"
    return (
        f"{policy:6s} gain {gain:<4g} {1e6 * (kpis.time_per_token_s or 0):10.3f} us a token  "
        f"{1e9 * (kpis.usd_per_token or 0):9.3f} nUSD  utilisation {kpis.utilisation or 0:.3f}  "
        f"moves {kpis.moves}  efficiency {range_}"
    )


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__
    )
    parser.add_argument("--store", type=Path, default=Path(".twin/results"))
    parser.add_argument("--scenario", default="tri-7b")
    parser.add_argument("--dataset", default=None)
    parser.add_argument("--weights", default="0.5,0,0.5")
    parser.add_argument("--gains", default="0,0.1,0.3")
    parser.add_argument("--policies", default="mpc,hippo")
    options = parser.parse_args()
    scenario = scenario_overrides.scenario(options.scenario, options.weights)
    world = BenchWorld.of(scenario, options.dataset)
    for policy in options.policies.split(","):
        for gain in map(float, options.gains.split(",")):
            print(line(options.store, world, policy, gain), flush=True)


if __name__ == "__main__":
    main()
