"""SQL over the lake: an in-memory DuckDB with one view per canonical table."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from ingest.lake import duckdb_literals, lake
from ingest.lake.schema import TABLES


def opened() -> duckdb.DuckDBPyConnection:
    """Returns a new in-memory DuckDB in UTC that takes no extension, secret or Python variable by itself."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_persistent_secrets": False,
        "python_enable_replacements": False,
        "temp_directory": "",  # nothing is left behind in the current folder
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def connect(store: Path) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection whose views `link_samples`, `gpu_samples`, ... show the committed rows of the lake.

    Tables without rows are empty views. Time columns are `TIMESTAMP_NS` in UTC; `epoch_ns(ts)` is exact.

    Raises:
        DamageError: a part of the lake is missing or cut.
        UsageError: DuckDB cannot name the folder of the store.
    """
    connection = opened()
    define(connection, lake.parts(store))
    return connection


def define(
    connection: duckdb.DuckDBPyConnection, files: Mapping[str, list[Path]], tables: Iterable[str] = TABLES
) -> None:
    """Creates the view of each of these canonical tables over its files."""
    for table in tables:
        schema = TABLES[table]
        source = _relation(files.get(table), schema)
        connection.execute(f"CREATE VIEW {table} AS SELECT {_columns(schema)} FROM {source}")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(
        f'"{f.name}"::TIMESTAMP_NS AS "{f.name}"' if pa.types.is_timestamp(f.type) else f'"{f.name}"'
        for f in schema
    )


def _relation(files: list[Path] | None, schema: pa.Schema) -> str:
    """The rows of the files; columns that older parts lack are null."""
    nulls = ", ".join(f'NULL::{_sql_type(f.type)} AS "{f.name}"' for f in schema)
    empty = f"SELECT {nulls} WHERE false"
    if not files:
        return f"({empty})"
    rows = duckdb_literals.parquet(files, "union_by_name = true")
    return f"({empty} UNION ALL BY NAME SELECT * FROM {rows})"


def _sql_type(kind: pa.DataType) -> str:
    names = {pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.int32(): "INTEGER", pa.float64(): "DOUBLE"}
    return names.get(kind, "TIMESTAMP_NS")
