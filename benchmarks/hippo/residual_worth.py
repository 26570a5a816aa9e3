"""What there is to learn beyond the planners: plan value as a residual, leaving or staying, knobs by a head.

    nice python -m benchmarks.hippo.residual_worth run --store .twin/results [--scenario NAME ...]
    python -m benchmarks.hippo.residual_worth page [--out docs/measured/residual.md]

A scenario is a name, or `name@dataset`. Everything happens on the training window: of its stretches
(`benchmarks.hippo.residual_stretches`) models are fitted on the earlier ones and tested on the next one; the
first test is the second stretch. `run` keeps one JSON file a scenario; `page` writes the tables.
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.hippo.residual_knobs import compared
from benchmarks.hippo.residual_models import FITS
from benchmarks.hippo.residual_moves import of_model, of_rule, played, with_hindsight
from benchmarks.hippo.residual_page import page
from benchmarks.hippo.residual_stretches import Stretch, stretches
from ingest.core import durable
from replay.store.run_header import code_version
from twin.scenario import prepare as scenarios

Float = NDArray[np.float64]
Json = dict[str, Any]

SETS = ("quad-70b", "storm", "geant-70b", "octo-175b", "tri-7b@wanify-aws8")
HORIZONS = (12, 36)
"""Periods over which a plan's worth is looked at: 1 and 3 h of quad-70b and storm, 3 and 9 h of geant-70b,
2 and 6 h of octo-175b, 12 and 36 min of tri-7b."""
KNOB_PLANS = 2
"""Plans over several domains, best of the past, whose knobs are set."""
FLOOR = 0.1
"""Least share of its past mean that a rate counts in a residual; a dead plan has no logarithm."""
ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".twin" / "residual"


def residuals(stretch: Stretch, periods: int) -> tuple[NDArray[np.bool_], Float, dict[str, Float]]:
    """Returns the moments whose future is known (I,), the true mean rates there, and by planner's prediction
    the logs of truth over prediction, (M, P) each."""
    future = stretch.future(periods)
    known = np.isfinite(future[:, 0])
    future, least = future[known], FLOOR * stretch.mean
    bases = {"past": np.broadcast_to(stretch.mean, future.shape), "now": stretch.now[known]}
    return known, future, {
        name: np.log(np.maximum(future, least) / np.maximum(base, least)) for name, base in bases.items()
    }  # fmt: skip


def valued(learned: list[Stretch], test: Stretch, periods: int) -> dict[str, Float]:
    """Returns for each moment of the test: squared errors of each residual model and of 0, of the values and
    of their differences between plans; and the true rate of the plan that each way chooses."""
    known, future, targets = residuals(test, periods)
    asked, least = test.features[known], FLOOR * test.mean
    found: dict[str, Float] = {}

    def choose(way: str, values: Float) -> None:
        found[f"rate/{way}"] = future[np.arange(len(future)), values.argmax(axis=1)]

    choose("past", np.broadcast_to(test.mean, future.shape))
    choose("now", test.now[known])
    choose("ahead", test.ahead[known])
    choose("hindsight", future)
    before = [(one, residuals(one, periods)) for one in learned]
    rows = np.concatenate([one.features[there].reshape(-1, asked.shape[2]) for one, (there, *_) in before])
    for base, truth in targets.items():
        lesson = np.concatenate([others[base].reshape(-1) for _, (_, _, others) in before])
        start = test.mean if base == "past" else np.maximum(test.now[known], least)
        for name, fit in FITS.items():
            guess = fit(rows, lesson)(asked.reshape(-1, asked.shape[2])).reshape(truth.shape)
            choose(f"{name} over {base}", start * np.exp(guess))
            found[f"error/{name} over {base}"] = ((truth - guess) ** 2).sum(axis=1)
            apart = [x - x.mean(axis=1, keepdims=True) for x in (truth, guess)]
            found[f"apart/{name} over {base}"] = ((apart[0] - apart[1]) ** 2).sum(axis=1)
        found[f"error/0 over {base}"] = (truth**2).sum(axis=1)
        found[f"apart/0 over {base}"] = ((truth - truth.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return found


def moved(learned: list[Stretch], test: Stretch) -> tuple[dict[str, Float], dict[str, float]]:
    """Returns iterations of each period by who decides to leave, and areas under the curve by model."""
    paths = {
        "keep": [test.plans[0]] * len(test.views),
        "rule": of_rule(test),
        "hindsight": with_hindsight(test),
    }
    areas = {}
    for periods in HORIZONS:
        if all(np.isnan(one.future(periods)).all() for one in learned):
            continue
        for name, fit in FITS.items():
            way = f"{name}, {periods} periods"
            paths[way], areas[way] = of_model(fit, learned, test, periods)
    return {way: played(test, path) for way, path in paths.items()}, areas


def measured(title: str, store: Path) -> Json:
    """Returns the figures of one scenario, all tests joined in the order of time."""
    began, (name, _, dataset) = time.process_time(), title.partition("@")
    scenario = scenarios.load(name)
    if dataset:
        scenario = scenario.model_copy(update={"wan": scenario.wan.replaced(dataset)})
    learned, tests = stretches(scenario, store)
    values: dict[int, dict[str, list[Float]]] = {periods: defaultdict(list) for periods in HORIZONS}
    moves, areas, knobs = defaultdict(list), defaultdict(list), defaultdict(list)
    for n in range(1, len(tests)):
        before, test = [one for part in learned[:n] for one in part], tests[n]
        for periods in HORIZONS:
            if np.isfinite(test.future(periods)).any():
                for what, row in valued(before, test, periods).items():
                    values[periods][what].append(row)
        work, under = moved(before, test)
        for way, row in work.items():
            moves[way].append(row)
        for way, one in under.items():
            areas[way].append(one)
        several = [plan for plan in test.plans if len(plan.shares) > 1][:KNOB_PLANS]
        for plan in several:
            for what, row in asdict(compared(before, test, plan)).items():
                knobs[what].append(np.atleast_1d(row))
        print(title, f"test {n}: {time.process_time() - began:.0f} s", flush=True)
    return {
        "title": title, "code": code_version()["sources"][:12], "seconds": time.process_time() - began,
        "plans": [len(one.plans) for one in tests], "period_s": scenario.control.period_s,
        "values": {periods: joined(rows) for periods, rows in values.items()},
        "moves": joined(moves), "areas": {way: float(np.nanmean(some)) for way, some in areas.items()
                                          if np.isfinite(some).any()},
        "knobs": joined(knobs),
    }  # fmt: skip


def joined(rows: dict[str, list[Float]]) -> dict[str, list[float]]:
    """Returns the rows of all tests in one list each."""
    return {what: np.concatenate(some).tolist() for what, some in rows.items()}


def run(options: argparse.Namespace) -> None:
    """Computes what the folder lacks."""
    for title in options.scenario or SETS:
        path = options.folder / f"{title}.json"
        if not path.exists():
            durable.put(path, json.dumps(measured(title, options.store)).encode())


def main() -> None:
    """Computes figures, or writes the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--store", type=Path, default=ROOT / ".twin" / "results")
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--folder", type=Path, default=KEPT)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "measured" / "residual.md")
    options = parser.parse_args()
    if options.what == "run":
        run(options)
        return
    files = [options.folder / f"{title}.json" for title in SETS]
    found = [json.loads(path.read_text()) for path in files if path.exists()]
    durable.replace(options.out, page(found).encode())


if __name__ == "__main__":
    main()
