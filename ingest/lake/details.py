"""`twin traces NAME`: what is known of one data set, and the figures of each of its series."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.units import NS_PER_S
from ingest.lake import duckdb_views, lake, summary
from ingest.lake.series_statistics import GAP, Array
from ingest.lake.summary import Line

SCHEMA = "twin.dataset/1"


@dataclass(frozen=True, slots=True)
class SeriesFigures:
    """One series: a directed link, a GPU, a host. Times are UTC; `column` is what the figures are of."""

    table: str
    series: str
    column: str
    samples: int
    first: str
    last: str
    interval_s: float | None  # median step
    gaps: int  # steps of more than five median ones
    longest_gap_s: float
    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Details:
    """A data set: what was stated of it, what readers assumed, its tables and its series."""

    name: str
    title: str
    licence: str
    source: str
    synthetic: bool
    files: int
    rejected: int
    assumptions: tuple[str, ...]
    tables: tuple[Line, ...]
    series: tuple[SeriesFigures, ...]

    def to_json(self) -> dict[str, Any]:
        """The object of `twin traces NAME --json`."""
        return {"schema": SCHEMA, **asdict(self)}


def details(store: Path, name: str) -> Details:
    """Returns the details of a data set.

    Raises:
        NotFoundError: the lake has no such set. DamageError: a part of the lake is missing or cut.
    """
    info = lake.held(store, name)
    meta = info.meta
    found: list[SeriesFigures] = []
    with duckdb_views.connect(store) as connection:
        lines = tuple(summary.line(connection, name, table, rows, meta) for table, rows in info.rows.items())
        for table in info.rows:
            if table in summary.SERIES:
                column, held_series = summary.series(connection, name, table)
                found += [_figures(table, key, column, *of) for key, of in held_series.items()]
    return Details(
        name=name,
        title=str(meta.get("title", "")),
        licence=str(meta.get("licence", "not stated")),
        source=str(meta.get("citation", "not stated")),
        synthetic=bool(meta.get("synthetic", False)),
        files=info.sources,
        rejected=info.rejected,
        assumptions=tuple(meta.get("assumptions", ())),
        tables=lines,
        series=tuple(found),
    )


def _figures(table: str, name: str, column: str, times_s: Array, values: Array) -> SeriesFigures:
    steps = np.diff(times_s)
    interval_s = float(np.median(steps)) if len(steps) else None
    gaps = steps[steps > GAP * interval_s] if interval_s is not None else steps
    low, median, high = (float(q) for q in np.quantile(values, (0.0, 0.5, 1.0)))
    return SeriesFigures(
        table=table,
        series=name,
        column=column,
        samples=len(values),
        first=summary.utc(round(times_s[0] * NS_PER_S)),
        last=summary.utc(round(times_s[-1] * NS_PER_S)),
        interval_s=interval_s,
        gaps=len(gaps),
        longest_gap_s=float(gaps.max()) if len(gaps) else 0.0,
        low=low,
        median=median,
        high=high,
    )
