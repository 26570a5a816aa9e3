"""The plots of `twin bench --plots`: time, regret, differences, noise, load, fronts, decision times."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core import durable
from replay.metrics import pareto
from replay.store import run_index as runs
from replay.bench.chart_style import (
    BOUND,
    GREY,
    MOST,
    OTHERS,
    Bar,
    Panel,
    bars,
    figure,
    names,
    styles,
    whiskers,
)
from replay.bench.load import steadiness
from replay.bench.result import Chapter, Played, regret
from replay.bench.paired_statistics import average, time_per_token
from replay.metrics.paired_comparison import Verdict, student
from replay.log.run_log import RunReader

Json = dict[str, Any]
FARTHEST = 2.5
"""Times the fastest run: what is slower would press the fronts into a corner."""
COLOURS = {"better": "#0b7a75", "equal": GREY, "worse": "#b3541e"}
"""Of verdicts."""
OVER_SEEDS = "mean and, of several seeds, 95 % interval"


@dataclass(frozen=True, slots=True)
class Plot:
    """One of the plots: what it shows, which chapters have the data, how one is drawn, how many rows."""

    shows: str
    fits: Callable[[Chapter], bool]
    draw: Callable[[Path, Any, Chapter], None]
    rows: Callable[[Chapter], int] = lambda _: 0


@dataclass(frozen=True, slots=True)
class Written:
    """A file with a plot."""

    plot: str
    shows: str
    path: Path
    size_bytes: int

    def to_json(self) -> Json:
        """All fields by name."""
        return {"plot": self.plot, "shows": self.shows, "path": str(self.path), "bytes": self.size_bytes}


def write(
    store: Path, panels: Sequence[Panel], folder: Path, wanted: Iterable[str] | None = None, prefix: str = ""
) -> list[Written]:
    """Draw what there is data for into `folder`, `<prefix><plot>.svg` each; the files that were written.

    `wanted` are the plots by name; all without.

    Raises:
        StorageError: the disk refused.
    """
    made = []
    for name in PLOTS if wanted is None else wanted:
        picture = drawn(store, name, panels)
        if picture is not None:
            path = folder / f"{prefix}{name}.svg"
            stored = durable.replace(path, picture)
            made.append(Written(name, PLOTS[name].shows, path, stored.size_bytes))
    return made


def drawn(store: Path, name: str, panels: Sequence[Panel]) -> bytes | None:
    """One plot as SVG; None where no chapter has the data."""
    plot = PLOTS[name]
    fitting = [panel for panel in panels if plot.fits(panel.chapter)]
    if not fitting:
        return None
    rows = max(plot.rows(panel.chapter) for panel in fitting)
    return figure(fitting, plot.shows, lambda axis, chapter: plot.draw(store, axis, chapter), rows)


def times(_: Path, axis: Any, chapter: Chapter) -> None:
    """Time per token of the fastest policies, and the mean bound."""
    found = {
        policy: [time_per_token(outcome) for outcome in chapter.of(policy) if outcome.kpis]
        for policy in chapter.policies
    }
    bars(axis, _best(chapter, found, 1e6), "us per token")
    bounds = (bound_of(played) for played in chapter.worlds)
    least = average([bound for bound in bounds if bound is not None])
    if least is not None:
        axis.axvline(1e6 * least, color=BOUND.colour, ls="--", lw=1, label="bound")


def bound_of(played: Played) -> float | None:
    """Seconds per token of the bound of a world; None where none is known."""
    wall_s = next((outcome.kpis.wall_s for outcome in played.outcomes if outcome.kpis), None)
    bound = played.bound
    return None if wall_s is None or bound is None or not bound.tokens else wall_s / bound.tokens


def regrets(_: Path, axis: Any, chapter: Chapter) -> None:
    """Share of the bound's tokens that was not trained."""
    found = {
        policy: [
            missed
            for outcome, played in zip(chapter.of(policy), chapter.worlds, strict=True)
            if (missed := regret(outcome, played.bound)) is not None
        ]
        for policy in chapter.policies
    }
    bars(axis, _best(chapter, found, 100.0), "regret, % of the bound's tokens")


def _best(chapter: Chapter, found: dict[str, list[float]], factor: float) -> list[Bar]:
    """The policies with the least mean, each with its interval."""
    told = styles(chapter.policies)
    rows = [
        Bar(
            policy,
            student(policy, factor * np.array(values)),
            told[policy].colour if policy in told else GREY,
        )
        for policy, values in found.items()
        if average(values) is not None
    ]
    return sorted(rows, key=lambda row: row.value.mean)[:MOST]


def differences(_: Path, axis: Any, chapter: Chapter) -> None:
    """Every pair that is judged, in the colour of its verdict."""
    rows = _pairs(chapter)
    axis.axvline(0.0, color=BOUND.colour, lw=0.8)
    for place, row in enumerate(rows):
        whiskers(axis, place, row.value, row.colour, "o")
    for verdict, colour in COLOURS.items():
        axis.plot([], [], color=colour, marker="o", ms=4, lw=1, label=verdict)
    names(axis, rows)
    axis.set_xlabel("tokens more than the other's, %")


def _pairs(chapter: Chapter) -> list[Bar]:
    rows = []
    for policy in chapter.policies:
        for pair in chapter.versus(policy):
            v = pair.over_time
            value = Verdict(v.kpi, 100 * v.mean, 100 * v.low, 100 * v.high)
            rows.append(Bar(f"{policy} against {pair.base}", value, COLOURS[pair.verdict]))
    return rows


