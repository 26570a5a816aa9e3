"""Limits of a query: time, memory, room on the disk; what it leaves behind, and files that go meanwhile."""

import dataclasses
import os
import signal
import threading
import time
from pathlib import Path

import duckdb
import pytest

import twin
from ingest.core.errors import DamageError, StorageError, UsageError
from ingest.core.scratch import PREFIX
from ingest.lake import lake
from ingest.pipeline.ingest import ingest
from replay.sql import event_views, interruptible, sandbox, views
from replay.sql import query as sql
from replay.sql.query import query
from replay.sql.sandbox import Limits
from tests.support.formats import LINKS, lines, link
from tests.support.histories import write

ENDLESS = "SELECT count(*) FROM range(1000000000000) AS a(i), range(1000000) AS b(j)"
ENDLESS_ROWS = """SELECT 'a', 0, 0.0, 'observed', 'a', 'b', count(*), 0.0, 0.0, 0.0
FROM range(1000000000000) AS a(i), range(1000000) AS b(j)"""
LARGE = "SELECT count(DISTINCT hash(i)) AS n FROM range(20000000) AS t(i)"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store") / "it's a [store]*"
    write(folder / "runs" / "a")
    query(folder, "FROM runs")
    return folder


def left(store: Path) -> set[str]:
    return {path.name for path in store.iterdir()} - {"cache", "heads", "lake", "runs"}


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sql"]


def test_a_query_stops_at_its_timeout(store: Path) -> None:
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"stopped after 0\.3 s unanswered"):
        query(store, ENDLESS, limits=Limits(timeout_s=0.3))
    assert time.monotonic() - began < 3
    assert left(store) == set()


