"""What the trained network adds to the policy that ships, which also searches: in the world, on test windows.

    nice python -m benchmarks.hippo.network_worth --store .twin/results [--seeds 0,1,2,3,4] [--scenario NAME
    ...]

A scenario is a name, or `name@dataset`. Every way to decide is run in the same worlds, a training seed with
each: as it ships; with the network as it was before any training, so that search and verification alone
decide; without the search, when what is refined and verified are the network's proposals and the static plan;
without search and refinement; each of these with an untrained network, too; and the trained network's own
answer, unverified. Time per token relative to the first, the mean over seeds with its 95 % t-interval: above
0 the first is faster. The trainings are those that `benchmarks.results` keeps in the store.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.policy.tune_mpc import run
from benchmarks.results.__main__ import trained
from policy.core.protocol import Policy
from policy.hippo.agent.agent import HiPpo, shipped_checkpoint
from policy.hippo.networks import checkpoint
from replay.metrics.paired_comparison import student
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import prepare

SCENARIOS = ("quad-70b", "storm", "geant-70b", "octo-175b", "planet-405b", "tri-7b@wanify-aws8")
UNSEARCHED = {"search": False}
UNREFINED = {"search": False, "rounds": 0, "wide_rounds": 0}


def policies(path: Path | None) -> dict[str, Policy]:
    """The policy as it ships first, then with less."""
    found = checkpoint.locate(path or shipped_checkpoint())
    config = checkpoint.load(found).config

    def trained_one(**without: object) -> Policy:
        return HiPpo(found, coordinator=config.coordinator.model_copy(update=without))

    def untrained(**without: object) -> Policy:
        return HiPpo.of(*checkpoint.build(config), config.coordinator.model_copy(update=without))

    return {
        "as it ships": trained_one(),
        "network untrained": untrained(),
        "no search": trained_one(**UNSEARCHED),
        "no search, network untrained": untrained(**UNSEARCHED),
        "neither search nor refinement": trained_one(**UNREFINED),
        "neither, network untrained": untrained(**UNREFINED),
        "network alone": trained_one(verify=False),
    }


def main() -> None:
    """A table a scenario."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--scenario", action="append")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    paths = trained(options.store, max(seeds) + 1, 1)
    for title in options.scenario or SCENARIOS:
        name, _, dataset = title.partition("@")
        times: dict[str, list[float]] = {}
        for seed in seeds:
            setup = prepare(
                scenarios.load(name), options.store, window="test", seed=seed, dataset=dataset or None
            )
            weights = setup.scenario.weights.vector
            for way, policy in policies(paths[seed]).items():
                times.setdefault(way, []).append(run(setup, policy, weights).iter_s)
        first, *others = times
        print(f"{title}: {first} {np.mean(times[first]):.3f} s/iteration")
        for way in others:
            found = student(way, np.array(times[way]) / np.array(times[first]) - 1)
            mean, low, high = (100 * share for share in (found.mean, found.low, found.high))
            print(f"  {way:<32}{mean:+7.1f} % ({low:+.1f} to {high:+.1f})")
        print(flush=True)


if __name__ == "__main__":
    main()
