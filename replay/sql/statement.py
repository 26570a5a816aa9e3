"""What a statement of a user may contain: a query over the views, read from DuckDB's own parse tree.

The rules name what is allowed; whatever else the parser of another version may accept is refused.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from ingest.core.errors import UsageError

QUERIES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
"""Kinds of query nodes. Nodes that write (`COPY_QUERY_NODE`, `INSERT_QUERY_NODE`, ...) are not among them."""
SOURCES = {
    "BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST", "COLUMN_DATA", "PIVOT",
    "SHOW_REF",
}  # fmt: skip
"""Kinds of what a query selects from."""
PARTS = re.compile(r"\w+_(MODIFIER|TYPE_INFO)|ORDER_DEFAULT|ASCENDING|DESCENDING")
"""Kinds of parts of a query that are neither: ORDER BY, LIMIT, DISTINCT, directions, types."""
TABLE_FUNCTIONS = (
    "duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_tables", "duckdb_types", "duckdb_views",
    "generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "test_all_types", "unnest",
)  # fmt: skip
"""Functions that may stand in FROM; they compute rows or list what the connection offers."""
NO_FUNCTIONS = ("current_setting", "getenv", "json_serialize_plan", "upcast_payload", "write_log")
"""Functions of values that reach beyond the rows: settings, environment, nested statements, the log."""
NO_TABLES = ("duckdb_logs", "pg_settings")
SCHEMAS = ("", "main", "information_schema")
CATALOGS = ("", "memory", "system")
LISTS = ("__show_tables_expanded", '"databases"', '"tables"', '"variables"')
"""What SHOW lists without naming a table."""
FILE_SIGNS = "./\\:*?["
"""Signs of a file name: DuckDB takes a table of an unknown name for a file if it has an ending."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One query that may be run: its text, and what it names in lower case: tables, views, lists of them."""

    text: str
    tables: frozenset[str]


def checked(connection: duckdb.DuckDBPyConnection, sql: str) -> Statement:
    """Returns the statement in `sql`; nothing is bound or run.

    Raises:
        UsageError: it is not one query, or does more than query the views.
        duckdb.Error: it is no SQL.
    """
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise UsageError("SQL: the text is not UTF-8; save it so") from error
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UsageError("twin sql answers one SELECT (also WITH, FROM, DESCRIBE, SHOW, SUMMARIZE) at a time")
    text = statements[0].query
    tables = set()
    for part in _objects(_tree(connection, text)):
        _check_kind(part)
        if part.get("class") in ("FUNCTION", "WINDOW"):
            _check_function(str(part.get("function_name", "")).lower())
        if part.get("type") == "TABLE_FUNCTION":
            tables |= _check_table_function(part)
        if part.get("type") in ("BASE_TABLE", "SHOW_REF"):
            tables.add(_check_table(part))
    return Statement(text, frozenset(tables))


def _tree(connection: duckdb.DuckDBPyConnection, text: str) -> Any:
    ((written,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    try:
        tree = json.loads(written)
    except RecursionError as error:
        raise UsageError("SQL: nested too deeply to be checked; take parts of it into WITH") from error
    if tree.get("error") is not False or len(tree["statements"]) != 1:
        raise UsageError(f"SQL: this form of query cannot be checked ({tree.get('error_message')})")
    return tree["statements"][0]


def _objects(tree: Any) -> Iterator[dict[str, Any]]:
    """Returns every object of a parse tree."""
    rest = [tree]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            yield part
            rest += part.values()
        elif isinstance(part, list):
            rest += part


def _check_kind(part: dict[str, Any]) -> None:
    kind = part.get("info_type") or ("" if "class" in part else part.get("type"))
    if not kind or not isinstance(kind, str) or kind in QUERIES or kind in SOURCES or PARTS.fullmatch(kind):
        return
    what = kind.removesuffix("_QUERY_NODE").removesuffix("_NODE").removesuffix("_INFO")
    raise UsageError(f"twin sql only reads: the query holds a part that is none ({what})")


def _check_function(name: str) -> None:
    if name in NO_FUNCTIONS or name.startswith("__internal"):
        raise UsageError(f"twin sql does not call {name}(): a query works on the rows of the views only")


def _check_table_function(part: dict[str, Any]) -> set[str]:
    """Returns the name of the function if it lists what the connection offers."""
    name = str((part.get("function") or {}).get("function_name", "")).lower()
    if name not in TABLE_FUNCTIONS:
        raise UsageError(
            f"twin sql does not call {name}() in FROM: a query reads the views, no files, settings or other "
            f"statements\nallowed there: {', '.join(TABLE_FUNCTIONS)}"
        )
    return {name} if name.startswith("duckdb_") else set()


def _check_table(part: dict[str, Any]) -> str:
    catalog, schema, name = (
        str(part.get(key) or "").lower() for key in ("catalog_name", "schema_name", "table_name")
    )
    if part["type"] == "SHOW_REF" and name in ("", *LISTS):
        return name
    shown = ".".join(word for word in (catalog, schema, name) if word)
    if catalog not in CATALOGS or schema not in SCHEMAS or any(sign in name for sign in FILE_SIGNS):
        raise UsageError(f"{shown!r}: twin sql reads views, no files; `twin sql describe` lists the views")
    if name in NO_TABLES:
        raise UsageError(f"twin sql does not read {name}: a query works on the rows of the views only")
    return name
