"""SQL over the event logs and the lake: an in-memory DuckDB over committed files, which blocks no writer.

A run that is being written is read up to its last committed event, in a segment or in the tail. A query is
checked (`statement.py`) and runs where nothing but the files under the views can be read (`sandbox.py`).
"""

import json
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ingest.core.errors import DamageError, StorageError, UsageError
from ingest.core.scratch import Scratch
from ingest.lake import duckdb_literals, duckdb_views, lake
from replay.log import segment
from replay.log.events import UPCAST, canonical, upcast
from replay.log.run_log import RunReader
from replay.log.segment_index import SegmentIndex
from replay.sql import sandbox, views
from replay.sql.interruptible import Rows
from replay.sql.row_cache import Cache
from replay.sql.sandbox import Limits
from replay.sql.statement import Statement, checked
from replay.sql.view_definition import SqlView
from replay.store import run_index
from replay.store.run_index import RUNS

Note = Callable[[str], object]
LakeFiles = dict[str, list[Path]]
"""Files of each table of the lake."""
DEFAULT = Limits()


def query(store: Path, sql: str, *, note: Note = lambda text: None, limits: Limits = DEFAULT) -> pa.Table:
    """Returns the rows of one SELECT over the views of `describe` and the tables of the lake.

    Nothing else is read and nothing is written, whatever the SELECT says. Rows of large finished runs are
    cached in `<store>/cache`; `note` is called when they are computed, and when a cached file had to be
    replaced. What exceeds the memory of a query lies in a folder in the store while it runs.

    Raises:
        UsageError: not one SELECT, or one that exceeds the limits, or DuckDB refuses it.
        DamageError: a run in the store is not as it was written.
        StorageError: a file could not be read, or the temporary ones not written.
    """
    while True:
        stored, files = _stored(store), lake.parts(store)
        try:
            with Scratch(store) as scratch:
                return _execute(store, sql, stored, files, note, limits, scratch.path)
        except (duckdb.IOException, DamageError) as error:
            if _compacted_since(stored) or lake.parts(store) != files:
                continue
            if isinstance(error, duckdb.IOException):
                raise StorageError(
                    f"SQL: {sandbox.message(error, 1)}; {_way_out(error)}, then run the query again"
                ) from error
            raise


def _way_out(error: duckdb.Error) -> str:
    few = "too many open files" in str(error).lower()
    return "allow more open files (`ulimit -n`) or compact the runs (`twin compact`)" if few else "free space"


def _compacted_since(stored: "Stored") -> bool:
    """True if a run has been compacted since, which happens to each run once."""
    return any(not was.compacted and RunReader(run_dir).contents().compacted for run_dir, was in stored)


def _execute(
    store: Path, sql: str, stored: "Stored", files: LakeFiles, note: Note, limits: Limits, folder: Path | None
) -> pa.Table:
    connection = duckdb_views.opened()
    try:
        statement = checked(connection, sql)
        sandbox.bound(connection, limits, folder)
        duckdb_views.define(connection, files)
        kept = _define(connection, store, stored, statement, note, folder)
        sandbox.lock(connection, [*chain(*files.values()), *_files(stored), *kept])
        return sandbox.answer(connection, statement, limits)
    except duckdb.IOException:
        raise
    except duckdb.OutOfMemoryException as error:
        raise UsageError(
            f"SQL: more than {limits.memory} of memory is needed, and the rest cannot lie on the store's "
            "disk; aggregate earlier, or give --memory"
        ) from error
    except duckdb.Error as error:
        names = ", ".join(view.name for view in views.VIEWS)
        raise UsageError(f"SQL: {sandbox.message(error)}\nviews: {names}") from error


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
        with Scratch(store) as scratch:
            for view in views.KEPT:
                _kept(cache, run_dir, contents, view, scratch.path)
        cache.save()


def _kept(
    cache: Cache, run_dir: Path, contents: SegmentIndex, view: SqlView, folder: Path | None
) -> Path | None:
    return cache.kept(run_dir.name, contents.head, view, partial(_rows, run_dir, contents, view, folder))


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


def _define(
    connection: duckdb.DuckDBPyConnection, store: Path, stored: Stored, statement: Statement, note: Note,
    folder: Path | None,
) -> list[Path]:  # fmt: skip
    """Creates all views over the stored runs, those in the statement from cached rows; checks all files.

    Returns the files of the cached rows.
    """
    cache = Cache(store, note)
    for run_dir, contents in stored:
        for piece in contents.pieces:
            cache.check(run_dir, piece)
    large = [(run_dir, contents) for run_dir, contents in stored if cache.worth(contents)]
    kept: dict[str, list[Path]] = {}
    try:
        for view in _named(statement) if large else ():
            files = [_kept(cache, run_dir, contents, view, folder) for run_dir, contents in large]
            if None not in files:
                kept[view.name] = [path for path in files if path is not None]
    finally:  # what is there by now stays, also after Ctrl-C
        cache.save()
    parsed = [entry for entry in stored if entry not in large]
    _views(connection, stored, parsed, kept)
    return [*chain(*kept.values())]


def _named(statement: Statement) -> list[SqlView]:
    """Returns the cached views that a statement names, and the one under `runs`, which others need."""
    named = [view for view in views.KEPT if view.name in statement.tables]
    return [views.BOUNDS, *named] if named or views.RUNS.name in statement.tables else []


def _rows(run_dir: Path, contents: SegmentIndex, view: SqlView, folder: Path | None) -> pa.RecordBatchReader:
    """Returns the rows of a view over one run, parsed from its events."""
    connection = duckdb_views.opened()
    sandbox.bound(connection, DEFAULT, folder)
    stored = [(run_dir, contents)]
    _views(connection, stored, stored, {})
    rows = Rows(connection, f"SELECT * FROM {view.name}")
    return pa.RecordBatchReader.from_batches(rows.schema, rows.batches())


def _views(
    connection: duckdb.DuckDBPyConnection, stored: Stored, parsed: Stored, kept: dict[str, list[Path]]
) -> None:
    """Creates the views. One in `kept` parses the events of the runs in `parsed` and reads the rows of the
    other runs from these files; any other view parses all events."""
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
            select = f"{select} UNION ALL SELECT * FROM {duckdb_literals.parquet(kept[view.name])}"
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
    source = duckdb_literals.parquet(files, "filename = true")
    return f"SELECT string_split(filename, '/')[-2] AS run, {columns} FROM {source} UNION ALL {tails}"
