"""SQL over the event logs and the lake: an in-memory DuckDB over committed files, which blocks no writer.

A run that is being written is read up to its last committed segment. Statements other than SELECT are
refused, so that no query can write into the store.
"""

import csv
import io
import json
import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core.errors import DamageError, UsageError
from ingest.lake import duckdb_views
from replay.log import segment
from replay.log.events import UPCAST, canonical, upcast
from replay.log.run_log import RunReader
from replay.log.segment_index import SegmentIndex
from replay.metrics.formatting import counted, parts
from replay.sql import views
from replay.sql.row_cache import Cache
from replay.sql.view_definition import SqlView
from replay.store import run_index
from replay.store.run_index import RUNS

Format = Literal["table", "json", "csv", "parquet", "arrow"]
Note = Callable[[str], object]
WIDEST = 100
"""Most characters of a cell in the aligned table; other formats do not truncate."""
FORMATS: tuple[Format, ...] = get_args(Format)


def query(store: Path, sql: str, *, note: Note = lambda text: None) -> pa.Table:
    """Returns the rows of one SELECT over the views of `describe` and the tables of the lake.

    Rows of large finished runs are cached in `<store>/cache`; `note` is called when they are computed, and
    when a cached file had to be replaced.

    Raises:
        UsageError: not one SELECT, or DuckDB refuses it; its message is passed on.
        DamageError: a run in the store is not as it was written.
    """
    while True:
        stored = _stored(store)
        try:
            return _execute(store, sql, stored, note)
        except (duckdb.IOException, DamageError):
            if not _compacted_since(stored):
                raise


def _compacted_since(stored: "Stored") -> bool:
    """True if a run has been compacted since, which happens to each run once."""
    return any(not was.compacted and RunReader(run_dir).contents().compacted for run_dir, was in stored)


def _execute(store: Path, sql: str, stored: "Stored", note: Note) -> pa.Table:
    connection = duckdb_views.connect(store)
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UsageError(
                "twin sql answers one SELECT (also WITH, FROM, DESCRIBE, SHOW, SUMMARIZE) at a time"
            )
        _define(connection, store, stored, statements[0].query, note)
        return connection.sql(statements[0].query).to_arrow_table()
    except duckdb.IOException:
        raise
    except duckdb.Error as error:
        raise UsageError(f"SQL: {error}\nviews: {', '.join(view.name for view in views.VIEWS)}") from error
    finally:
        connection.close()


def keep(store: Path, run_id: str, *, note: Note = lambda text: None) -> None:
    """Computes the cached rows of a large finished run now, instead of at its first query.

    Raises:
        DamageError: the run is not as it was written.
    """
    run_dir = run_index.folder(store, run_id)
    contents = RunReader(run_dir).contents()
    cache = Cache(store, note)
    if cache.worth(contents):
        for piece in contents.pieces:
            cache.check(run_dir, piece)
        for view in views.KEPT:
            _kept(cache, run_dir, contents, view)
        cache.save()


def _kept(cache: Cache, run_dir: Path, contents: SegmentIndex, view: SqlView) -> Path | None:
    return cache.kept(run_dir.name, contents.head, view, partial(_rows, run_dir, contents, view))


Stored = list[tuple[Path, SegmentIndex]]
"""Directory and contents of every run with a committed segment."""


def _stored(store: Path) -> Stored:
    folder = store / RUNS
    found = [
        (run_dir, RunReader(run_dir).contents())
        for run_dir in (sorted(folder.iterdir()) if folder.is_dir() else ())
        if run_dir.is_dir()
    ]
    return [(run_dir, contents) for run_dir, contents in found if contents.end]


def _define(connection: duckdb.DuckDBPyConnection, store: Path, stored: Stored, sql: str, note: Note) -> None:
    """Creates all views over the stored runs, those named in `sql` from cached rows; checks all files."""
    cache = Cache(store, note)
    for run_dir, contents in stored:
        for piece in contents.pieces:
            cache.check(run_dir, piece)
    large = [(run_dir, contents) for run_dir, contents in stored if cache.worth(contents)]
    kept: dict[str, list[Path]] = {}
    for view in _named(sql) if large else ():
        files = [_kept(cache, run_dir, contents, view) for run_dir, contents in large]
        if None not in files:
            kept[view.name] = [path for path in files if path is not None]
    cache.save()
    parsed = [entry for entry in stored if entry not in large]
    _views(connection, stored, parsed, kept)


def _named(sql: str) -> list[SqlView]:
    """Returns the cached views whose names are in the text, and the one under `runs`, which others need."""
    named = [view for view in views.KEPT if view.name in sql.lower()]
    return [views.BOUNDS, *named] if named or views.RUNS.name in sql.lower() else []


def _rows(run_dir: Path, contents: SegmentIndex, view: SqlView) -> pa.RecordBatchReader:
    """Returns the rows of a view over one run, parsed from its events."""
    connection = duckdb.connect()
    stored = [(run_dir, contents)]
    _views(connection, stored, stored, {})
    return connection.sql(f"SELECT * FROM {view.name}").to_arrow_reader(100_000)


