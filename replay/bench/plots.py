"""Plots of `twin bench --plots`: time, regret, differences, noise, load, fronts, decision times."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core import durable
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
from replay.bench.paired_statistics import average, time_per_token
from replay.bench.result import ScenarioResult, WorldResult, regret
from replay.log.run_log import RunReader
from replay.metrics import pareto
from replay.metrics.paired_comparison import PairedDifference, student
from replay.store import run_index

Json = dict[str, Any]
FARTHEST = 2.5
"""Slowest run of a front plot, as a multiple of the fastest one."""
COLOURS = {"better": "#0b7a75", "equal": GREY, "worse": "#b3541e"}
"""Colours of verdicts."""
OVER_SEEDS = "mean and, of several seeds, 95 % interval"


@dataclass(frozen=True, slots=True)
class Plot:
    """A kind of plot: title, whether a result has its data, how to draw it, number of its rows."""

    shows: str
    has_data: Callable[[ScenarioResult], bool]
    draw: Callable[[Path, Any, ScenarioResult], None]
    rows: Callable[[ScenarioResult], int] = lambda _: 0


@dataclass(frozen=True, slots=True)
class Written:
    """A written plot."""

    plot: str
    shows: str
    path: Path
    size_bytes: int

    def to_json(self) -> Json:
        """Returns all fields by name."""
        return {"plot": self.plot, "shows": self.shows, "path": str(self.path), "bytes": self.size_bytes}


def write(
    store: Path, panels: Sequence[Panel], folder: Path, wanted: Iterable[str] | None = None, prefix: str = ""
) -> list[Written]:
    """Draws the plots that have data into `folder`, as `<prefix><plot>.svg`; returns the written files.

    `wanted`: names of plots; None for all.

    Raises:
        StorageError: a file cannot be written.
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
    """Returns one plot as SVG; None where no scenario has the data."""
    plot = PLOTS[name]
    fitting = [panel for panel in panels if plot.has_data(panel.result)]
    if not fitting:
        return None
    rows = max(plot.rows(panel.result) for panel in fitting)
    return figure(fitting, plot.shows, lambda axis, result: plot.draw(store, axis, result), rows)


def times(_: Path, axis: Any, result: ScenarioResult) -> None:
    """Draws time per token of the fastest policies, and the mean bound."""
    found = {
        policy: [time_per_token(outcome) for outcome in result.of(policy) if outcome.kpis]
        for policy in result.policies
    }
    bars(axis, _best(result, found, 1e6), "us per token")
    bounds = (bound_of(played) for played in result.worlds)
    least = average([bound for bound in bounds if bound is not None])
    if least is not None:
        axis.axvline(1e6 * least, color=BOUND.colour, ls="--", lw=1, label="bound")


def bound_of(played: WorldResult) -> float | None:
    """Returns seconds per token of the bound of a world; None without one."""
    wall_s = next((outcome.kpis.wall_s for outcome in played.outcomes if outcome.kpis), None)
    bound = played.bound
    return None if wall_s is None or bound is None or not bound.tokens else wall_s / bound.tokens


def regrets(_: Path, axis: Any, result: ScenarioResult) -> None:
    """Draws the share of the bound's tokens that was not trained."""
    found = {
        policy: [
            missed
            for outcome, played in zip(result.of(policy), result.worlds, strict=True)
            if (missed := regret(outcome, played.bound)) is not None
        ]
        for policy in result.policies
    }
    bars(axis, _best(result, found, 100.0), "regret, % of the bound's tokens")


def _best(result: ScenarioResult, found: dict[str, list[float]], factor: float) -> list[Bar]:
    """Returns a bar with interval for each of the policies with the lowest means."""
    style_of = styles(result.policies)
    rows = [
        Bar(
            policy,
            student(policy, factor * np.array(values)),
            style_of[policy].colour if policy in style_of else GREY,
        )
        for policy, values in found.items()
        if average(values) is not None
    ]
    return sorted(rows, key=lambda row: row.value.mean)[:MOST]


def differences(_: Path, axis: Any, result: ScenarioResult) -> None:
    """Draws the difference of every pair of policies, in the colour of its verdict."""
    rows = _pairs(result)
    axis.axvline(0.0, color=BOUND.colour, lw=0.8)
    for place, row in enumerate(rows):
        whiskers(axis, place, row.value, row.colour, "o")
    for verdict, colour in COLOURS.items():
        axis.plot([], [], color=colour, marker="o", ms=4, lw=1, label=verdict)
    names(axis, rows)
    axis.set_xlabel("tokens more than the other's, %")


def _pairs(result: ScenarioResult) -> list[Bar]:
    rows = []
    for policy in result.policies:
        for pair in result.versus(policy):
            v = pair.over_time
            value = PairedDifference(v.kpi, 100 * v.mean, 100 * v.low, 100 * v.high)
            rows.append(Bar(f"{policy} against {pair.base}", value, COLOURS[pair.verdict]))
    return rows


