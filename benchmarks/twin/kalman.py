"""The Kalman filters against EWMA, persistence and a GRU on held-out windows of measured links, as Markdown.

    python -m benchmarks.twin.kalman STORE > docs/measured/forecast.md
    python -m benchmarks.twin.kalman STORE engines     # the section "Filter engines" alone

STORE holds the ingested sets. Each link is split in time, 70 % to fit and calibrate, 30 % to test; every test
sample is forecast h samples ahead, from what came before it.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.twin.filter_windows import HorizonScore, step_cost, training_s, window
from benchmarks.twin.walk_forward import FORECASTERS, Walk, intervals, tracked, walk_forward
from ingest.lake import duckdb_views
from twin.core.view import GAUSSIAN
from twin.filters.conformal_intervals import Intervals
from twin.filters.engines import ENGINES
from twin.filters.ou_process import Array

AHEAD = (1, 2, 5, 10)
TRAIN_SHARE, LEAST = 0.7, 40
TARGETS = ((0.80, 0.04), (0.95, 0.02))
WINDOWS = (
    ("quad-70b", None),
    ("tri-7b", "wanify-aws8"),
    ("geant-70b", None),
    ("octo-175b", None),
    ("planet-405b", None),
)
"""Scenarios and the measured set that replaces their own."""
SETS = {
    "cloudpilot-iperf3": "bandwidth_bps",
    "wanify-aws8": "bandwidth_bps",
    "ripe-atlas-rtt": "rtt_s",
    "geant-available": "bandwidth_bps",
    "ibm-interregion-latency": "rtt_s",
}
SQL = """
    SELECT src || '>' || dst AS link, epoch_ns(ts) / 1e9 AS t, avg({what}) AS value FROM link_samples
    WHERE dataset = ? AND {what} > 0 AND coalesce(duration_s, 99) >= 5 GROUP BY ALL ORDER BY 1, 2
"""
HEAD = """# Forecasts of links, scored on held-out windows

Generated, do not edit:

    for s in cloudpilot-iperf3 wanify-aws8 ripe-atlas-rtt geant-traffic-matrices ibm-interregion-latency \\
        skyplane-grids
    do twin --store S ingest ../shared/traces/wan/$s; done
    python -m benchmarks.twin.kalman S > docs/measured/forecast.md

Each link is split in time: the first 70 % of its samples are for learning, the last 30 % are held out.
Every held-out sample is forecast 1, 2, 5 and 10 samples ahead, from what came before it. RMSE is over all
links in log units (0.1 = 10 %), the best of a column in italics. Links with fewer than 40 samples and
samples of 0 bit/s, of which there is no logarithm, are left out.

*mixture* are the filters of the engine `bank` (`twin.filters.multiple_model`): two Kalman filters a link, one
that reverts to a mean and one whose level stays, each weighted by how well it forecast the recent samples. In
a run, whose samples repeat a measurement while it holds, they are weighted at each horizon by their forecasts
of that horizon (`twin.filters.horizon_mixture`; the sections after the data sets). *kalman* is the reverting
one alone. The GRU is one network per data set, trained on the training parts alone, seeded. *fit* is CPU time
to learn from the training part, in seconds, on a busy machine.

Coverage is the share of held-out samples in the central interval, **target 80 +- 4 and 95 +- 2**; misses
are bold. Intervals are calibrated in two steps, for all forecasters alike
(`twin.filters.conformal_intervals`). *Trained*: a forecaster fitted to the first two thirds of the training
part is scored on its last third, and the empirical quantiles of its standardised errors, pooled over links
and taken at each horizon, say how many deviations an interval spans. *Tracked*: from then on the widths
follow the forecasts whose truth has become known (adaptive conformal inference), so they only ever use the
past. *Gaussian* uses 1.28 and 1.96 deviations.

How dynamics are pooled over links, the share that calibrates, the memory of the mixture, that its mean stays
what training said, and the rate of tracking were chosen on the last 15 % of the training parts alone; that
there are two regimes was thought of after a first look at the held-out errors of the others. What a link's
own evidence weighs beside that of all links was chosen on the training shares of the scenarios. A daily cycle
(one to three harmonics a link, shrunk) was tried there too: RMSE 3 to 20 % worse on geant-available with its
four days of training, no difference on ripe-atlas-rtt; it is left out.
"""


CONTROLLER = """## In a controller

The same filters as a replay runs them: telemetry every 30 s to 5 min with 3 % noise, a truth that holds from
one measurement to the next, horizons in seconds, the scenario's own held-out window
(`benchmarks/twin/filter_windows.py`). The present is compared with the truth at the next tick. *Holding* is
persistence of the true present, which no controller has: its samples are noisy. *Without noise* is
the coverage when telemetry has none: where only that meets the target, the cause of the miss is that errors
smaller than the noise cannot be tracked. Those of geant-70b are 1 to 3 %, and its training share ends in two
calm days.
"""
ENGINES_HEAD = """## Filter engines

