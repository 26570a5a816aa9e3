"""`twin traces`: a line for each data set and table of the lake.

Figures are per series (a directed link, a GPU, a host) and the median over the series is shown. Where a link
has rows of different lengths (whole runs and the seconds inside them), only those of at least half the
longest duration count towards interval, gaps, variation and correlation.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ingest.core.units import NS_PER_S
from ingest.lake import duckdb_views, lake
from ingest.lake.schema import TABLES, TIME_COLUMN
from ingest.lake.series_statistics import GAP, Array, autocorrelation_time_s
from ingest.lake.undated import is_dated

SCHEMA = "twin.traces/1"
SERIES = {
    "link_samples": ("src || ' > ' || dst", ("bandwidth_bps", "rtt_s"), "links"),
    "gpu_samples": (
        "coalesce(host, '') || '/' || coalesce(gpu, '')", ("power_w", "util", "mem_used_bytes"), "GPUs",
    ),
    "host_samples": ("coalesce(host, '')", ("power_w", "net_tx_bytes_s"), "hosts"),
    "availability": ("coalesce(domain, '')", ("gpus_available",), "domains"),
    "carbon_intensity": ("zone", ("direct_g_per_kwh", "life_cycle_g_per_kwh"), "zones"),
    "electricity_prices": ("zone", ("usd_per_mwh",), "zones"),
    "jobs": ("''", ("duration_s",), "jobs"),
}  # fmt: skip
"""Table -> (SQL naming a series, columns of which the first with values is looked at, what a series is)."""
# fmt: off
COLUMNS = (
    "dataset", "table", "rows", "series", "series_kind", "first", "last", "dated", "interval_s", "gaps",
    "coverage", "cv", "autocorrelation_time_s", "spark", "licence", "synthetic",
)
# fmt: on
_BARS = " ▁▂▃▄▅▆▇█"
_WIDTH = 24


@dataclass(frozen=True, slots=True)
class Line:
    """One table of one data set. Times are UTC; `coverage` is the share of the span outside gaps."""

    dataset: str
    table: str
    rows: int
    series: int
    series_kind: str
    first: str | None
    last: str | None
    dated: bool | None  # False: laid at an arbitrary day, since the files bear no dates
    interval_s: float | None
    gaps: int
    coverage: float | None
    cv: float | None
    autocorrelation_time_s: float | None
    spark: str
    licence: str
    synthetic: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything in the lake, ordered by data set and table."""

    lines: tuple[Line, ...]

    def to_json(self) -> dict[str, Any]:
        """Schema `twin.traces/1`; `columns` are the keys of a row worth a column in a table."""
        return {"schema": SCHEMA, "columns": list(COLUMNS), "rows": [asdict(line) for line in self.lines]}


@dataclass(frozen=True, slots=True)
class _Shape:
    """Figures of one series."""

    interval_s: float
    gaps: int
    coverage: float
    cv: float
    tau_s: float


def summarise(store: Path) -> Summary:
    """Returns the summary of the lake in `store`; an empty lake has no lines.

    Raises:
        DamageError: a part of the lake is missing or cut.
    """
    lines = []
    with duckdb_views.connect(store) as connection:
        for name, info in sorted(lake.datasets(store).items()):
            for table, rows in info.rows.items():
                lines.append(line(connection, name, table, rows, info.meta))
    return Summary(tuple(lines))


def line(
    connection: duckdb.DuckDBPyConnection, dataset: str, table: str, rows: int, meta: dict[str, Any]
) -> Line:
    """Returns the line of one table of a data set; `meta` is what was stated of the set."""
    time = TIME_COLUMN.get(table, "ts")
    first, last = _span(connection, dataset, table, time)
    held = series(connection, dataset, table)[1] if table in SERIES else {}
    shapes = [_shape(times, values) for times, values in held.values() if len(times) > 1]
    longest = max(held.values(), key=lambda tv: len(tv[0]), default=None)
    kind = SERIES[table][2] if table in SERIES else "rows"
    return Line(
        dataset=dataset,
        table=table,
        rows=rows,
        series=rows if kind in ("jobs", "rows") else _count(connection, dataset, table),
        series_kind=kind,
        first=None if first is None else utc(first),
        last=None if last is None else utc(last),
        dated=None if first is None else is_dated(first, meta.get("start")),
        interval_s=_median([s.interval_s for s in shapes]),
        gaps=sum(s.gaps for s in shapes),
        coverage=_median([s.coverage for s in shapes]),
        cv=_median([s.cv for s in shapes]),
        autocorrelation_time_s=_median([s.tau_s for s in shapes]),
        spark=sparkline(*longest) if longest is not None and len(longest[0]) > 1 else "",
        licence=str(meta.get("licence", "not stated")),
        synthetic=bool(meta.get("synthetic", False)),
    )


