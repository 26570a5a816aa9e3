"""What the trained network adds to the policy that ships, which also searches: in the world, on test windows.

    nice python -m benchmarks.network_worth --store .twin/results [--seeds 0,1,2,3,4] [--scenario NAME ...]

Three policies in the same worlds, a training seed with each: the one that ships, with the network of a
training; the same with the network as it was before any training, so that search and verification alone
decide; and the trained network's own answer, unverified. Time per token relative to the first, the mean over
seeds with its 95 % t-interval: above 0 the first is faster. The trainings are those that `benchmarks.results`
keeps in the store.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.results import trained
from benchmarks.tune_mpc import run
from policy.hippo import checkpoint as checkpoints
from policy.hippo.agent import HiPpo, shipped_checkpoint
from policy.protocol import Policy
from replay.judge import student
from twin import scenario as scenarios
from twin.scenario import prepare

SCENARIOS = ("quad-70b", "storm", "geant-70b", "octo-175b")
OTHERS = ("untrained network", "network alone")


def policies(path: Path | None) -> list[Policy]:
    """The policy as it ships, with an untrained network, and the network alone."""
    found = checkpoints.locate(path or shipped_checkpoint())
    config = checkpoints.load(found).config
    blank = HiPpo.of(*checkpoints.build(config), config.coordinator)
    alone = config.coordinator.model_copy(update={"verify": False})
    return [HiPpo(found), blank, HiPpo(found, coordinator=alone)]


def main() -> None:
    """A line a scenario."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--scenario", action="append")
    asked = parser.parse_args()
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    paths = trained(asked.store, max(seeds) + 1, 1)
    print(f"{'scenario':<12}{'as it ships, s/iteration':>26}" + "".join(f"{name:>34}" for name in OTHERS))
    for name in asked.scenario or SCENARIOS:
        times = []
        for seed in seeds:
            setup = prepare(scenarios.load(name), asked.store, window="test", seed=seed)
            weights = setup.scenario.weights.vector
            times.append([run(setup, policy, weights).iter_s for policy in policies(paths[seed])])
        table = np.array(times)
        cells = []
        for column in (1, 2):
            found = student(OTHERS[column - 1], table[:, column] / table[:, 0] - 1)
            cells.append(f"{100 * found.mean:+.1f} % ({100 * found.low:+.1f} to {100 * found.high:+.1f})")
        print(f"{name:<12}{table[:, 0].mean():>26.3f}" + "".join(f"{cell:>34}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
