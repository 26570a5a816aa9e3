"""The rows of a query as bytes: an aligned table, JSON, CSV, Parquet or an Arrow stream.

Every value of every type has a form. Times that Python has no value for (before year 1, after 9999, infinite,
nanoseconds) are shown as DuckDB writes them.
"""

import csv
import io
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from typing import Any, Literal, get_args

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core.errors import UsageError
from ingest.lake import duckdb_views
from replay.metrics.formatting import counted, parts

Format = Literal["table", "json", "csv", "parquet", "arrow"]
WIDEST = 100
"""Most characters of a cell in the aligned table; other formats do not truncate."""
FORMATS: tuple[Format, ...] = get_args(Format)
_ROWS = 10_000
"""Rows that are Python values at a time."""


def render(result: pa.Table, form: Format, room: int | None = None) -> bytes:
    """Returns the rows as bytes: an aligned table, JSON (a list of objects), CSV, Parquet or an Arrow stream.

    A table wider than `room` letters is split into several, each with the first column; cells are cut
    at `WIDEST` characters.

    Raises:
        UsageError: the format has no form for a type in the rows.
    """
    try:
        return _rendered(result, form, room)
    except RecursionError as error:
        raise UsageError(
            f"the rows are nested too deeply for {form}; cast to VARCHAR or take arrow"
        ) from error


def _rendered(result: pa.Table, form: Format, room: int | None) -> bytes:
    if form == "parquet":
        return _parquet(result)
    if form == "arrow":
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, result.schema) as writer:
            writer.write_table(result)
        return sink.getvalue()
    if form == "table":
        return _table(result, room).encode()
    return {"json": _json, "csv": _csv}[form](result).encode()


def _parquet(result: pa.Table) -> bytes:
    sink = io.BytesIO()
    try:
        pq.write_table(result, sink, compression="zstd")
    except pa.ArrowException as error:
        raise UsageError(
            f"Parquet cannot hold these rows ({error}); cast to VARCHAR or take arrow"
        ) from error
    return sink.getvalue()


def _rows(result: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Returns the rows as Python values, some at a time."""
    for batch in result.to_batches(max_chunksize=_ROWS):
        yield from zip(*(_values(column) for column in batch.columns), strict=True)


def _values(column: pa.Array) -> list[Any]:
    """Returns the values of a column; text for those that Python cannot hold."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        kind = column.type
    if pa.types.is_map(kind):
        return [row and [(e["key"], e["value"]) for e in row] for row in _lists(column)]
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*map(_values, column.flatten()), strict=True)
        return [
            dict(zip(names, row, strict=True)) if there.as_py() else None
            for there, row in zip(column.is_valid(), rows, strict=True)
        ]
    return _as_text(column)


def _lists(column: pa.Array) -> list[Any]:
    return [_values(row.values) if row.is_valid else None for row in column]


def _as_text(column: pa.Array) -> list[str | None]:
    """Returns the values as DuckDB writes them."""
    with _writer().cursor() as connection:
        connection.register("rows", pa.table({"value": column}))
        return [row[0] for row in connection.execute("SELECT value::VARCHAR FROM rows").fetchall()]


@cache
def _writer() -> duckdb.DuckDBPyConnection:
    return duckdb_views.opened()


def _json(result: pa.Table) -> str:
    names = result.schema.names
    objects = (
        json.dumps(
            {name: _plain(value) for name, value in zip(names, row, strict=True)},
            ensure_ascii=False,
            allow_nan=False,
        )
        for row in _rows(result)
    )
    return f"[{', '.join(objects)}]\n"


def _plain(value: Any) -> Any:
    """Returns a value as JSON: decimals as numbers, NaN and infinity as null, times as text."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return value if isinstance(value, str | int | None) else str(value)


def _csv(result: pa.Table) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(result.schema.names)
    writer.writerows([["" if value is None else value for value in row] for row in _rows(result)])
    return sink.getvalue()


def _table(result: pa.Table, room: int | None) -> str:
    """Aligns the columns, numbers to the right, one line a row and table."""
    names = result.schema.names
    numeric = [True] * len(names)
    cells = [names]
    for row in _rows(result):
        numeric = [known and isinstance(v, int | float | None) for known, v in zip(numeric, row, strict=True)]
        cells.append([_cell(value) for value in row])
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    cells.insert(1, ["-" * width for width in widths])
    columns = [list(range(len(names)))] if room is None else parts(widths, 1, room)
    tables = ["".join(f"{_line(row, widths, numeric, part)}\n" for row in cells) for part in columns]
    return "\n".join(tables) + f"({counted(result.num_rows, 'row')})\n"


def _line(row: list[str], widths: list[int], numeric: list[bool], part: list[int]) -> str:
    padded = (row[i].rjust(widths[i]) if numeric[i] else row[i].ljust(widths[i]) for i in part)
    return "  ".join(padded).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = " ".join(str(value).split())
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
