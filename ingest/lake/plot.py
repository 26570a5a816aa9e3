"""`twin traces NAME --plot`: the series of a data set as small multiples, a panel each link, GPU or host.

Each panel has axes of its own, from 0: links of one set differ by orders of magnitude, and in when they were
measured. A panel with more samples than it can show has their mean in equal spans of time and a band from
least to largest. Lines stop at gaps.
"""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import NotFoundError, UsageError
from ingest.core.terminal import in_line
from ingest.lake import duckdb_views, lake, summary
from ingest.lake.series_statistics import GAP, Array

PANELS = 24
"""Panels at most: the series with the most samples."""
POINTS = 300
"""Spans of time in a panel."""
LEGEND = "dotted: mean; CV: standard deviation over mean; band: least to largest where samples are averaged"
Format = tuple[str, dict[str, None]]
FORMATS: dict[str, Format] = {".svg": ("svg", {"Date": None}), ".png": ("png", {"Software": None})}
"""By ending: the format, and what would make it differ from one machine or moment to the next."""
_COLUMNS = 4
_UNITS = {
    "bandwidth_bps": ("Mb/s", 1e-6),
    "rtt_s": ("ms RTT", 1e3),
    "power_w": ("W", 1.0),
    "util": ("% busy", 100.0),
    "mem_used_bytes": ("GB used", 1e-9),
    "gpus_available": ("GPUs", 1.0),
    "duration_s": ("s", 1.0),
}
_BLUE, _GREY = "#2b6ca3", "#555555"


def picture(store: Path, name: str, path: Path) -> bytes:
    """The picture of a data set in the format that the name of `path` asks for; equal lakes give equal bytes.

    Raises:
        UsageError: another format than SVG or PNG.
        NotFoundError: the lake has no such data set, or nothing in it that varies in time.
    """
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {path}: the name must end in {' or '.join(FORMATS)}")
    info = lake.held(store, name)
    with duckdb_views.connect(store) as connection:
        for table in summary.SERIES:
            if table in info.rows:
                column, series = summary.series(connection, name, table)
                shown = {key: tv for key, tv in series.items() if len(tv[0]) > 1}
                if shown:
                    title = f"{name}: {summary.SERIES[table][2]}"
                    return _draw(title, column, shown, FORMATS[path.suffix.lower()])
    raise NotFoundError(f"{name}: nothing in it has two samples in time; there is nothing to draw")


def _draw(title: str, column: str, series: dict[str, tuple[Array, Array]], form: Format) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    most = sorted(series, key=lambda key: (-len(series[key][0]), key))[:PANELS]
    names = sorted(most)
    columns = min(_COLUMNS, len(names))
    rows = -(-len(names) // columns)
    unit, factor = _UNITS[column]
    with mpl.rc_context({"font.size": 7, "svg.hashsalt": "twin", "axes.spines.top": False}):
        figure = Figure(figsize=(3.0 * columns + 0.4, 1.6 * rows + 0.9), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, name in zip(grid.flat, names, strict=False):
            _panel(axes, name, series[name][0], series[name][1] * factor)
            _times(axes)
        for axes in grid.flat[len(names) :]:
            axes.set_visible(False)
        figure.supylabel(unit)
        more = f", the {len(names)} with the most samples of {len(series):,}" if len(series) > PANELS else ""
        figure.suptitle(f"{title}{more}\n{LEGEND}", fontsize=8)
        out = io.BytesIO()
        figure.savefig(out, format=form[0], metadata=form[1], dpi=150)
    return out.getvalue()


def _panel(axes: Any, name: str, times_s: Array, values: Array) -> None:
    mean, variation = float(values.mean()), float(values.std())
    subtitle = f"{len(values):,} samples" + (f", CV {variation / mean:.2f}" if mean else "")
    axes.set_title(f"{in_line(name)}\n{subtitle}", fontsize=6.5, parse_math=False)
    axes.spines["right"].set_visible(False)
    axes.axhline(mean, color=_GREY, lw=0.5, ls=":")
    steps = np.diff(times_s)
    longest = GAP * max(float(np.median(steps)), float(times_s[-1] - times_s[0]) / POINTS)
    if len(times_s) > POINTS:
        times_s, low, values, high = _binned(times_s, values)
        axes.fill_between(_dates(times_s), low, high, color=_BLUE, alpha=0.25, lw=0)
    breaks = np.flatnonzero(np.diff(times_s) > longest) + 1
    axes.plot(
        _dates(np.insert(times_s, breaks, times_s[breaks])),
        np.insert(values, breaks, np.nan),
        color=_BLUE,
        lw=0.7,
        marker=".",
        ms=1.5,
    )


def _binned(times_s: Array, values: Array) -> tuple[Array, Array, Array, Array]:
    """Middle, least, mean and largest of each of `POINTS` equal spans that has a sample."""
    edges = np.linspace(times_s[0], times_s[-1], POINTS + 1)
    at = np.clip(np.searchsorted(edges, times_s, side="right") - 1, 0, POINTS - 1)
    starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
    counts = np.diff(np.r_[starts, len(at)])
    return (
        np.add.reduceat(times_s, starts) / counts,
        np.minimum.reduceat(values, starts),
        np.add.reduceat(values, starts) / counts,
        np.maximum.reduceat(values, starts),
    )


def _dates(times_s: Array) -> list[datetime]:
    return [datetime.fromtimestamp(t, UTC) for t in times_s.tolist()]


def _times(axes: Any) -> None:
    from matplotlib import dates

    locator = dates.AutoDateLocator(minticks=2, maxticks=5)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.tick_params(labelsize=5.5)
    axes.xaxis.offsetText.set_fontsize(5.5)
    axes.set_ylim(bottom=0)