A scenario chooses one by `filter: {engine: NAME}`. *bank*, the default, is the mixture above, all links as
one array; *filterpy* runs the same filters one by one with filterpy's `KalmanFilter`, and its forecasts are
the same to nine digits; *gru*, *ewma* and *persistence* are trained on telemetry of the training share. Fed
as in the section before, with 3 % noise; all intervals are calibrated and tracked alike. Every cell is RMSE
(log units) and coverage of the 80 % and 95 % interval. *Training* is CPU time to fit and calibrate, in
seconds.
"""
ENGINE_WINDOWS = (("quad-70b", None), ("tri-7b", "wanify-aws8"))
ENGINE_COST = """Cost at 8 domains (56 links): CPU time of a telemetry tick, in which every link's bandwidth
and latency are filtered and forecasts that came due are compared, and of a forecast at six horizons; on a
busy machine, to be compared with each other only.
"""

Shares = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Score:
    """One forecaster at one horizon: RMSE, coverage of tracked, trained and Gaussian intervals, and the
    interval that would have covered the held-out part over that of training, at 80 % and 95 %."""

    rmse: float
    tracked: Shares
    trained: Shares
    gaussian: Shares
    wider: Shares


def links(store: Path, dataset: str) -> tuple[list[Array], list[Array]]:
    """Times in seconds and logs of every link with enough samples."""
    with duckdb_views.connect(store) as connection:
        got = connection.execute(SQL.format(what=SETS[dataset]), [dataset]).fetchnumpy()
    names = np.asarray(got["link"], dtype=str)
    edges = np.flatnonzero(names[1:] != names[:-1]) + 1
    times, logs = got["t"], np.log(np.asarray(got["value"], np.float64))
    parts = [part for part in np.split(np.arange(len(names)), edges) if len(part) >= LEAST]
    return [times[part] for part in parts], [logs[part] for part in parts]


def score_forecaster(name: str, times: list[Array], values: list[Array]) -> tuple[list[Score], float]:
    """One score a horizon, and CPU seconds to fit."""
    cuts = [int(TRAIN_SHARE * len(series)) for series in values]
    past = (
        [t[:c] for t, c in zip(times, cuts, strict=True)],
        [v[:c] for v, c in zip(values, cuts, strict=True)],
    )
    begin = time.process_time()
    FORECASTERS[name]().train(*past)
    fit_s = time.process_time() - begin
    found = walk_forward(FORECASTERS[name](), times, values, cuts, AHEAD)
    calibrated = intervals(FORECASTERS[name], *past, AHEAD)
    return [_score(found, h, calibrated[h]) for h in range(len(AHEAD))], fit_s


def _score(found: Walk, h: int, trained: Intervals) -> Score:
    z, error = found.standardised(h), found.error[h][found.held(h)]
    real = Intervals.of(z)
    return Score(
        float(np.sqrt(np.mean(error**2))),
        _covered(z, tracked(found, h, trained, AHEAD[h])),
        _covered(z, np.array([trained.d80, trained.d95])),
        _covered(z, GAUSSIAN[0]),
        (real.d80 / trained.d80, real.d95 / trained.d95),
    )


def _covered(z: Array, widths: Array) -> Shares:
    share = (np.abs(z)[:, None] <= widths).mean(axis=0)
    return float(share[0]), float(share[1])


def page(store: Path) -> Iterator[str]:
    """Lines of the page."""
    yield HEAD
    for dataset, what in SETS.items():
        times, values = links(store, dataset)
        step = np.median(np.concatenate([np.diff(t) for t in times]))
        held = sum(len(v) - int(TRAIN_SHARE * len(v)) for v in values)
        yield f"## {dataset} ({'round trip' if what == 'rtt_s' else 'bandwidth'})\n"
        yield f"{len(values)} links, {held:,} held-out samples, median step {step:,.0f} s; {_dates(times)}.\n"
        scored = {name: score_forecaster(name, times, values) for name in FORECASTERS}
        yield from _errors(scored)
        yield from _coverage({name: scores for name, (scores, _) in scored.items()})
        yield from _causes(scored["mixture"][0])
    yield from _controller(store)
    yield from engines(store)
    yield "## Cost\n"
    for size in (4, 8, 60):
        tick_s, forecast_s = step_cost(size)
        yield (
            f"* K = {size}, {size * (size - 1):,} links: a telemetry tick {1e6 * tick_s:.0f} us (every link "
            f"filtered and scored), a forecast at six horizons {1e6 * forecast_s:.0f} us."
        )


def _dates(times: list[Array]) -> str:
    """When learning begins, when half of the links are held out, and the end."""
    edges = (
        min(t[0] for t in times),
        float(np.median([t[int(TRAIN_SHARE * len(t))] for t in times])),
        max(t[-1] for t in times),
    )
    first, cut, last = (f"{datetime.fromtimestamp(edge, UTC):%a %d %b %Y %H:%M}" for edge in edges)
    return f"learned from {first}, held out from {cut} (median link) to {last} UTC"


def _errors(scored: dict[str, tuple[list[Score], float]]) -> Iterator[str]:
    yield "| RMSE | " + " | ".join(f"h = {h}" for h in AHEAD) + " | fit |\n|---|" + "---|" * (len(AHEAD) + 1)
    best = [min(scores[h].rmse for scores, _ in scored.values()) for h in range(len(AHEAD))]
    for name, (scores, fit_s) in scored.items():
        cells = (
            f"*{score.rmse:.4f}*" if score.rmse == least else f"{score.rmse:.4f}"
            for score, least in zip(scores, best, strict=True)
        )
        yield f"| {name} | " + " | ".join(cells) + f" | {fit_s:.1f} |"
    yield ""
    lost = [
        h for h, score in zip(AHEAD, scored["mixture"][0], strict=True) if _beaten(scored, AHEAD.index(h))
    ]
    if lost:
        yield f"Persistence beats the mixture at h = {', '.join(map(str, lost))}.\n"


def _beaten(scored: dict[str, tuple[list[Score], float]], h: int) -> bool:
    return scored["persistence"][0][h].rmse < scored["mixture"][0][h].rmse


def _coverage(scored: dict[str, list[Score]]) -> Iterator[str]:
    yield (
        "| coverage 80 / 95 % | " + " | ".join(f"h = {h}" for h in AHEAD) + " |\n|---|" + "---|" * len(AHEAD)
    )
    for name, row in scored.items():
        yield f"| {name} | " + " | ".join(_pair(s.tracked) for s in row) + " |"
    row = scored["mixture"]
    yield "| mixture, trained only | " + " | ".join(_pair(s.trained) for s in row) + " |"
    yield "| mixture, Gaussian | " + " | ".join(_pair(s.gaussian) for s in row) + " |\n"


def _missed(shares: Shares) -> tuple[bool, ...]:
    # Half a unit of the printed digit: what reads as inside is inside.
    return tuple(abs(c - t) > band + 5e-4 for c, (t, band) in zip(shares, TARGETS, strict=True))


def _pair(shares: Shares) -> str:
    texts = (f"{100 * share:.1f}" for share in shares)
    return " / ".join(
        f"**{text}**" if miss else text for text, miss in zip(texts, _missed(shares), strict=True)
    )


def _causes(row: list[Score]) -> Iterator[str]:
    """Why the mixture missed a target: how held-out errors differ from those that calibrated."""
    causes = [
        f"{100 * target:.0f} % at h = {h}: {ratio:.2f}"
        for h, score in zip(AHEAD, row, strict=True)
        for (target, _), ratio, miss in zip(TARGETS, score.wider, _missed(score.tracked), strict=True)
        if miss
    ]
    if causes:
        yield (
            "Misses of the mixture, with the width that would have covered the held-out part over that of "
            f"training: {'; '.join(causes)}. Away from 1, the errors that calibrated are not spread like "
            "those of the held-out part, and it was over before tracking had made up for it.\n"
        )
    else:
        yield "The mixture meets both targets at every horizon.\n"


def _controller(store: Path) -> Iterator[str]:
    yield CONTROLLER
    for scenario, dataset in WINDOWS:
        seen = window(store, scenario, dataset)
        yield (
            f"{seen.scenario} on {seen.dataset}: {seen.hours:.1f} h, {seen.links} links; loading, fitting "
            f"and calibrating took {seen.setup_s:.1f} s of CPU.\n"
        )
        yield "| horizon | RMSE | holding | coverage 80 / 95 % | without noise |\n|---|---|---|---|---|"
        for score, clear in zip(seen.scores, window(store, scenario, dataset, noise=0.0).scores, strict=True):
            covered = f"{_pair(score.covered)} | {_pair(clear.covered)}"
            yield f"| {score.horizon_s:,.0f} s | {score.rmse:.4f} | {score.held_rmse:.4f} | {covered} |"
        yield ""


def engines(store: Path) -> Iterator[str]:
    """Lines of the section "Filter engines"."""
    yield ENGINES_HEAD
    for scenario, dataset in ENGINE_WINDOWS:
        seen = {engine: window(store, scenario, dataset, engine=engine) for engine in ENGINES}
        one = seen["bank"]
        heads = [f"{score.horizon_s:,.0f} s" for score in one.scores]
        yield f"{one.scenario} on {one.dataset}: {one.hours:.1f} h, {one.links} links.\n"
        yield f"| engine | {' | '.join(heads)} | training |\n|---|{'---|' * len(heads)}---|"
        for engine, found in seen.items():
            cells = " | ".join(_cell(score) for score in found.scores)
            yield f"| {engine} | {cells} | {training_s(store, scenario, dataset, engine):.1f} |"
        yield ""
    yield ENGINE_COST
    yield "| engine | telemetry tick | forecast |\n|---|---|---|"
    for engine in ENGINES:
        tick_s, forecast_s = step_cost(8, 50, engine)
        yield f"| {engine} | {1e6 * tick_s:,.0f} us | {1e6 * forecast_s:,.0f} us |"
    yield ""


def _cell(score: HorizonScore) -> str:
    return f"{score.rmse:.4f}, {_pair(score.covered)}"


if __name__ == "__main__":
    for line in engines(Path(sys.argv[1])) if sys.argv[2:] == ["engines"] else page(Path(sys.argv[1])):
        print(line, flush=True)
