"""What every policy leaves of the possible: regret on test windows, with trainings on the links' own past.

    nice python -m benchmarks.hippo.regret run --store .twin/results [--scenario NAME ...] [--seeds 0,1,2,3,4]
    python -m benchmarks.hippo.regret page [--out docs/measured/regret.md]

A scenario is a name, or `name@dataset`. A cell is one scenario and seed: Hi-PPO is trained with that seed as
`twin train` does, from the weights that ship on the training window; then every policy runs in the same world
of that seed over the test window, and the clairvoyant bound is taken over all plans that they used. Progress
counts the iteration under way by its share. `run` keeps one JSON file a cell and skips what is there, so it
can be interrupted, and several processes can share the scenarios; `page` writes the tables from the files.
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.played import played
from ingest.core import durable
from ingest.core.errors import InfeasibleError
from policy.bound.bound import clairvoyant
from policy.core.protocol import Policy
from policy.core.registry import create
from policy.hippo.agent.agent import HiPpo, shipped_checkpoint
from policy.hippo.networks import checkpoint
from policy.hippo.networks.hippo_config import shipped
from policy.hippo.training.train import train
from replay.metrics.paired_comparison import PairedDifference, student
from replay.store.run_header import code_version
from twin.scenario import prepare as scenarios
from twin.scenario.prepare import PreparedScenario, Window, prepare

SETS = (
    "tri-7b@wanify-aws8", "quad-70b", "geant-70b", "storm", "octo-175b", "tri-7b@synthetic-tri",
    "quad-70b@synthetic-quad", "octo-175b@synthetic-octo", "planet-405b",
)  # fmt: skip
BASELINES = ("static", "single", "greedy", "dtfm", "sailor", "history", "history-hour", "mpc")
LEARNED = (
    "hippo, network untrained",
    "network alone, as it ships",
    "network alone",
    "hippo as it ships",
    "hippo",
)
AIMS = {
    "quad-70b": 2.0,
    "geant-70b": 2.0,
    "octo-175b": 3.5,
    "storm": 5.0,
    "planet-405b": 5.0,
    "tri-7b@wanify-aws8": 1.0,
}
"""Regret of hippo in per cent that was asked for."""
BEFORE = {
    "quad-70b": (6.8, 5.8), "storm": (9.2, 9.2), "geant-70b": (2.5, 2.4), "octo-175b": (6.1, 5.9),
    "planet-405b": (11.0, 11.2), "tri-7b@wanify-aws8": (0.5, 3.8), "tri-7b@synthetic-tri": (3.4, 3.3),
    "quad-70b@synthetic-quad": (1.4, 1.4), "octo-175b@synthetic-octo": (11.1, 9.7),
}  # fmt: skip
"""Regret of hippo and mpc before, per cent: docs/measured/results.md, sources b1df0f92bf1d."""
ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".twin" / "regret"
Json = dict[str, Any]


def learned(own: Path) -> dict[str, Callable[[], Policy]]:
    """Returns the ways of Hi-PPO, with the weights that ship and with those of the own past."""
    ships = shipped_checkpoint()

    def alone(path: Path) -> Policy:
        settings = checkpoint.load(path).config.coordinator
        return HiPpo(path, coordinator=settings.model_copy(update={"verify": False}))

    def untrained() -> Policy:
        config = checkpoint.load(ships).config
        return HiPpo.of(*checkpoint.build(config), config.coordinator)

    ways = (untrained, lambda: alone(ships), lambda: alone(own), lambda: HiPpo(ships), lambda: HiPpo(own))
    return dict(zip(LEARNED, ways, strict=True))


def cell(title: str, seed: int, store: Path, only: tuple[str, ...]) -> Json:
    """Returns what everybody reaches on one scenario with one seed."""
    name, _, dataset = title.partition("@")

    def window(part: Window) -> PreparedScenario:
        return prepare(scenarios.load(name), store, window=part, dataset=dataset or None, seed=seed)

    setup, found, problems = window("test"), {}, {}
    config = shipped("own").model_copy(update={"seed": seed})
    with tempfile.TemporaryDirectory() as scratch:
        began = time.process_time()
        done = train(
            window("train"), config=config, out=Path(scratch), start=checkpoint.locate(shipped_checkpoint()),
            validation=window("validate"),
        )  # fmt: skip
        training_s = time.process_time() - began
        ways = {policy: lambda policy=policy: create(policy) for policy in BASELINES}
        for policy, make in (ways | learned(done.checkpoint_path)).items():
            if only and policy not in only:
                continue
            try:
                found[policy] = played(setup, make())
            except InfeasibleError as error:
                problems[policy] = str(error)
    moving = setup.scenario.moving
    bound = clairvoyant(
        setup.estimator(), setup.wan, sorted({ns for one in found.values() for ns in one.decided_ns}),
        restart_s=moving.restart_s, used_plans=tuple({p: None for one in found.values() for p in one.plans}),
        copied_ahead=moving.mode == "pre_copy",
    )  # fmt: skip
    tokens = setup.estimator().tokens_per_iteration
    return {
        "title": title, "seed": seed, "code": code_version()["sources"][:12], "training_s": training_s,
        "scores": [(point.stage, point.metrics["validation_score"]) for point in done.curve
                   if "validation_score" in point.metrics],
        "bound": bound.tokens / tokens, "kept": bound.kept_tokens / tokens, "problems": problems,
        "runs": {who: [one.iterations, one.totals["egress_usd"], one.seconds] for who, one in found.items()},
    }  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Computes the cells that the folder lacks."""
    for seed in map(int, options.seeds.split(",")):
        for title in options.scenario or SETS:
            path = options.folder / f"{title}-{seed}.json"
            if not path.exists():
                found = cell(title, seed, options.store, tuple(filter(None, options.only.split(","))))
                durable.put(path, json.dumps(found).encode())
                regret = {
                    who: round(100 * (1 - n / found["bound"]), 2) for who, (n, *_) in found["runs"].items()
                }
                print(title, seed, f"{found['training_s']:.0f} s of training", regret, flush=True)