def _views(
    connection: duckdb.DuckDBPyConnection, stored: Stored, parsed: Stored, kept: dict[str, list[Path]]
) -> None:
    """Creates the views. One in `kept` parses the events of the runs in `parsed` and reads the rows of the
    other runs from these files; any other view parses all events."""
    connection.execute("SET python_enable_replacements = false")  # names are views, never Python variables
    summaries = [_summary(run_dir, contents) for run_dir, contents in stored]
    connection.register("stored_runs", pa.Table.from_pylist(summaries, schema=_SUMMARY))
    connection.register("tail_events", _tails(stored))
    connection.execute(f"CREATE VIEW stored_events AS {_union(_files(stored))}")
    if UPCAST:
        text, number = duckdb.sqltype("VARCHAR"), duckdb.sqltype("INTEGER")
        connection.create_function("upcast_payload", _upcast, [text, number, text], text)
    connection.execute(f"CREATE VIEW all_events AS {_current(_union(_files(stored)))}")
    connection.execute(f"CREATE VIEW parsed_events AS {_current(_union(_files(parsed)))}")
    if connection.execute("SELECT count(*) FROM duckdb_views() WHERE view_name = 'jobs'").fetchone() != (0,):
        connection.execute("ALTER VIEW jobs RENAME TO trace_jobs")  # `jobs` are those of the runs
    for view in (views.EVENTS, views.BOUNDS, *views.VIEWS[1:]):
        columns = ", ".join(f'"{name}"' for name, _ in view.columns)
        select = view.select
        if view.name not in kept:
            select = select.replace("parsed_events", "all_events")
        else:
            listed = ", ".join(_literal(path) for path in kept[view.name])
            select = f"{select} UNION ALL SELECT * FROM read_parquet([{listed}])"
        connection.execute(f"CREATE VIEW {view.name} ({columns}) AS {select}")


def _current(events: str) -> str:
    """Returns the SELECT with payloads of older versions converted to the current one."""
    if not UPCAST:
        return events
    older = " OR ".join(f"(type = '{name}' AND version = {version})" for name, version in sorted(UPCAST))
    text = f"CASE WHEN {older} THEN upcast_payload(type, version, payload) ELSE payload END AS payload"
    return f"SELECT * REPLACE ({text}) FROM ({events})"


def _upcast(name: str, version: int, payload: str) -> str:
    return canonical(upcast(name, version, json.loads(payload), name)[1])


def _files(stored: Stored) -> list[Path]:
    return [run_dir / piece.data_name for run_dir, contents in stored for piece in contents.pieces]


def describe() -> str:
    """Returns the documentation of the views over the logs."""
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


def _summary(run_dir: Path, contents: SegmentIndex) -> dict[str, Any]:
    sizes = (contents.final, contents.end, len(contents.pieces), contents.size_bytes)
    values = (run_dir.name, *sizes, contents.stream, contents.head)
    return dict(zip(_SUMMARY.names, values, strict=True))


def _tails(stored: Stored) -> pa.Table:
    """Returns the events that are in no segment yet, with the name of their run."""
    tails = [(run_dir.name, contents.tail.table) for run_dir, contents in stored if contents.tail]
    named = [table.add_column(0, "run", [[name] * table.num_rows]) for name, table in tails]
    empty = pa.schema([("run", pa.string()), *segment.SCHEMA]).empty_table()
    return pa.concat_tables([empty, *named])


def _union(files: list[Path]) -> str:
    """Returns the SELECT over all segments and tails; the name of the run is that of the directory."""
    columns = ", ".join(segment.SCHEMA.names)
    tails = f"SELECT run, {columns} FROM tail_events"
    if not files:
        return tails
    listed = ", ".join(_literal(path) for path in files)
    source = f"read_parquet([{listed}], filename = true)"
    return f"SELECT string_split(filename, '/')[-2] AS run, {columns} FROM {source} UNION ALL {tails}"


def _literal(path: Path) -> str:
    """Returns a path as an SQL string, glob signs and quotes escaped."""
    text = "".join(f"[{c}]" if c in "[*?" else c for c in str(path.absolute()))
    return "'" + text.replace("'", "''") + "'"


def render(result: pa.Table, form: Format, room: int | None = None) -> bytes:
    """Returns the rows as bytes: an aligned table, JSON (a list of objects), CSV, Parquet or an Arrow stream.

    A table wider than `room` letters is split into several, each with the first column; cells are cut
    at `WIDEST` characters.
    """
    if form == "parquet":
        sink = io.BytesIO()
        pq.write_table(result, sink, compression="zstd")
        return sink.getvalue()
    if form == "arrow":
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, result.schema) as writer:
            writer.write_table(result)
        return sink.getvalue()
    rows = [list(row) for row in zip(*(column.to_pylist() for column in result.columns), strict=True)]
    if form == "table":
        return _table(result.schema.names, rows, room).encode()
    text = {"json": _json, "csv": _csv}[form](result.schema.names, rows)
    return text.encode()


def _json(names: list[str], rows: list[list[Any]]) -> str:
    objects = [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in rows]
    return json.dumps(objects, ensure_ascii=False, allow_nan=False) + "\n"


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


def _csv(names: list[str], rows: list[list[Any]]) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return sink.getvalue()


def _table(names: list[str], rows: list[list[Any]], room: int | None) -> str:
    """Aligns the columns, numbers to the right, one line a row and table."""
    cells = [names, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    numeric = [all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(names))]
    cells.insert(1, ["-" * width for width in widths])
    columns = [list(range(len(names)))] if room is None else parts(widths, 1, room)
    tables = ["".join(f"{_line(row, widths, numeric, part)}\n" for row in cells) for part in columns]
    return "\n".join(tables) + f"({counted(len(rows), 'row')})\n"


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
