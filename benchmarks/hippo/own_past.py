"""Hi-PPO trained on a scenario's own past: what PPO adds to the warm start, and the network alone.

    nice python -m benchmarks.hippo.own_past --store .twin/results [--scenario NAME ...] [--seeds 0,1,2]
        [--settings FILE] [--ways kept,episodes] [--policies history,mpc,verified]

A scenario is a name, or `name@dataset`. Each training seed makes one warm start on the training window; from
it PPO goes on in each way: by episodes, or by plans judged over the whole past (`ppo.kept_periods`). Printed
as JSON, a line a network: minutes, validation score (of the weights after the last iteration, and of those
that selection keeps), and iterations of the network alone over the test window of the world, the unfinished
iteration by its share. `verified` is the whole policy with the warm start; every policy runs in the world of
that seed.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.policy.tune_mpc import progress
from policy.core.protocol import Policy
from policy.core.registry import create
from policy.hippo.agent.agent import HiPpo
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import HiPpoConfig, changed, shipped
from policy.hippo.training.train import TrainResult, train
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, prepare

SCENARIOS = ("quad-70b", "octo-175b", "storm", "geant-70b", "tri-7b@wanify-aws8")
WAYS = {"kept": 48, "episodes": 0}
"""`ppo.kept_periods` of each way."""


def alone(path: Path) -> HiPpo:
    """Returns the network of a checkpoint without verification."""
    found = checkpoint.load(path).config.coordinator
    return HiPpo(path, coordinator=found.model_copy(update={"verify": False}))


def trained_from(
    windows: dict[str, PreparedScenario], config: HiPpoConfig, way: str, start: Path, out: Path
) -> TrainResult:
    """Returns PPO from a warm start."""
    settings: dict[str, Any] = {
        "ppo": config.ppo.model_copy(update={"kept_periods": WAYS[way]}),
        "imitation": config.imitation.model_copy(update={"steps": 0, "lessons": 0, "searched": 0, "past": 0}),
    }
    again = config.model_copy(update=settings)
    return train(windows["train"], config=again, out=out, start=start, validation=windows["validate"])


def rows(title: str, seed: int, asked: argparse.Namespace, config: HiPpoConfig) -> list[dict[str, Any]]:
    """Returns the rows of one scenario and training seed."""
    name, _, dataset = title.partition("@")
    windows = {
        part: prepare(scenarios.load(name), asked.store, window=part, dataset=dataset or None, seed=seed)
        for part in ("train", "validate", "test")
    }
    config, found = config.model_copy(update={"seed": seed}), []

    def row(what: str, policy: Policy, **figures: float) -> None:
        iterations = progress(windows["test"], policy, windows["test"].scenario.weights.vector)
        found.append({"scenario": title, "seed": seed, "what": what, "iterations": iterations, **figures})
        print(json.dumps(found[-1]), flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        first = config.model_copy(update={"iterations": 0})
        warm = train(
            windows["train"], config=first, out=Path(scratch) / "warm", validation=windows["validate"]
        )
        start = warm.checkpoint_path
        row("warm start alone", alone(start), minutes=warm.seconds / 60, validation=warm.score)
        for way in asked.ways.split(","):
            done = trained_from(windows, config, way, start, Path(scratch) / way)
            last = done.curve[-1].metrics["validation_score"]
            row(
                f"{way} alone", alone(done.checkpoint_path), minutes=done.seconds / 60, validation=last,
                selected=done.score,
            )  # fmt: skip
        for policy in filter(None, asked.policies.split(",")):
            row(policy, HiPpo(start) if policy == "verified" else create(policy))
    return found


def main() -> None:
    """Prints a row a network and policy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--policies", default="history,mpc,verified")
    asked = parser.parse_args()
    config = shipped("tuned")
    if asked.settings is not None:
        config = changed(config, asked.settings)
    for title in asked.scenario or SCENARIOS:
        for seed in map(int, asked.seeds.split(",")):
            rows(title, seed, asked, config)


if __name__ == "__main__":
    main()
