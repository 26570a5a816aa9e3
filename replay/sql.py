"""SQL over the event logs and the lake: an in-memory DuckDB over committed files, so nobody is ever blocked.

A run that is being written is seen up to its last committed segment. Only questions are answered: a
statement that is no SELECT is refused, so that no query can write into the store.
"""

import csv
import io
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, get_args

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ingest import query as lake
from ingest.errors import UsageError
from replay import segment, views
from replay.log import RunReader
from replay.runs import RUNS

Format = Literal["table", "json", "csv", "parquet"]
WIDEST = 100
"""Characters of a cell in the aligned table; other formats never cut."""
FORMATS: tuple[Format, ...] = get_args(Format)


def query(store: Path, sql: str) -> pa.Table:
    """The answer to one SELECT over the views of `describe` and the tables of the lake.

    Raises:
        UsageError: not one SELECT, or DuckDB refuses it; its message is passed on.
        DamageError: a run in the store is not as it was written.
    """
    connection = connect(store)
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UsageError(
                "twin sql answers one SELECT (also WITH, FROM, DESCRIBE, SHOW, SUMMARIZE) at a time"
            )
        return connection.sql(statements[0].query).to_arrow_table()
    except duckdb.Error as error:
        raise UsageError(f"SQL: {error}\nviews: {', '.join(view.name for view in views.VIEWS)}") from error
    finally:
        connection.close()


def connect(store: Path) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with the tables of the lake and the views of the logs.

    Raises:
        DamageError: a segment is missing or changed (every digest is checked).
    """
    connection = lake.connect(store)
    connection.execute(
        "SET python_enable_replacements = false"
    )  # a name in the SQL is never one of our variables
    files, summaries = _stored(store)
    connection.register("stored_runs", pa.Table.from_pylist(summaries, schema=_SUMMARY))
    connection.execute(f"CREATE VIEW stored_events AS {_union(files)}")
    connection.execute("ALTER VIEW jobs RENAME TO trace_jobs")  # `jobs` are those of the runs
    for view in views.VIEWS:
        columns = ", ".join(f'"{name}"' for name, _ in view.columns)
        connection.execute(f"CREATE VIEW {view.name} ({columns}) AS {view.select}")
    return connection


def describe() -> str:
    """Documentation of the views over the logs."""
    return views.describe()


_SUMMARY = pa.schema(
    [
        ("run", pa.string()),
        ("finished", pa.bool_()),
        ("events", pa.int64()),
        ("segments", pa.int64()),
        ("stored_bytes", pa.int64()),
        ("digest", pa.string()),
        ("chain_head", pa.string()),
    ]
)


def _stored(store: Path) -> tuple[list[Path], list[dict[str, Any]]]:
    """(data files of all committed segments, one summary a run), sizes and digests checked."""
    files: list[Path] = []
    summaries = []
    folder = store / RUNS
    for run_dir in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not run_dir.is_dir():
            continue
        found = RunReader(run_dir).contents()
        files += [segment.checked(run_dir, piece) for piece in found.pieces]
        if found.chain:
            size = sum(piece.size_bytes for piece in found.pieces)
            state = (found.final, found.end, len(found.pieces), size)
            values = (run_dir.name, *state, found.chain[-1].stream, found.head)
            summaries.append(dict(zip(_SUMMARY.names, values, strict=True)))
    return files, summaries


def _union(files: list[Path]) -> str:
    """SELECT of the rows of all segments, the run's name taken from the directory."""
    columns = ", ".join(segment.SCHEMA.names)
    if not files:
        empty = ", ".join(f"NULL::{_SQL_TYPES[str(f.type)]} AS {f.name}" for f in segment.SCHEMA)
        return f"SELECT NULL::VARCHAR AS run, {empty} WHERE false"
    listed = ", ".join(_literal(path) for path in files)
    source = f"read_parquet([{listed}], filename = true)"
    return f"SELECT string_split(filename, '/')[-2] AS run, {columns} FROM {source}"


_SQL_TYPES = {"int64": "BIGINT", "int32": "INTEGER", "string": "VARCHAR"}


def _literal(path: Path) -> str:
    """A path as an SQL string that means this file only, whatever glob signs or quotes its folders hold."""
    text = "".join(f"[{c}]" if c in "[*?" else c for c in str(path.absolute()))
    return "'" + text.replace("'", "''") + "'"


def render(answer: pa.Table, form: Format) -> bytes:
    """The answer as bytes: an aligned table, JSON (a list of objects), CSV or Parquet."""
    if form == "parquet":
        sink = io.BytesIO()
        pq.write_table(answer, sink, compression="zstd")
        return sink.getvalue()
    rows = [list(row) for row in zip(*(column.to_pylist() for column in answer.columns), strict=True)]
    text = {"table": _table, "json": _json, "csv": _csv}[form](answer.schema.names, rows)
    return text.encode()


def _json(names: list[str], rows: list[list[Any]]) -> str:
    objects = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in rows]
    return json.dumps(objects, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """A value of the answer as JSON: decimals as numbers, NaN and infinity as null, times as text."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    return value if isinstance(value, str | int | None) else str(value)


def _csv(names: list[str], rows: list[list[Any]]) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return sink.getvalue()


def _table(names: list[str], rows: list[list[Any]]) -> str:
    """Columns aligned, numbers to the right, one line a row."""
    cells = [names, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    numeric = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(names))]
    lines = [_line(row, widths, numeric) for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, f"({len(rows)} {'row' if len(rows) == 1 else 'rows'})"]) + "\n"


def _line(row: list[str], widths: list[int], numeric: list[bool]) -> str:
    padded = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
    return "  ".join(padded).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())[:WIDEST]
