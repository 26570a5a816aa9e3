"""What every policy leaves of the possible: regret on test windows, with trainings on the links' own past.

    nice python -m benchmarks.hippo.regret run --store .twin/results [--scenario NAME ...] [--seeds 0,1,2,3,4]
    python -m benchmarks.hippo.regret page [--out docs/measured/regret.md]

A scenario is a name, or `name@dataset`. A cell is one scenario and seed: Hi-PPO is trained with that seed as
`twin train` does, from the weights that ship on the training window; then every policy runs in the same world
of that seed over the test window, and the clairvoyant bound is taken over all plans that they used. Progress
counts the iteration under way by its share. `run` keeps one JSON file a cell and skips what is there, so it
can be interrupted and taken up another day, and several processes can share the scenarios; `page` writes the
tables from the files. With `--as-it-ships` nothing is trained, and Hi-PPO has the
weights that ship: for sets on which a training takes hours.
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.hippo.hindsight import knowing
from benchmarks.hippo.regret_page import (
    BASELINES,
    OWN,
    OWN_ALONE,
    SETS,
    SHIPS,
    SHIPS_ALONE,
    UNTRAINED,
    Json,
    cells,
    page,
)
from benchmarks.played import Played, played
from ingest.core import durable
from ingest.core.errors import InfeasibleError
from policy.bound.bound import clairvoyant
from policy.core.protocol import Policy
from policy.core.registry import create
from policy.hippo.agent.agent import HiPpo, shipped_checkpoint
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import shipped
from policy.hippo.training.train import train
from replay.store.run_header import code_version
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, Window, prepare

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs" / "measured" / "cells" / "regret"
"""Committed, so that cells of several days and machines add up."""
PAGE = ROOT / "docs" / "measured" / "regret.md"


def learned(own: Path | None) -> dict[str, Callable[[], Policy]]:
    """Returns the ways of Hi-PPO: with the weights that ship, and with those of the own past if there are."""
    ships = shipped_checkpoint()

    def alone(path: Path) -> Policy:
        settings = checkpoint.load(path).config.coordinator
        return HiPpo(path, coordinator=settings.model_copy(update={"verify": False}))

    def untrained() -> Policy:
        config = checkpoint.load(ships).config
        return HiPpo.of(*checkpoint.build(config), config.coordinator)

    ways = {UNTRAINED: untrained, SHIPS_ALONE: lambda: alone(ships), SHIPS: lambda: HiPpo(ships)}
    return ways if own is None else ways | {OWN_ALONE: lambda: alone(own), OWN: lambda: HiPpo(own)}


def played_by_all(
    setup: PreparedScenario, ways: dict[str, Callable[[], Policy]]
) -> tuple[dict[str, Played], dict[str, str]]:
    """Returns what each policy did in the same world, and why others cannot run there."""
    found, problems = {}, {}
    for policy, make in ways.items():
        try:
            found[policy] = played(setup, make())
        except InfeasibleError as error:
            problems[policy] = str(error)
    return found, problems


def cell(title: str, seed: int, store: Path, only: Sequence[str], as_it_ships: bool) -> Json:
    """Returns what everybody reaches on one scenario with one seed."""
    name, _, dataset = title.partition("@")

    def window(part: Window) -> PreparedScenario:
        return prepare(scenarios.load(name), store, window=part, dataset=dataset or None, seed=seed)

    setup, done, training_s = window("test"), None, 0.0
    with tempfile.TemporaryDirectory() as scratch:
        if not as_it_ships:
            began, config = time.process_time(), shipped("own").model_copy(update={"seed": seed})
            start = checkpoint.locate(shipped_checkpoint())
            done = train(
                window("train"), config=config, out=Path(scratch), start=start, validation=window("validate")
            )
            training_s = time.process_time() - began
        ways: dict[str, Callable[[], Policy]] = {
            policy: lambda policy=policy: create(policy) for policy in BASELINES
        }
        ways |= learned(None if done is None else done.checkpoint_path)
        found, problems = played_by_all(setup, {who: ways[who] for who in ways if not only or who in only})
    moving = setup.scenario.moving
    bound = clairvoyant(
        setup.estimator(), setup.wan, sorted({ns for one in found.values() for ns in one.decided_ns}),
        restart_s=moving.restart_s, used_plans=tuple({p: None for one in found.values() for p in one.plans}),
        copied_ahead=moving.mode == "pre_copy",
    )  # fmt: skip
    hindsight, _ = played_by_all(setup, {who: lambda one=one: one for who, one in knowing(bound).items()})
    tokens = setup.estimator().tokens_per_iteration
    return {
        "title": title, "seed": seed, "code": code_version()["sources"][:12], "training_s": training_s,
        "scores": [] if done is None else [
            (point.stage, point.metrics["validation_score"]) for point in done.curve
            if "validation_score" in point.metrics
        ],
        "bound": bound.tokens / tokens, "problems": problems,
        "runs": {
            who: [one.iterations, one.totals["egress_usd"], one.seconds]
            for who, one in (found | hindsight).items()
        },
    }  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Computes the cells that the folder lacks."""
    for seed in map(int, options.seeds.split(",")):
        for title in options.scenario or SETS:
            path = options.folder / f"{title}-{seed}.json"
            if not path.exists():
                found = cell(title, seed, options.store, options.only, options.as_it_ships)
                durable.put(path, json.dumps(found).encode())
                regret = {
                    who: round(100 * (1 - n / found["bound"]), 2) for who, (n, *_) in found["runs"].items()
                }
                print(title, seed, f"{found['training_s']:.0f} s of training", regret, flush=True)


def main() -> None:
    """Computes cells, or writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--store", type=Path, default=ROOT / ".twin" / "results")
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--only", nargs="+", default=(), help="policies [all]")
    parser.add_argument("--as-it-ships", action="store_true", help="train nothing")
    parser.add_argument("--folder", type=Path, default=KEPT)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    if options.what == "run":
        run(options)
    else:
        durable.replace(options.out, page(cells(options.folder)).encode())


if __name__ == "__main__":
    main()