# -- the page


def cells(folder: Path) -> dict[str, list[Json]]:
    """Returns the cells by scenario, in the order of seeds."""
    found = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    ordered = sorted(found, key=lambda one: one["seed"])
    return {title: [one for one in ordered if one["title"] == title] for title in SETS if any(
        one["title"] == title for one in ordered
    )}  # fmt: skip


def regrets(group: list[Json], policy: str) -> PairedDifference | None:
    """Returns the mean regret of a policy in per cent with its interval; None where it cannot run."""
    if any(policy not in one["runs"] for one in group):
        return None
    return student(policy, np.array([100 * (1 - one["runs"][policy][0] / one["bound"]) for one in group]))


def gains(group: list[Json], policy: str, other: str) -> PairedDifference:
    """Returns by how many per cent a policy trains more than another in the same worlds."""
    runs = [(one["runs"][policy][0], one["runs"][other][0]) for one in group]
    return student(policy, np.array([100 * (mine / theirs - 1) for mine, theirs in runs]))


def interval(found: PairedDifference | None, digits: int = 2) -> str:
    """Returns mean and interval as a cell of a table."""
    if found is None:
        return "-"
    if found.low == found.high:
        return f"{found.mean:.{digits}f}"
    return f"{found.mean:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Returns a Markdown table."""
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(found: dict[str, list[Json]]) -> str:
    """Returns the text of docs/measured/regret.md."""
    everybody = (*BASELINES, *LEARNED)
    codes = sorted({one["code"] for group in found.values() for one in group})

    def regret_rows() -> Iterator[tuple[str, ...]]:
        for title, group in found.items():
            yield title, *(interval(regrets(group, policy), 1) for policy in everybody), str(len(group))

    def verdict_rows() -> Iterator[tuple[str, ...]]:
        for title, group in found.items():
            before, own = BEFORE[title], regrets(group, "hippo")
            assert own is not None
            aim = AIMS.get(title)
            met = "-" if aim is None else "met" if own.mean <= aim else f"missed by {own.mean - aim:.1f}"
            yield (
                title, f"{before[0]:.1f}", f"{own.mean:.1f}", "-" if aim is None else f"<= {aim:g}", met,
                *(interval(gains(group, "hippo", other)) for other in ("mpc", "history")),
                interval(gains(group, "network alone", "hippo")),
                interval(gains(group, "hippo", "hippo, network untrained")),
            )  # fmt: skip

    def training_rows() -> Iterator[tuple[str, ...]]:
        for title, group in found.items():
            warm = np.array([one["scores"][0][1] for one in group])
            best = np.array([max(score for _, score in one["scores"]) for one in group])
            minutes = np.array([one["training_s"] / 60 for one in group])
            yield (
                title, f"{minutes.mean():.1f}", *(interval(student("", one), 3) for one in (warm, best)),
                f"{sum(best > warm)} of {len(group)}",
                interval(gains(group, "network alone", "network alone, as it ships")),
            )  # fmt: skip

    return f"""# Regret: what every policy leaves of the possible

Generated by `python -m benchmarks.hippo.regret page` from cells of `python -m benchmarks.hippo.regret run`,
sources {", ".join(codes)}. Test windows, the last 30 % of each trace. A cell is a seed: its own training of
Hi-PPO on the links' own past (`twin train`), its own noise of telemetry. Sets named synthetic are synthetic.
Figures are means over cells with their 95 % t-interval.

## Regret, per cent of the clairvoyant bound

{table(("links", *everybody, "cells"), regret_rows())}

*hippo, network untrained*: search, past and verification alone decide. *network alone*: the likeliest answer,
unverified. *as it ships*: with the general checkpoint; the others of Hi-PPO with weights of the own past.

## Hi-PPO: before and now, and against the planners

Per cent. *More than*: iterations beyond those of the other policy in the same worlds. Before: as of
docs/measured/results.md, whose bound did not yet count the iteration under way.

{
        table(
            (
                "links",
                "regret before",
                "now",
                "aim",
                "met",
                "more than mpc",
                "more than history",
                "network alone against hippo",
                "more than without a network",
            ),
            verdict_rows(),
        )
    }

## Training on the own past

Minutes are CPU minutes of one training; validation is the mean reward of a period.

{
        table(
            (
                "links",
                "minutes",
                "validation after the warm start",
                "at the end",
                "PPO improves on the warm start",
                "network alone: own past against as it ships, per cent",
            ),
            training_rows(),
        )
    }
"""


def main() -> None:
    """Computes cells, or writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--store", type=Path, default=ROOT / ".twin" / "results")
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--only", default="", help="policies A,B,... [all]")
    parser.add_argument("--folder", type=Path, default=KEPT)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "measured" / "regret.md")
    options = parser.parse_args()
    if options.what == "run":
        run(options)
    else:
        durable.replace(options.out, page(cells(options.folder)).encode())


if __name__ == "__main__":
    main()
