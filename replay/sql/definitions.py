"""The views of a query created in its connection: those that the statement needs, and no others.

To create a view, DuckDB binds its SELECT and reads the schema of every file under it.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ingest.lake import duckdb_literals
from ingest.lake.schema import TABLES
from replay.log import segment
from replay.log.events import UPCAST, canonical, upcast
from replay.log.segment_index import SegmentIndex
from replay.sql import views
from replay.sql.statement import Statement
from replay.sql.view_definition import SqlView

Stored = list[tuple[Path, SegmentIndex]]
"""Directory and contents of every run with a committed segment."""
TRACE_JOBS = "trace_jobs"
"""The table `jobs` of the lake in SQL, where `jobs` are those of the runs."""
LENT = {TRACE_JOBS if name == "jobs" else name: name for name in TABLES}
"""The table of the lake behind each name that a statement may use for one."""


def every_view() -> dict[str, SqlView]:
    """Returns all views by name, in the order of creation."""
    return {view.name: view for view in (views.EVENTS, views.BOUNDS, *views.VIEWS[1:])}


def needed_tables(statement: Statement) -> list[str]:
    """Returns the tables of the lake that a statement needs; all, if it names what is not known."""
    if not _known(statement):
        return list(TABLES)
    return [table for name, table in LENT.items() if name in statement.tables]


def needed_views(statement: Statement) -> list[SqlView]:
    """Returns the views that a statement needs, and those under them, in the order of creation.

    All, if it names what is not known: lists are whole then, and DuckDB says which name is near.
    """
    return with_sources(statement.tables if _known(statement) else every_view())


def _known(statement: Statement) -> bool:
    every = every_view()
    return all(name in every or name in LENT for name in statement.tables)


def with_sources(names: Iterable[str]) -> list[SqlView]:
    """Returns the views of these names and the views under them, in the order of creation."""
    every = every_view()
    found: set[str] = set()
    rest = {name for name in names if name in every}
    while rest:
        found.add(name := rest.pop())
        rest |= {
            word for word in re.findall(r"(?:FROM|JOIN)\s+(\w+)", every[name].select) if word in every
        } - found
    return [view for name, view in every.items() if name in found]


def create_views(
    connection: duckdb.DuckDBPyConnection, wanted: list[SqlView], stored: Stored, parsed: Stored,
    kept: dict[str, list[Path]],
) -> None:  # fmt: skip
    """Creates the wanted views over `stored`.

    One in `kept` parses the events of the runs in `parsed` and reads the rows of the other runs from these
    files; any other view parses all events.
    """
    summaries = [_summary(run_dir, contents) for run_dir, contents in stored]
    connection.register("stored_runs", pa.Table.from_pylist(summaries, schema=_SUMMARY))
    connection.register("tail_events", _tails(stored))
    connection.execute(f"CREATE VIEW stored_events AS {_union(data_files(stored))}")
    if UPCAST:
        text, number = duckdb.sqltype("VARCHAR"), duckdb.sqltype("INTEGER")
        connection.create_function("upcast_payload", upcast_payload, [text, number, text], text)
    connection.execute(f"CREATE VIEW all_events AS {_current(_union(data_files(stored)))}")
    connection.execute(f"CREATE VIEW parsed_events AS {_current(_union(data_files(parsed)))}")
    if connection.execute("SELECT count(*) FROM duckdb_views() WHERE view_name = 'jobs'").fetchone() != (0,):
        connection.execute(f"ALTER VIEW jobs RENAME TO {TRACE_JOBS}")  # `jobs` are those of the runs
    for view in wanted:
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


def upcast_payload(name: str, version: int, payload: str) -> str:
    """Returns the payload of an event as the current version of its type writes it."""
    return canonical(upcast(name, version, json.loads(payload), name)[1])


def data_files(stored: Stored) -> list[Path]:
    """Returns the segments of the stored runs."""
    return [run_dir / piece.data_name for run_dir, contents in stored for piece in contents.pieces]


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
