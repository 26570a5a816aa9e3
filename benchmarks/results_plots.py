"""The plots of docs/results.md: regret, noise, fronts, decision times."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.results_tables import Result
from replay.bench import plots as bench_plots
from replay.bench.chart_style import Panel
from replay.bench.plots import Written

PLOTS = ("regret", "noise", "front", "latency")
"""What the page has a place for; its tables show the rest."""


def draw(store: Path, results: Sequence[Result], folder: Path) -> list[Written]:
    """Write the plots there is data for beside the page."""
    panels = [Panel(result.title, result.chapter) for result in results]
    return bench_plots.write(store, panels, folder, PLOTS, prefix="results-")