def test_a_query_that_cannot_be_interrupted_is_left_behind(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long computation on one value does not see the interruption; the caller goes on."""
    monkeypatch.setattr(interruptible, "_PATIENCE_S", 0.1)
    began = time.monotonic()
    with pytest.raises(UsageError, match="stopped after"):
        query(store, "SELECT list_sort(range(4000000))[1]", limits=Limits(timeout_s=0.2))
    assert time.monotonic() - began < 2
    for thread in running():
        thread.join()


def interrupt_when_running(after_s: float = 0.3) -> None:
    """Presses Ctrl-C a while after a query has begun."""
    while not running():
        time.sleep(0.01)
    time.sleep(after_s)
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_stops_a_query_at_once(store: Path) -> None:
    """The signal arrives where the main thread waits; the query ends, too."""
    timer = threading.Thread(target=interrupt_when_running)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        query(store, ENDLESS)
    timer.join()
    assert left(store) == set() and running() == []


def test_ctrl_c_stops_the_reading_of_a_log_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows to be cached are computed in the same way; what was cached before stays."""
    monkeypatch.setattr("replay.sql.row_cache.LEAST_EVENTS", 100)
    write(tmp_path / "runs" / "a")
    endless = dataclasses.replace(
        event_views.LINKS, select=f"{event_views.LINKS.select} UNION ALL ({ENDLESS_ROWS})"
    )
    known = tuple(endless if view.name == "links" else view for view in views.VIEWS)
    monkeypatch.setattr(views, "VIEWS", known)
    monkeypatch.setattr(views, "KEPT", (views.BOUNDS, endless))
    timer = threading.Thread(target=interrupt_when_running, args=(0.7,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        query(tmp_path, "FROM links")
    timer.join()
    assert left(tmp_path) == set() and running() == []
    assert [path.name.split("-")[0] for path in (tmp_path / "cache" / "a").iterdir()] == ["bounds"]
    assert "bounds" in (tmp_path / "cache" / "verified.json").read_text()


def test_a_query_larger_than_its_memory_uses_the_disk_of_the_store_and_leaves_nothing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            files = [path for path in store.glob(f"{PREFIX}*/*") if path.exists()]
            most.append(sum(path.stat().st_size for path in files))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        answer = query(store, LARGE, limits=Limits(memory="150MB"))
    finally:
        ended.set()
        watcher.join()
    assert answer["n"][0].as_py() == 20_000_000
    assert max(most) > 10_000_000, "it went to the disk"
    assert left(store) == set()


@pytest.mark.parametrize("memory", ["1KB", "10MB"])
def test_too_little_memory_is_told(store: Path, memory: str) -> None:
    with pytest.raises(UsageError, match=f"more than {memory} of memory .* give --memory"):
        query(store, LARGE, limits=Limits(memory=memory))


def test_an_answer_that_is_too_large_is_told_before_it_fills_the_memory(store: Path) -> None:
    with pytest.raises(UsageError, match="answer is too large"):
        query(store, "FROM range(1000000000)", limits=Limits(memory="200MB"))


@pytest.mark.parametrize("memory", ["", "much", "-1", "1", "1GB; SET threads = 1", "1e9GB", "0x1GB", "'1GB'"])
def test_a_size_that_is_none_is_told(memory: str) -> None:
    with pytest.raises(UsageError, match="500MB, 4GB or 50%"):
        Limits(memory=memory)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_a_time_that_is_none_is_told(timeout_s: float) -> None:
    with pytest.raises(UsageError, match="positive number of seconds"):
        Limits(timeout_s=timeout_s)


def test_default_limits_are_half_of_the_machine_and_nothing_is_allowed_to_change_them(store: Path) -> None:
    with duckdb.connect() as connection:
        sandbox.bound(connection, Limits(memory="100%"), None)
        whole = sandbox._bytes_of_memory(connection)
        sandbox.bound(connection, Limits(), None)
        assert sandbox._bytes_of_memory(connection) == pytest.approx(whole / 2, rel=0.02)
        sandbox.lock(connection, [])
        with pytest.raises(duckdb.Error, match="locked"):
            connection.execute("SET memory_limit = '1TB'")


def test_without_a_store_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert query(tmp_path / "none", "SELECT 1").num_rows == 1
    with pytest.raises(UsageError, match="memory"):
        query(tmp_path / "none", LARGE, limits=Limits(memory="100MB"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_goes_while_a_query_runs_is_told(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise duckdb.IOException('IO Error: Cannot open file "x.parquet": No such file or directory\n\nmore')

    monkeypatch.setattr(sandbox, "answer", gone)
    with pytest.raises(StorageError, match=r'^SQL: IO Error: Cannot open file "x.parquet".*query again$'):
        query(store, "FROM runs")


def test_a_data_set_that_is_dropped_while_a_query_runs_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the lake were listed, then it changed: the query is answered from those that are there."""
    (tmp_path / "l.csv").write_bytes(lines(LINKS, link("1")))
    store = tmp_path / "store"
    ingest([tmp_path / "l.csv"], store)
    (dataset,) = lake.datasets(store)
    define, calls = sql.duckdb_views.define, []

    def late(*given: object) -> None:
        if not calls:
            lake.drop(store, dataset)
        calls.append(given)
        define(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(sql.duckdb_views, "define", late)
    assert query(store, "FROM link_samples").num_rows == 0
    assert len(calls) == 2


def test_a_segment_that_is_lost_for_good_is_damage(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a")
    min((tmp_path / "runs" / "a").glob("*.parquet")).unlink()
    with pytest.raises(DamageError):
        query(tmp_path, "FROM runs")


def test_python_has_the_same_limits_and_the_same_check(store: Path) -> None:
    house = twin.Store(store)
    assert house.sql("SELECT 1 AS x").rows() == [{"x": 1}]
    with pytest.raises(UsageError, match="only reads"):
        house.sql("with x as (copy (select 1) to 'x.csv') select 1")
    with pytest.raises(UsageError, match="stopped after"):
        house.sql(ENDLESS, timeout_s=0.2)
    with pytest.raises(UsageError, match="too large"):
        house.sql("FROM range(1000000000)", memory="200MB")


def test_errors_between_two_batches_are_those_of_duckdb(store: Path) -> None:
    with pytest.raises(UsageError, match="SQL: Invalid Input Error: late"):
        query(store, "SELECT CASE WHEN i = 500000 THEN error('late') ELSE i END FROM range(600000) AS t(i)")


def test_advice_on_settings_that_are_locked_is_not_passed_on(store: Path) -> None:
    for text in ("SELECT '1.2.3.4'::inet", "SELECT st_point(1, 2)"):
        with pytest.raises(UsageError) as error:
            query(store, text)
        assert "INSTALL" not in str(error.value) and "SET " not in str(error.value)