def noise(_: Path, axis: Any, result: ScenarioResult) -> None:
    """Draws the median loss over the level of noise, and a thin line for the worst seed."""
    style_of = {**styles(result.policies), "bound": BOUND}
    rows = sorted(result.robustness(), key=lambda row: row["clip"])
    for policy, style in style_of.items():
        own = [row for row in rows if row["policy"] == policy and row["median"] is not None]
        if own:
            levels = [0.0, *(100 * row["clip"] for row in own)]
            line = {"color": style.colour, "ls": "--" if style is BOUND else "-"}
            middle, worst = ([0.0, *(100 * row[which] for row in own)] for which in ("median", "worst"))
            axis.plot(levels, middle, marker=style.mark, ms=4, label=policy, **line)
            if len(result.worlds) > 1:
                axis.plot(levels, worst, lw=0.5, **line)
    axis.set_xlabel("noise on all links clipped at, ±%")
    axis.set_ylabel("time per token lost, %")


def load(_: Path, axis: Any, result: ScenarioResult) -> None:
    """Draws load stability over the arrival rate of jobs."""
    style_of = styles(result.policies)
    for policy, style in style_of.items():
        own = [row for row in result.under_load() if row.policy == policy]
        means = [100 * row.stability.mean for row in own]
        sides = [
            [100 * (row.stability.mean - row.stability.low) for row in own],
            [100 * (row.stability.high - row.stability.mean) for row in own],
        ]
        loads = [100 * row.load for row in own]
        axis.errorbar(
            loads, means, yerr=sides, color=style.colour, marker=style.mark, ms=4, capsize=2, label=policy
        )
    axis.ticklabel_format(useOffset=False)
    axis.set_xlabel("load, % of the scenario's")
    axis.set_ylabel("load stability, %")


def fronts(_: Path, axis: Any, result: ScenarioResult) -> None:
    """Draws every run by time and money, and the front of each seed; without far slower runs."""
    assert result.front is not None
    points, style_of = result.front.points, styles(result.policies)
    values = np.array([(1e6 * p["time_per_token_s"], 1e9 * p["usd_per_token"]) for p in points])
    near = values[:, 0] <= FARTHEST * values[:, 0].min()
    reached = {reach.policy: reach for reach in result.front.reaches}
    groups = np.array([p["policy"] if p["policy"] in style_of else OTHERS for p in points])
    for policy in (OTHERS, *style_of):
        own = values[near & (groups == policy)]
        if policy in reached and len(own):
            style, reach = style_of[policy], reached[policy]
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


def latency(store: Path, axis: Any, result: ScenarioResult) -> None:
    """Draws the distribution of the wall time of decisions."""
    limits: list[float] = []
    for policy, style in styles(result.policies).items():
        logged = [outcome.run_id for outcome in result.of(policy) if outcome.run_id]
        found = np.sort([t for run_id in logged for t in decision_times(store, run_id)])
        if len(found):
            share = 100 * np.arange(1, len(found) + 1) / len(found)
            limits += [1e3 * float(found[0]), 1e3 * float(found[-1])]
            axis.step(1e3 * found, share, where="post", color=style.colour, label=policy)
    axis.set_xscale("log")
    if limits:  # whole decades: a log axis without two of them has no labels
        axis.set_xlim(
            10.0 ** math.floor(math.log10(min(limits))), 10.0 ** (math.floor(math.log10(max(limits))) + 1)
        )
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_xlabel("ms a decision")
    axis.set_ylabel("share of decisions, %")


def decision_times(store: Path, run_id: str) -> list[float]:
    """Returns the wall time of every decision of a run, in seconds."""
    events = RunReader(run_index.folder(store, run_id)).events()
    return [e.wall["latency_s"] for e in events if e.type == "decided" and "latency_s" in e.wall]


def _ran(result: ScenarioResult) -> bool:
    return any(outcome.kpis for played in result.worlds for outcome in played.outcomes)


PLOTS = {
    "time": Plot(f"Time per token: {OVER_SEEDS}; the {MOST} fastest", _ran, times),
    "regret": Plot(
        f"Regret against the clairvoyant bound: {OVER_SEEDS}; the {MOST} best",
        lambda result: any(played.bound for played in result.worlds),
        regrets,
    ),
    "versus": Plot(
        "Paired differences in tokens: mean, 95 % interval over worlds and time",
        lambda result: bool(_pairs(result)),
        differences,
        lambda result: len(_pairs(result)),
    ),
    "noise": Plot(
        "Time per token lost to noise: median over seeds, thin: the worst",
        lambda result: bool(result.noisy),
        noise,
    ),
    "load": Plot(f"Load stability: {OVER_SEEDS}", lambda result: bool(result.loads), load),
    "front": Plot(
        "Time and money over a grid of weights; lines join what no run of the seed beats in both",
        lambda result: result.front is not None and bool(result.front.points),
        fronts,
    ),
    "latency": Plot("Wall time of decisions, all seeds: share that took no longer", _ran, latency),
}
"""Name of the file -> plot."""