def noise(_: Path, axis: Any, chapter: Chapter) -> None:
    """Median loss over the level of noise, and a thin line for the worst seed."""
    told = {**styles(chapter.policies), "bound": BOUND}
    rows = sorted(chapter.robustness(), key=lambda row: row["clip"])
    for policy, style in told.items():
        own = [row for row in rows if row["policy"] == policy and row["median"] is not None]
        if own:
            levels = [0.0, *(100 * row["clip"] for row in own)]
            look = {"color": style.colour, "ls": "--" if style is BOUND else "-"}
            middle, worst = ([0.0, *(100 * row[which] for row in own)] for which in ("median", "worst"))
            axis.plot(levels, middle, marker=style.mark, ms=4, label=policy, **look)
            if len(chapter.worlds) > 1:
                axis.plot(levels, worst, lw=0.5, **look)
    axis.set_xlabel("noise on all links clipped at, ±%")
    axis.set_ylabel("time per token lost, %")


def load(_: Path, axis: Any, chapter: Chapter) -> None:
    """Stability over the pace of the jobs."""
    told = styles(chapter.policies)
    for policy, style in told.items():
        own = [row for row in steadiness(chapter) if row.policy == policy]
        means = [100 * row.stability.mean for row in own]
        sides = [
            [100 * (row.stability.mean - row.stability.low) for row in own],
            [100 * (row.stability.high - row.stability.mean) for row in own],
        ]
        paces = [100 * row.load for row in own]
        axis.errorbar(
            paces, means, yerr=sides, color=style.colour, marker=style.mark, ms=4, capsize=2, label=policy
        )
    axis.ticklabel_format(useOffset=False)
    axis.set_xlabel("load, % of the scenario's")
    axis.set_ylabel("load stability, %")


def fronts(_: Path, axis: Any, chapter: Chapter) -> None:
    """Every run by time and money, and what nothing beats in both, seed by seed; without far slower runs."""
    assert chapter.front is not None
    points, told = chapter.front.points, styles(chapter.policies)
    values = np.array([(1e6 * p["time_per_token_s"], 1e9 * p["usd_per_token"]) for p in points])
    near = values[:, 0] <= FARTHEST * values[:, 0].min()
    reached = {reach.policy: reach for reach in chapter.front.reaches}
    groups = np.array([p["policy"] if p["policy"] in told else OTHERS for p in points])
    for policy in (OTHERS, *told):
        own = values[near & (groups == policy)]
        if policy in reached and len(own):
            style, reach = told[policy], reached[policy]
            label = f"{policy}: {reach.coverage:.0%}, {reach.volume:.2f}"
            axis.scatter(*own.T, marker=style.mark, s=24, color=style.colour, label=label, alpha=0.8)
        elif len(own):
            axis.scatter(*own.T, marker=".", s=24, color=GREY, label=policy, alpha=0.8)
    seeds = np.array([p["seed"] for p in points])
    for seed in np.unique(seeds):
        best = pareto.front(values[near & (seeds == seed)])
        axis.plot(*best.T, color=BOUND.colour, lw=0.8)
    axis.legend(
        fontsize=6.5, title="coverage, hypervolume\n(with utilisation)", title_fontsize=6.5, framealpha=0.7
    )
    left = int((~near).sum())
    axis.set_xlabel("us per token" + (f" ({left} slower runs are left out)" if left else ""))
    axis.set_ylabel("egress, USD per 1e9 tokens")


def latency(store: Path, axis: Any, chapter: Chapter) -> None:
    """Distribution of the wall time of decisions."""
    seen = []
    for policy, style in styles(chapter.policies).items():
        logged = [outcome.run_id for outcome in chapter.of(policy) if outcome.run_id]
        found = np.sort([t for run_id in logged for t in decision_times(store, run_id)])
        if len(found):
            share = 100 * np.arange(1, len(found) + 1) / len(found)
            seen += [1e3 * float(found[0]), 1e3 * float(found[-1])]
            axis.step(1e3 * found, share, where="post", color=style.colour, label=policy)
    axis.set_xscale("log")
    if seen:  # whole decades: an axis without two of them has no figures to read
        axis.set_xlim(
            10.0 ** math.floor(math.log10(min(seen))), 10.0 ** (math.floor(math.log10(max(seen))) + 1)
        )
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_xlabel("ms a decision")
    axis.set_ylabel("share of decisions, %")


def decision_times(store: Path, run_id: str) -> list[float]:
    """Seconds of every decision of a run, from its events."""
    events = RunReader(runs.folder(store, run_id)).events()
    return [e.wall["latency_s"] for e in events if e.type == "decided" and "latency_s" in e.wall]


def _ran(chapter: Chapter) -> bool:
    return any(outcome.kpis for played in chapter.worlds for outcome in played.outcomes)


PLOTS = {
    "time": Plot(f"Time per token: {OVER_SEEDS}; the {MOST} fastest", _ran, times),
    "regret": Plot(
        f"Regret against the clairvoyant bound: {OVER_SEEDS}; the {MOST} best",
        lambda chapter: any(played.bound for played in chapter.worlds),
        regrets,
    ),
    "versus": Plot(
        "Paired differences in tokens: mean, 95 % interval over worlds and time",
        lambda chapter: bool(_pairs(chapter)),
        differences,
        lambda chapter: len(_pairs(chapter)),
    ),
    "noise": Plot(
        "Time per token lost to noise: median over seeds, thin: the worst",
        lambda chapter: bool(chapter.noisy),
        noise,
    ),
    "load": Plot(f"Steadiness of jobs under load: {OVER_SEEDS}", lambda chapter: bool(chapter.loads), load),
    "front": Plot(
        "Time and money over a grid of weights; lines join what no run of the seed beats in both",
        lambda chapter: chapter.front is not None and bool(chapter.front.points),
        fronts,
    ),
    "latency": Plot("Wall time of decisions, all seeds: share that took no longer", _ran, latency),
}
"""By the name of the file."""
