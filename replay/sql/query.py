"""SQL over the event logs and the lake: an in-memory DuckDB over committed files, which blocks no writer.

A run that is being written is read up to its last committed event, in a segment or in the tail. A query is
checked (`statement.py`) and runs where nothing but the files under the views can be read (`sandbox.py`).
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

import duckdb
import pyarrow as pa

from ingest.core.errors import DamageError, StorageError, UsageError
from ingest.core.scratch import Scratch
from ingest.lake import duckdb_views, lake
from replay.log.run_log import RunReader
from replay.log.segment_index import SegmentIndex
from replay.sql import sandbox, views
from replay.sql.definitions import (
    Stored,
    create_views,
    data_files,
    needed_tables,
    needed_views,
    with_sources,
)  # fmt: skip
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
        stored, files = _stored(store, note), lake.parts(store)
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


def _compacted_since(stored: Stored) -> bool:
    """True if a run has been compacted since, which happens to each run once."""
    return any(not was.compacted and RunReader(run_dir).contents().compacted for run_dir, was in stored)


def _execute(
    store: Path, sql: str, stored: Stored, files: LakeFiles, note: Note, limits: Limits, folder: Path | None
) -> pa.Table:
    connection = duckdb_views.opened()
    try:
        statement = checked(connection, sql)
        sandbox.bound(connection, limits, folder)
        duckdb_views.define(connection, files, needed_tables(statement))
        kept = _define(connection, store, stored, statement, note, folder)
        sandbox.lock(connection, [*chain(*files.values()), *data_files(stored), *kept])
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


def _stored(store: Path, note: Note) -> Stored:
    """Returns the runs that are answered from; one with damaged objects in a bucket is left out and named.

    Raises:
        DamageError: a run on a disk is damaged.
    """
    folder = store / RUNS
    found = []
    for run_dir in sorted(folder.iterdir()) if folder.is_dir() else ():
        if run_dir.is_dir():
            reader = RunReader(run_dir)
            if reader.unfetched is not None:
                note(f"{run_dir.name} is left out: {reader.unfetched}")
            elif (contents := reader.contents()).end:
                found.append((run_dir, contents))
    return found


def _define(
    connection: duckdb.DuckDBPyConnection, store: Path, stored: Stored, statement: Statement, note: Note,
    folder: Path | None,
) -> list[Path]:  # fmt: skip
    """Creates the views over the stored runs that the statement needs, those in it from cached rows; checks
    all files.

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
    create_views(connection, needed_views(statement), stored, parsed, kept)
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
    create_views(connection, with_sources([view.name]), stored, stored, {})
    rows = Rows(connection, f"SELECT * FROM {view.name}")
    return pa.RecordBatchReader.from_batches(rows.schema, rows.batches())


def describe() -> str:
    """Returns the documentation of the views over the logs."""
    return views.describe()
