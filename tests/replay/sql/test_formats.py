"""Every form of an answer: rows of every type of DuckDB are rendered, or a message says what to do."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from ingest.core.errors import UsageError
from ingest.lake import duckdb_views
from replay.sql.formats import FORMATS, Format, render
from replay.sql.query import query

DUCKDB = duckdb_views.opened()
LATE = "290000-01-01"
TIMES = [
    (f"date '{LATE}'", LATE),
    ("date 'infinity'", "infinity"),
    ("date '-infinity'", "-infinity"),
    ("'-0043-03-15'::date", "0044-03-15 (BC)"),
    (f"timestamp '{LATE} 01:02:03.5'", f"{LATE} 01:02:03.5"),
    ("timestamp 'infinity'", "infinity"),
    (f"timestamp_s '{LATE}'", f"{LATE} 00:00:00"),
    ("timestamp_ms '-infinity'", "-infinity"),
    (f"timestamptz '{LATE}'", f"{LATE} 00:00:00+00"),
    ("timestamp_ns '2024-01-01 00:00:00.123456789'", "2024-01-01 00:00:00.123456789"),
    ("time_ns '12:00:00.123456789'", "12:00:00.123456789"),
]
"""Times that Python has no value for, and how they are shown."""
OTHERS = [
    "interval '1000000 years'", "170141183460469231731687303715884105727::hugeint", "'9'::uhugeint",
    "'1'::bignum", "'a'::enum('a', 'b')", "map {[1]: 2}", "map {interval 1 month: 1}",
    "union_value(a := 1)", "{}", "row(1, 2)", "'\\xff\\x00'::blob", "'101'::bit", "uuid()", "null", "[]",
    "[null]", "1.5::decimal(38, 10)", "chr(0)", "time '24:00:00'", "'{\"a\": 1}'::json", "1::variant",
    "[1, 2]::int[2]", "'POINT(1 2)'::geometry", "true",
]  # fmt: skip


def one(expression: str) -> pa.Table:
    return rows(f"SELECT {expression} AS x")


def rows(text: str) -> pa.Table:
    with DUCKDB.cursor() as connection:
        return connection.sql(text).to_arrow_table()


@pytest.mark.parametrize(("expression", "text"), TIMES)
def test_a_time_that_python_has_no_value_for_is_shown_as_duckdb_writes_it(expression: str, text: str) -> None:
    answer = one(expression)
    assert render(answer, "csv").decode() == f"x\n{text}\n"
    assert json.loads(render(answer, "json")) == [{"x": text}]
    assert render(answer, "table").decode().splitlines()[2] == text
    assert json.loads(render(one(f"[{expression}, null]"), "json")) == [{"x": [text, None]}]
    nested = one(f"{{'a': [{{'b': {expression}}}], 'c': map {{'k': {expression}}}}}")
    assert json.loads(render(nested, "json")) == [{"x": {"a": [{"b": text}], "c": [["k", text]]}}]


def test_rows_without_a_value_stay_so_beside_such_times() -> None:
    late = f"date '{LATE}'"
    answer = rows(
        f"FROM (VALUES ({late}, [{late}], {{'a': {late}}}, map {{1: {late}}}), (NULL, NULL, NULL, NULL), "
        "(date '2024-01-02', [], {'a': NULL}, map {})) AS t(d, l, s, m)"
    )
    assert json.loads(render(answer, "json")) == [
        {"d": LATE, "l": [LATE], "s": {"a": LATE}, "m": [[1, LATE]]},
        {"d": None, "l": None, "s": None, "m": None},
        {"d": "2024-01-02", "l": [], "s": {"a": None}, "m": []},
    ]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("expression", [*OTHERS, *(expression for expression, _ in TIMES)])
def test_a_value_of_any_type_is_rendered_or_told(expression: str, form: Format) -> None:
    for answer in (one(expression), one(f"[{expression}]"), one(f"{{'a': {expression}}}")):
        try:
            assert render(answer, form)
        except UsageError as error:
            assert form == "parquet" and "take arrow" in str(error)


@pytest.mark.parametrize("form", FORMATS)
def test_all_types_of_duckdb_are_rendered_or_told(tmp_path: Path, form: Format) -> None:
    names = query(tmp_path, "SELECT column_name AS n FROM (DESCRIBE FROM test_all_types())")["n"].to_pylist()
    assert len(names) > 50
    if form == "parquet":
        with pytest.raises(UsageError, match="Parquet cannot hold"):
            render(query(tmp_path, "FROM test_all_types()"), form)
        whole = query(tmp_path, "SELECT COLUMNS(*)::VARCHAR FROM test_all_types()")
        assert render(whole, form)
    else:
        assert render(query(tmp_path, "FROM test_all_types()"), form)


def test_rows_are_rendered_alike_however_they_are_divided() -> None:
    """Rows become text some at a time."""
    whole = rows("SELECT i, i / 3 AS x, 'n' || i AS t FROM range(25_001) AS r(i)")
    for form in ("table", "json", "csv"):
        text = render(whole, form).decode()
        assert text.count("n25000") == 1 and "n10000" in text
    assert len(json.loads(render(whole, "json"))) == 25_001
    assert render(whole, "table").decode().splitlines()[-1] == "(25,001 rows)"


def test_rows_nested_beyond_python_are_told() -> None:
    deep = pa.array([1])
    for _ in range(1200):
        deep = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), deep)
    with pytest.raises(UsageError, match="nested too deeply"):
        render(pa.table({"x": deep}), "json")
