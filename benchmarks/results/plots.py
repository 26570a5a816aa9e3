"""The plots of docs/measured/results.md: regret, noise, fronts, decision times."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.results.tables import Result
from replay.bench import plots
from replay.bench.chart_style import Panel
from replay.bench.plots import Written

PLOTS = ("regret", "noise", "front", "latency")
"""Plots of the page; its tables show the rest."""


def draw(store: Path, results: Sequence[Result], folder: Path) -> list[Written]:
    """Writes the plots that have data into the folder of the page."""
    panels = [Panel(result.title, result.bench) for result in results]
    return plots.write(store, panels, folder, PLOTS, prefix="results-")
