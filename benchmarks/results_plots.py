"""The plots of docs/results.md: regret, noise, fronts, decision times."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results_tables import Result, alone
from replay import pareto, runs
from replay.log import RunReader

COLOURS = {"hippo": "#0b7a75", "mpc": "#b3541e", "static": "#6b7280", "single": "#a08bc9", "bound": "#111827"}
FARTHEST = 2.5
"""Times the fastest run: what is slower would press the fronts into a corner."""
MARKS = {"hippo": "o", "mpc": "s", "static": "^", "single": "D"}


def draw(store: Path, results: Sequence[Result], folder: Path) -> list[tuple[str, str, str]]:
    """Write the plots there is data for beside the page; what they are of, file names, what they show."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {"font.size": 9, "svg.hashsalt": "twin", "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True}
    )
    made = []
    for title, (what, plot) in PLOTS.items():
        name = f"results-{title}.svg"
        figure = plot(store, results)
        if figure is not None:
            figure.savefig(folder / name, metadata={"Date": None})
            made.append((title, name, what))
    return made


def panels(found: Sequence[Result], draw_one: Callable[[Any, Result], None], columns: int = 3) -> Any:
    """A figure with a panel for each group; None without one."""
    from matplotlib import pyplot

    if not found:
        return None
    columns = min(columns, len(found))
    rows = -(-len(found) // columns)
    size = (3.6 * columns, 2.9 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, result in zip(axes.flat, found, strict=False):
        draw_one(axis, result)
        axis.set_title(result.title, fontsize=9)
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=min(len(handles), 3 * columns)
        )
    return figure


def regret(_: Path, results: Sequence[Result]) -> Any:
    """A bar for each of the twelve best policies in every group."""

    def one(axis: Any, result: Result) -> None:
        rows = [result.chapter.standing(policy) for policy in result.chapter.policies]
        known = sorted((row["regret"], row["policy"]) for row in rows if row["regret"] is not None)[:12]
        for place, (value, policy) in enumerate(known):
            axis.barh(place, 100 * value, color=COLOURS.get(policy, "#cbd5e1"))
            axis.text(100 * value, place, f" {100 * value:.1f} %", va="center", fontsize=7)
        axis.set_yticks(range(len(known)), [policy for _, policy in known], fontsize=7)
        axis.invert_yaxis()
        axis.set_xlim(0, 120 * max([value for value, _ in known], default=1.0))
        axis.set_xlabel("regret, %")

    return panels([r for r in results if any(entry.bound for entry in r.chapter.worlds)], one)


def noise(_: Path, results: Sequence[Result]) -> Any:
    """Median loss over the level of noise."""

    def one(axis: Any, result: Result) -> None:
        curves: dict[str, list[tuple[float, float]]] = {}
        for row in result.chapter.robustness():
            if row["median"] is not None:
                curves.setdefault(row["policy"], [(0.0, 0.0)]).append(
                    (100 * row["clip"], 100 * row["median"])
                )
        for policy, points in curves.items():
            if policy in COLOURS:
                axis.plot(*zip(*points, strict=True), marker=".", color=COLOURS[policy], label=policy)
        axis.set_xlabel("noise clipped at, +-%")
        axis.set_ylabel("time per token lost, %")

    return panels([r for r in results if r.chapter.noisy], one)


def fronts(_: Path, results: Sequence[Result]) -> Any:
    """Every run of the grid, and everybody's without, by time and money; what is far slower is left out."""

    def one(axis: Any, result: Result) -> None:
        assert result.chapter.front is not None
        points = result.chapter.front.points
        values = np.array([(1e6 * p["time_per_token_s"], 1e9 * p["usd_per_token"]) for p in points])
        best, near = pareto.front(values), values[:, 0] <= FARTHEST * values[:, 0].min()
        for policy in ("others", *MARKS):
            mine = [(p["policy"] if p["policy"] in MARKS else "others") == policy for p in points]
            own = values[near & np.array(mine)]
            if len(own):
                mark, colour = MARKS.get(policy, "."), COLOURS.get(policy, "#cbd5e1")
                axis.scatter(*own.T, marker=mark, s=26, color=colour, label=policy, alpha=0.8)
        axis.plot(*best[best[:, 0] <= FARTHEST * best[0, 0]].T, color=COLOURS["bound"], lw=0.8)
        axis.set_xlabel("us per token")
        axis.set_ylabel("egress, USD per 1e9 tokens")

    return panels([r for r in results if r.chapter.front is not None], one)


def latency(store: Path, results: Sequence[Result]) -> Any:
    """Distribution of decision times of `mpc` and `hippo`."""

    def one(axis: Any, result: Result) -> None:
        for policy in ("hippo", "mpc"):
            logged = [outcome.run_id for outcome in result.chapter.of(policy) if outcome.run_id]
            times = np.sort([t for run_id in logged for t in decision_times(store, run_id)])
            if len(times):
                share = np.arange(1, len(times) + 1) / len(times)
                axis.step(1e3 * times, share, where="post", color=COLOURS[policy], label=policy)
        axis.set_xscale("log")
        axis.set_xlim(1.0, 1e4)
        axis.set_xticks([1, 10, 100, 1000, 10_000], ["1", "10", "100", "1,000", "10,000"])
        axis.set_xlabel("ms a decision")
        axis.set_ylabel("share of decisions")

    return panels(alone(results), one)


def decision_times(store: Path, run_id: str) -> list[float]:
    """Seconds of every decision of a run, from its events."""
    events = RunReader(runs.folder(store, run_id)).events()
    return [e.wall["latency_s"] for e in events if e.type == "decided" and "latency_s" in e.wall]


PLOTS: dict[str, tuple[str, Callable[[Path, Sequence[Result]], Any]]] = {
    "regret": (
        "Regret: share of the clairvoyant bound's tokens that was not trained; the twelve best policies.",
        regret,
    ),
    "noise": ("Time per token lost to noise of every level on all links, median of seeds.", noise),
    "front": (
        "Time and money over a grid of weights, first seed; the line joins what no run beats in both.",
        fronts,
    ),
    "latency": ("Wall time of decisions, all seeds.", latency),
}
"""What each is of, and how it is drawn."""