def _span(
    connection: duckdb.DuckDBPyConnection, dataset: str, table: str, time: str
) -> tuple[int | None, int | None]:
    if time not in TABLES[table].names:
        return None, None
    row = connection.execute(
        f"SELECT epoch_ns(min({time})), epoch_ns(max({time})) FROM {table} WHERE dataset = ?", [dataset]
    ).fetchone()
    return (None, None) if row is None or row[0] is None else (int(row[0]), int(row[1]))


def _count(connection: duckdb.DuckDBPyConnection, dataset: str, table: str) -> int:
    """Number of series of a data set, whichever columns they have."""
    sql = f"SELECT count(DISTINCT {SERIES[table][0]}) FROM {table} WHERE dataset = ?"
    row = connection.execute(sql, [dataset]).fetchone()
    return int(row[0]) if row else 0


def _value(connection: duckdb.DuckDBPyConnection, dataset: str, table: str) -> str:
    """The column whose variation is looked at: rates and round trips of one set are not mixed."""
    columns = SERIES[table][1]
    counts = ", ".join(f"count({column})" for column in columns)
    row = connection.execute(f"SELECT {counts} FROM {table} WHERE dataset = ?", [dataset]).fetchone()
    return next((column for column, n in zip(columns, row or (), strict=False) if n), columns[0])


def series(
    connection: duckdb.DuckDBPyConnection, dataset: str, table: str
) -> tuple[str, dict[str, tuple[Array, Array]]]:
    """Returns the column looked at, and by name of the series its seconds and values, ascending.

    Values at equal times are averaged.
    """
    import polars as pl  # 0.2 s that `twin --help` need not pay

    time = TIME_COLUMN.get(table, "ts")
    name, value = SERIES[table][0], _value(connection, dataset, table)
    longest = (
        "AND coalesce(duration_s, 0) * 2 >= (SELECT coalesce(max(duration_s), 0) FROM link_samples "
        "WHERE dataset = $dataset)"
        if table == "link_samples"
        else ""
    )
    samples = pl.DataFrame(
        connection.cursor()
        .sql(
            f"""SELECT {name} AS name, epoch_ns({time}) AS ns, {value} AS value FROM {table}
                WHERE dataset = $dataset AND {value} IS NOT NULL {longest}""",
            params={"dataset": dataset},
        )
        .to_arrow_table()
    )
    names = pl.Enum(samples["name"].unique().sort())  # sorts and groups as numbers do
    ordered = samples.with_columns(pl.col("name").cast(names)).sort("name", "ns")
    averaged = ordered.group_by("name", "ns", maintain_order=True).agg(pl.mean("value"))
    parts = averaged.partition_by("name", as_dict=True, maintain_order=True)
    return value, {
        str(key): (part["ns"].to_numpy() / NS_PER_S, part["value"].to_numpy())
        for (key,), part in parts.items()
    }


def _shape(times_s: Array, values: Array) -> _Shape:
    steps = np.diff(times_s)
    interval = float(np.median(steps))
    gaps = steps[steps > GAP * interval]
    mean = float(values.mean())
    return _Shape(
        interval_s=interval,
        gaps=len(gaps),
        coverage=1 - float(gaps.sum()) / float(times_s[-1] - times_s[0]),
        cv=float(values.std()) / mean if mean else 0.0,
        tau_s=autocorrelation_time_s(times_s, values),
    )


def sparkline(times_s: Array, values: Array, width: int = _WIDTH) -> str:
    """Mean of each of `width` equal spans of time as a bar from 0 to the largest; blank without a sample."""
    span = (times_s - times_s[0]) / (times_s[-1] - times_s[0])
    bins = np.minimum((span * width).astype(np.int64), width - 1)
    count = np.bincount(bins, minlength=width)
    mean = np.bincount(bins, weights=values, minlength=width) / np.maximum(count, 1)
    top = float(mean.max())
    height = np.ceil(mean / top * (len(_BARS) - 1)).astype(int) if top > 0 else np.ones(width, int)
    return "".join(_BARS[max(1, h)] if n else " " for h, n in zip(height, count, strict=True))


def _median(values: list[float]) -> float | None:
    return float(f"{np.median(values):.4g}") if values else None


def utc(ns: int) -> str:
    """Returns a time as text, to the second."""
    return datetime.fromtimestamp(ns // NS_PER_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
