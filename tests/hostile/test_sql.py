"""Attacks through `twin sql`: no statement writes a byte, or reads one that is not a row of a view."""

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from ingest.core.errors import UsageError
from ingest.lake import duckdb_views
from replay.sql import sandbox, statement
from replay.sql.formats import render
from replay.sql.query import query
from tests.support.sql_place import SECRET, Place, made
from tests.support.watched_folder import WatchedFolder

WRITES = [
    "with x as (copy (select 1) to '{file}' (format csv)) select 1",
    "with x as (copy (select 1) to '{file}' (format parquet, use_tmp_file false)) select * from x",
    "select * from (with x as (copy runs to '{file}' (format json)) select 1)",
    "select (with x as (copy (select 1) to '{file}') select count(*) from x)",
    "from runs where run in (with x as (copy (select 1) to '{file}') select '1')",
    "select 1 union all (with x as (copy (select 1) to '{file}') select 2)",
    "with recursive r as (select 1 union all (with x as (copy (select 1) to '{file}') select 1)) from r",
    "summarize (with x as (copy (select 1) to '{file}') select 1)",
    "select list_transform([1], lambda e: (with x as (copy (select 1) to '{file}') select 1))",
    "pivot (with x as (copy (select 1) to '{file}') select 1 as a) on a in (1) using count(*)",
    "copy (select 1) to '{file}'",
    "explain analyze copy (select 1) to '{file}'",
    "select 1; copy (select 1) to '{file}'",
    "export database '{file}'",
    "attach '{file}' as other",
]
READS = [
    "select * from '{file}'",
    'select * from "{file}"',
    "from '{file}' union all from '{file}'",
    "describe '{file}'",
    "summarize '{file}'",
    "show '{file}'",
    "select * from read_csv('{file}')",
    "select * from read_csv_auto('{file}')",
    "select * from read_text('{file}')",
    "select content from read_blob('{file}')",
    "select * from read_json('{file}')",
    "select * from read_parquet('{file}')",
    "select * from parquet_scan(['{file}'])",
    "select * from system.main.read_parquet('{file}')",
    "select * from parquet_metadata('{file}')",
    "select * from parquet_schema('{file}')",
    "select * from parquet_kv_metadata('{file}')",
    "select * from sniff_csv('{file}')",
    "select * from glob('{file}*')",
    "select * from read_duckdb('{file}', table_name = 'x')",
    "select * from query('from ''{file}''')",
    "select * from query_table('{file}')",
    "select * from query_table(['{file}'])",
    "select * from histogram('{file}', word)",
    "select json_serialize_plan('select * from ''{file}''')",
    "select * from json_execute_serialized_sql(json_serialize_sql('from ''{file}'''))",
    "with x as (from read_text('{file}')) from x",
    "select (select content from read_text('{file}'))",
    "select 1 where exists (from '{file}')",
    "from runs, lateral (from read_text('{file}'))",
    'with "{file}" as (select 1) select * from (select 1), (select * from "{file}")',
    "attach '{file}' (type duckdb)",
    "load '{file}'",
]
REACHES = [
    "select getenv('CANARY')",
    "select 'CANARY'.getenv()",
    "select current_setting('secret_directory')",
    "from duckdb_secrets()",
    "from which_secret('{secret}', 's3')",
    "from duckdb_settings()",
    "from pg_settings",
    "from pg_catalog.pg_settings",
    "from duckdb_extensions()",
    "select write_log('x')",
    "from duckdb_logs",
    "from enable_logging()",
    "from enable_profiling(save_location := '{new}')",
    "from arrow_scan(1, 2, 3)",
    "from pandas_scan(1)",
    "from python_map_function(1)",
    "from seq_scan(1)",
    "from checkpoint()",
    "select upcast_payload('decided', 1, '1')",
    "from 'https://localhost:9/x.parquet'",
    "from read_csv('http://localhost:9/x.csv')",
    "from 's3://bucket/x.parquet'",
    "from 'hf://datasets/x/y.csv'",
    "select st_point(1, 2)",
    "select '1.2.3.4'::inet",
    "from sqlite_scan('{secret}', 'x')",
    "from read_xlsx('{secret}')",
    "set threads = 1",
    "set enable_external_access = true",
    "reset all",
    "pragma enable_profiling = 'json'",
    "pragma database_list",
    "call pragma_version()",
    "install httpfs",
    "load httpfs",
    "create table t as select 1",
    "create macro m() as table from read_text('{secret}')",
    "insert into runs values (1)",
    "with x as (insert into stored_runs values ('x') returning *) from x",
    "with x as (delete from stored_runs) select 1",
    "with x as (update stored_runs set run = 'x') select 1",
    "with x as (truncate stored_runs) select 1",
    "drop view runs",
    "prepare p as select 1",
    "vacuum",
    "checkpoint",
    "begin",
    "use memory",
    "select * from place",
    "select * from SECRET",
    "select \ud800",
    "select 1\0; copy runs to '{new}'",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        yield made(tmp_path_factory.mktemp("hostile"), patch)


def refused(place: Place, text: str) -> str:
    """The message about a statement that is refused, and leaves no trace."""
    before = place.content()
    with WatchedFolder(place.secrets) as watched:
        with pytest.raises(UsageError) as error:
            query(place.store, text)
        assert watched.opened() == 0
    assert place.content() == before
    assert SECRET not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("file", ["segment", "new"])
@pytest.mark.parametrize("text", WRITES)
def test_no_file_is_written(place: Place, text: str, file: str) -> None:
    refused(place, text.format(file=place.words()[file]))


@pytest.mark.parametrize("file", ["segment", "secret"])
@pytest.mark.parametrize("text", READS)
def test_no_file_is_read_by_its_name(place: Place, text: str, file: str) -> None:
    refused(place, text.format(file=place.words()[file]))


@pytest.mark.parametrize("text", REACHES)
def test_nothing_beside_the_views_is_reached(place: Place, text: str) -> None:
    refused(place, text.format(**place.words()))


def test_a_query_that_writes_is_told_so(place: Place) -> None:
    text = f"with x as (copy (select 1) to '{place.words()['new']}' (format csv)) select 1"
    assert "only reads" in refused(place, text)
    assert "COPY" in refused(place, text)
    assert "`twin sql describe`" in refused(place, "from 'a.csv'")
    assert "read_text()" in refused(place, "from read_text('a')")


def test_the_files_of_the_store_are_read_through_the_views(place: Place) -> None:
    """Cached rows, segments and the lake are there, in the connection that can read nothing else."""
    for view in ("events", "links", "link_samples"):
        answer = query(place.store, f"SELECT count(*) AS n FROM {view}")
        assert answer["n"][0].as_py() > 0


def test_a_locked_connection_reads_its_files_and_no_other(place: Place) -> None:
    """The second barrier, without the first."""
    connection = duckdb_views.opened()
    connection.execute("CREATE VIEW v AS FROM read_parquet($$" + str(place.segment) + "$$)")
    sandbox.lock(connection, [place.segment])
    assert connection.execute("SELECT count(*) > 0 FROM v").fetchall() == [(True,)]
    words = place.words()
    for text in (
        f"FROM read_text('{words['secret']}')",
        f"FROM glob('{words['secrets']}/*')",
        f"FROM '{words['part']}'",
        f"COPY (SELECT 1) TO '{words['new']}'",
        f"ATTACH '{words['new']}'",
        "FROM 'https://localhost:9/x.parquet'",
        "LOAD httpfs",
        "INSTALL httpfs",
    ):
        with WatchedFolder(place.secrets) as watched:
            with pytest.raises(duckdb.Error, match=r"disabled|not found"):
                connection.execute(text)
            assert watched.opened() == 0
    for text in (
        "SET enable_external_access = true",
        "SET allowed_paths = ['/']",
        "RESET lock_configuration",
    ):
        with pytest.raises(duckdb.Error, match=r"locked|disabled|cannot|Cannot"):
            connection.execute(text)


@pytest.mark.parametrize("text", [*WRITES, *READS])
def test_the_check_of_a_statement_needs_no_locked_connection(text: str) -> None:
    """The first barrier, without the second."""
    with duckdb.connect() as connection, pytest.raises((UsageError, duckdb.ParserException)):
        statement.checked(connection, text.format(file="x.csv"))


def test_functions_in_from_are_known() -> None:
    """A function that a new DuckDB brings is refused until it is listed; those listed take no path."""
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT DISTINCT function_name, parameters FROM duckdb_functions() "
            "WHERE function_type IN ('table', 'table_macro')"
        ).fetchall()
        known = {name for name, _ in found}
        assert set(statement.TABLE_FUNCTIONS) <= known
        for name in sorted(known - set(statement.TABLE_FUNCTIONS)):
            with pytest.raises(UsageError, match=re.escape(name)):
                statement.checked(connection, f"FROM {name}('x')")


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_what_the_views_are_made_of_is_no_way_out(place: Place, form: str) -> None:
    answer = query(place.store, "FROM duckdb_views()")
    assert SECRET not in render(answer, form).decode()  # type: ignore[arg-type]


def test_a_link_in_place_of_a_segment_is_no_way_out(place: Place, tmp_path: Path) -> None:
    """A segment is checked against its voucher before it is read, wherever its name leads."""
    from shutil import copytree

    store = tmp_path / "store"
    copytree(place.store, store)
    segment = next((store / "runs").rglob("*.parquet"))
    segment.unlink()
    segment.symlink_to(place.secrets / "secret.csv")
    with pytest.raises(Exception, match=segment.name):
        query(store, "FROM events")
