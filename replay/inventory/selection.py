"""The runs that a condition in SQL is true of, in the order of a column.

The condition is checked and answered as a query of `twin sql` is: it reads the rows of the listing alone.
"""

import types
from collections.abc import Sequence
from dataclasses import fields
from typing import get_args, get_type_hints

import duckdb
import pyarrow as pa

from ingest.core.config import suggestion
from ingest.core.errors import UsageError
from ingest.lake import duckdb_views
from replay.inventory import cached_figures
from replay.inventory.listing import RunRow
from replay.metrics.kpis import Kpis
from replay.sql import sandbox
from replay.sql.sandbox import Limits
from replay.sql.statement import checked
from twin.queue.metrics import QueueFigures

_TYPES: dict[object, pa.DataType] = {
    str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64(),
    tuple[str, ...]: pa.list_(pa.string()),
}  # fmt: skip


def _arrow(hint: object) -> pa.DataType:
    """The column type of an annotation such as `int` or `float | None`."""
    inner = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return _TYPES[next(kind for kind in inner if kind is not types.NoneType)]


def _schema() -> pa.Schema:
    own, figures = get_type_hints(RunRow), get_type_hints(QueueFigures) | get_type_hints(Kpis)
    inside = {"labels": [("tags", pa.list_(pa.string())), ("note", pa.string())],
              "figures": [(name, _arrow(figures[name])) for name in cached_figures.NAMES]}  # fmt: skip
    found: list[tuple[str, pa.DataType]] = []
    for field in fields(RunRow):
        found += inside.get(field.name) or [(field.name, _arrow(own[field.name]))]
    return pa.schema(found)


SCHEMA = _schema()
"""Columns that a condition may name, with their types."""


def where(rows: Sequence[RunRow], condition: str) -> list[RunRow]:
    """Returns the rows that a SQL condition over the columns of `SCHEMA` is true of, in their order.

    Raises:
        UsageError: it is no condition, does more than read the rows, or DuckDB refuses it.
    """
    connection = duckdb_views.opened()
    connection.register("runs", pa.Table.from_pylist([row.to_json() for row in rows], schema=SCHEMA))
    try:
        # The line feed ends a comment in the condition.
        statement = checked(connection, f"SELECT run FROM runs WHERE ({condition}\n)")
        sandbox.lock(connection, [])
        found = sandbox.answer(connection, statement, Limits())
    except duckdb.Error as error:
        columns = ", ".join(SCHEMA.names)
        raise UsageError(f"--where: {sandbox.message(error)}\ncolumns: {columns}") from error
    kept = set(found["run"].to_pylist())
    return [row for row in rows if row.run in kept]


def ordered(rows: Sequence[RunRow], column: str) -> list[RunRow]:
    """Returns the rows by a column, rising, or falling after a `-`; those without a value last.

    Raises:
        UsageError: no such column.
    """
    name = column.removeprefix("-")
    if name not in SCHEMA.names:
        raise UsageError(f"--sort {name}: no such column{suggestion(name, SCHEMA.names)}")
    keyed = [(row.to_json()[name], row) for row in rows]
    valued = [(value, row) for value, row in keyed if value is not None]
    valued.sort(key=lambda pair: pair[0], reverse=column.startswith("-"))
    return [row for _, row in valued] + [row for value, row in keyed if value is None]
