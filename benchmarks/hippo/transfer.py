"""What practice on unseen links is worth: the weights that ship, then minutes on the past of the links.

    nice python -m benchmarks.hippo.transfer --store .twin/results [--scenario NAME ...] [--minutes 3,10,30]
        [--seeds 0]

The weights that ship have practised on synthetic links and made-up clusters alone, so every measured set is
unseen. For each set: iterations over the test window of the network alone and of the whole policy, with those
weights and after so many CPU minutes of training as `twin train` does, in one training that is stopped,
measured and resumed. Progress counts the iteration under way by its share. One JSON object a line.
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.hippo.own_past import alone
from benchmarks.played import played
from policy.hippo.agent.agent import HiPpo, shipped_checkpoint
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import shipped
from policy.hippo.training.train import train
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, Window, prepare

SCENARIOS = ("quad-70b", "octo-175b", "storm", "geant-70b", "tri-7b@wanify-aws8")
ENOUGH = 100_000
"""Iterations of PPO that no time allows."""


def stages(title: str, seed: int, store: Path, minutes: list[float]) -> Iterator[dict[str, Any]]:
    """Yields what the weights that ship reach, and those after each number of CPU minutes."""
    name, _, dataset = title.partition("@")

    def window(part: Window) -> PreparedScenario:
        return prepare(scenarios.load(name), store, window=part, dataset=dataset or None, seed=seed)

    test, past, held_out = window("test"), window("train"), window("validate")
    ships = checkpoint.locate(shipped_checkpoint())

    def measured(path: Path, trained_min: float) -> dict[str, Any]:
        found = {"alone": played(test, alone(path)), "whole": played(test, HiPpo(path))}
        reached = {way: one.iterations for way, one in found.items()}
        return {"links": title, "seed": seed, "minutes": trained_min, **reached}

    yield measured(ships, 0.0)
    config = shipped("own").model_copy(update={"seed": seed, "iterations": ENOUGH})
    with tempfile.TemporaryDirectory() as scratch:
        spent_s = 0.0
        for number, until in enumerate(minutes):
            began, left_s = time.process_time(), 60 * until - spent_s
            done = train(
                past, config=config, out=Path(scratch), start=ships, validation=held_out, resume=number > 0,
                stop=lambda began=began, left_s=left_s: time.process_time() - began > left_s,
            )  # fmt: skip
            spent_s += time.process_time() - began
            yield measured(done.checkpoint_path, spent_s / 60)


def main() -> None:
    """Prints an object a line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--minutes", default="3,10,30")
    parser.add_argument("--seeds", default="0")
    given = parser.parse_args()
    for title in given.scenario or SCENARIOS:
        for seed in map(int, given.seeds.split(",")):
            for row in stages(title, seed, given.store, [float(one) for one in given.minutes.split(",")]):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
