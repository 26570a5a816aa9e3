"""SQL over logs and lake: the views, what is refused, and the formats."""

import io
import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.core.errors import DamageError, StorageError, UsageError
from ingest.lake import duckdb_views
from ingest.lake.schema import TABLES
from replay.log import events
from replay.log.run_log import RunReader, RunWriter
from replay.sql import definitions, views
from replay.sql import query as sql
from replay.sql.formats import FORMATS, render
from replay.sql.query import describe, query
from replay.sql.statement import checked
from tests.support.histories import history, write
from tests.support.tally import EFFORT, tally


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Signs that mean something to a glob or to SQL. DuckDB searches the folder above for them: a small one.
    folder = tmp_path_factory.mktemp("store") / "it's a [store]*"
    write(folder / "runs" / "a", policy="mpc")
    write(folder / "runs" / "b", policy="static", flush_events=50)
    return folder


def rows(store: Path, text: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query(store, text).to_pylist()]


def test_every_view_has_its_documented_columns(store: Path) -> None:
    for view in views.VIEWS:
        assert query(store, f"SELECT * FROM {view.name}").schema.names == [name for name, _ in view.columns]


def test_only_what_a_statement_needs_is_created() -> None:
    """And all of it, if the statement lists it or names what is not there."""

    def created(text: str) -> tuple[list[str], list[str]]:
        with duckdb_views.opened() as connection:
            statement = checked(connection, text)
        made = [view.name for view in definitions.needed_views(statement)]
        return made, definitions.needed_tables(statement)

    assert created("SELECT count(*) FROM Events") == (["events"], [])
    assert created("SELECT run FROM runs") == (["bounds", "runs"], [])
    assert created("SELECT 1 FROM trace_jobs, decisions") == (["decisions"], ["jobs"])
    for text in ("SHOW TABLES", "FROM runz", "FROM duckdb_views()", "FROM information_schema.tables"):
        assert created(text) == (list(definitions.every_view()), list(TABLES))


def test_every_view_is_there_in_an_empty_store(tmp_path: Path) -> None:
    for view in views.VIEWS:
        assert rows(tmp_path, f"SELECT * FROM {view.name}") == []


def test_the_documentation_names_every_view_and_column() -> None:
    text = describe()
    for view in views.VIEWS:
        assert f"{view.name}: one row is" in text
        assert all(f"    {name} " in text for name, _ in view.columns)


def test_runs(store: Path) -> None:
    chosen = (
        "run, policy, finished, horizon_s, iterations, moves, events, segments, digest, chain_head, domains"
    )
    a, b = rows(store, f"SELECT {chosen} FROM runs ORDER BY run")
    readers = [RunReader(store / "runs" / name) for name in "ab"]
    for row, policy, reader in zip((a, b), ("mpc", "static"), readers, strict=True):
        manifests = reader.manifests()
        assert row[1:8] == (policy, True, 3600.0, 360, 2, manifests[-1].last_seq + 1, len(manifests))
        assert row[8:10] == (reader.digest(), reader.chain_head())
        assert row[10] == ["oslo", "guizhou", "shanghai"]


def test_events_are_those_of_the_log(store: Path) -> None:
    expected = [(event.seq, event.type) for event in RunReader(store / "runs" / "b").events()]
    assert rows(store, "SELECT seq, type FROM events WHERE run = 'b' ORDER BY seq") == expected


def test_decisions(store: Path) -> None:
    found = rows(
        store,
        'SELECT number, time_s, "trigger", action, candidates, best_iter_s, fallback, latency_s,'
        " observation->>'$.now_ns'"
        " FROM decisions WHERE run = 'a' ORDER BY number",
    )
    assert len(found) == 12
    assert found[0] == (0, 0.0, "start", "move", 2, 10.0, None, 0.001, "0")
    assert found[5] == (
        5,
        1500.0,
        "period",
        "hold",
        2,
        10.0,
        "deadline of 1 s missed",
        0.006,
        str(1500 * 10**9),
    )


def test_plans(store: Path) -> None:
    found = rows(
        store,
        "SELECT time_s, until_s, pause_s, moved_bytes, route, layers FROM plans WHERE run = 'a' ORDER BY seq",
    )
    assert found == [
        (0.0, 1220.0, 0.0, 0, ["oslo", "guizhou"], [20, 14]),
        (1220.0, 2420.0, 20.0, 7_000_000_000, ["guizhou", "shanghai"], [19, 15]),
        (2420.0, None, 20.0, 7_000_000_000, ["shanghai", "oslo"], [18, 16]),
    ]


def test_iterations_add_up(store: Path) -> None:
    expected = [payload for _, kind, payload, _ in history() if kind == "iteration_done"]
    (found,) = rows(
        store,
        "SELECT sum(count)::BIGINT, sum(tokens)::BIGINT, sum(wan_bytes)::BIGINT, min(iter_s),"
        " max(utilisation), max(end_s - start_s) FROM iterations WHERE run = 'a'",
    )
    bytes_sent = sum(size for done in expected for _, _, size in done["wan_bytes"])
    sums = (sum(done["count"] for done in expected), sum(done["tokens"] for done in expected), bytes_sent)
    assert found == (*sums, 10.0, pytest.approx(0.55), 30.0)


def test_links(store: Path) -> None:
    found = rows(
        store, "SELECT kind, src, dst, count(*) AS n FROM links WHERE run = 'a' GROUP BY ALL ORDER BY ALL"
    )
    ticks = sum(kind == "link_observed" for _, kind, _, _ in history())
    assert len(found) == 12
    assert found[0] == ("estimated", "guizhou", "oslo", 12)
    assert found[6] == ("observed", "guizhou", "oslo", ticks)
    worst = "SELECT src, dst FROM links WHERE kind = 'observed' ORDER BY bandwidth_bps LIMIT 1"
    assert rows(store, worst) == [("oslo", "guizhou")]


def test_training_and_jobs(tmp_path: Path) -> None:
    judged = {"checkpoint": "new", "champion": "old", "reason": "better", "interval": [0.01, 0.02]}
    with RunWriter.create(tmp_path / "runs" / "t") as writer:
        writer.append(0, *next(history())[1:3])
        metrics = {"stage": "ppo", "update": 0, "steps": 64, "metrics": {"loss": 0.5, "entropy": 1.0}}
        writer.append(0, "policy_updated", metrics)
        scores = {
            "role": "challenger",
            "checkpoint": "new",
            "window": "validate",
            "scores": {"regret": 0.02, "x": None},
        }
        writer.append(0, "policy_evaluated", scores)
        writer.append(0, "policy_promoted", judged)
        writer.append(5, "job_submitted", {"reason": "user", "gpus": [], "spec": {}}, job="j1")
        writer.finish({})
    found = rows(
        tmp_path,
        "SELECT event, figures['loss'], figures['regret'], champion, low, high FROM training ORDER BY seq",
    )
    assert found == [
        ("updated", 0.5, None, None, None, None),
        ("evaluated", None, 0.02, None, None, None),
        ("promoted", None, None, "old", 0.01, 0.02),
    ]
    assert rows(tmp_path, "SELECT job, state FROM jobs WHERE job <> ''") == [("j1", "submitted")]


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ({}, ["", ""]),
        ({"jobs": [], "arrivals": None}, ["", ""]),
        ({"jobs": [{"name": "j1"}]}, ["j1"]),
        ({"jobs": [], "arrivals": {"count": 1}}, ["j1"]),
    ],
)
def test_only_a_run_without_a_queue_is_a_job_itself(
    tmp_path: Path, queue: dict[str, object], expected: list[str]
) -> None:
    sim_ns, kind, payload, _ = next(history())
    with RunWriter.create(tmp_path / "runs" / "t") as writer:
        writer.append(sim_ns, kind, payload | {"scenario": payload["scenario"] | queue})
        if expected == ["j1"]:
            writer.append(5, "job_submitted", {"reason": "user", "gpus": [], "spec": {}}, job="j1")
        writer.finish({})
    assert rows(tmp_path, "SELECT job FROM jobs ORDER BY seq") == [(job,) for job in expected]


def test_an_end_without_sums_has_no_figures(tmp_path: Path) -> None:
    """Trainings end with other totals, a run that is being written with none."""
    for name in ("ended", "open"):
        with RunWriter.create(tmp_path / "runs" / name) as writer:
            writer.append(0, *next(history())[1:3])
            if name == "ended":
                writer.finish({"updates": 3})
    columns = "finished, iterations, lost_iterations, moves, progress_tokens"
    found = rows(tmp_path, f"SELECT {columns} FROM runs ORDER BY run")
    assert found == [(True, *[None] * 4), (False, *[None] * 4)]


def test_the_iteration_under_way_at_the_end_is_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts where the run ended meanwhile; rows of a large run are those of a small one."""
    lost = next(payload for _, kind, payload, _ in history() if kind == "time_lost")
    ends = {"cut": (0.5, 20.0), "whole": (), "older": (0.0,)}
    for name, parts in ends.items():
        with RunWriter.create(tmp_path / "runs" / name) as writer:
            writer.append(0, *next(history())[1:3])
            writer.append(9, "time_lost", {**lost, "reason": "failure"})
            for part in parts:
                writer.append(9, "time_lost", {**lost, **({"part_tokens": part} if part else {})})
            writer.finish({"tokens": 100, "iterations": 1})
    expected = [("cut", 100, 120.5), ("older", 100, 100.0), ("whole", 100, 100.0)]
    for least in (50_000, 1, 1):  # parsed, then cached, then from the cache
        monkeypatch.setattr("replay.sql.row_cache.LEAST_EVENTS", least)
        assert rows(tmp_path, "SELECT run, tokens, progress_tokens FROM runs ORDER BY run") == expected


def test_the_lake_is_there_too(store: Path) -> None:
    assert rows(store, "SELECT count(*) FROM link_samples") == [(0,)]
    assert rows(store, "SELECT count(*) FROM trace_jobs") == [(0,)], (
        "jobs of traces; `jobs` are those of runs"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SELECT 1; SELECT 2",
        "COPY (SELECT 1) TO 'x.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'",
        "CREATE TABLE t AS SELECT 1",
        "ATTACH 'x.db'",
        "SET threads = 1",
        "INSTALL httpfs",
    ],
)
def test_only_one_question_is_answered(
    store: Path, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="one SELECT"):
        query(store, text)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEC 1", "SELEC"),
        ("SELECT nothing FROM runs", "nothing"),
        ("SELECT * FROM store", "store"),
        ("SELECT 1 +", "syntax error"),
    ],
)
def test_errors_of_the_sql_are_passed_on_with_the_views(store: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        query(store, text)
    assert "views: events, runs, decisions" in str(error.value)


def test_a_changed_log_is_not_answered_from(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a")
    path = max((tmp_path / "runs" / "a").glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError, match=path.name):
        query(tmp_path, "SELECT 1")


def test_formats(store: Path) -> None:
    answer = query(
        store,
        "SELECT 1 AS n, 'a,\"b\"' AS t, NULL AS nothing, 0.1 + 0.2 AS f, [1, 2] AS l, DATE '2024-01-02' AS d",
    )
    assert json.loads(render(answer, "json")) == [
        {"n": 1, "t": 'a,"b"', "nothing": None, "f": 0.3, "l": [1, 2], "d": "2024-01-02"}
    ]
    assert render(answer, "csv").decode() == 'n,t,nothing,f,l,d\n1,"a,""b""",,0.3,"[1, 2]",2024-01-02\n'
    assert pq.read_table(io.BytesIO(render(answer, "parquet"))).equals(answer)
    assert pa.ipc.open_stream(render(answer, "arrow")).read_all().equals(answer)
    head, rule, row, count = render(answer, "table").decode().splitlines()
    assert head.split() == ["n", "t", "nothing", "f", "l", "d"]
    assert set(rule) == {"-", " "}
    assert row.split() == ["1", 'a,"b"', "0.3", "[1,", "2]", "2024-01-02"]
    assert count == "(1 row)"
    narrow = render(answer, "table", 20).decode().splitlines()
    assert max(map(len, narrow)) <= 20 and narrow[0].split() == ["n", "t", "nothing"]
    assert narrow[4].split() == ["n", "f", "l"] and narrow[-1] == "(1 row)"


def test_a_text_that_is_cut_in_a_table_shows_it(store: Path) -> None:
    answer = query(store, "SELECT repeat('x', 100) AS whole, repeat('y', 101) AS cut")
    row = render(answer, "table").decode().splitlines()[2]
    assert row.split() == ["x" * 100, "y" * 99 + "…"]
    assert "y" * 101 in render(answer, "csv").decode()


def test_columns_of_one_name_and_no_rows(store: Path) -> None:
    assert render(query(store, "SELECT 1 AS a, 2 AS a"), "csv").decode().splitlines()[1] == "1,2"
    empty = query(store, "SELECT run FROM runs WHERE false")
    assert render(empty, "json") == b"[]\n"
    assert render(empty, "table").decode().endswith("(0 rows)\n")


def test_a_run_is_seen_while_it_is_written(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "runs" / "live") as writer:
        for number, (sim_ns, kind, payload, _) in enumerate(history()):
            writer.append(sim_ns, kind, payload)
            if number in (10, 60):
                writer.flush()
                assert rows(
                    tmp_path, "SELECT count(*), bool_or(finished) FROM events JOIN runs USING (run)"
                ) == [(number + 1, False)]


def test_formats_are_listed() -> None:
    assert FORMATS == ("table", "json", "csv", "parquet", "arrow")


@pytest.fixture
def large(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in which the finished runs count as large."""
    monkeypatch.setattr("replay.sql.row_cache.LEAST_EVENTS", 100)
    folder = tmp_path / "large"
    shutil.copytree(store / "runs", folder / "runs")
    with RunWriter.create(folder / "runs" / "open", flush_s=1e9) as writer:
        for sim_ns, kind, payload, _ in history():
            writer.append(sim_ns, kind, payload)
    return folder


def answers(store: Path, notes: list[str]) -> list[pa.Table]:
    """Every row of every view."""
    return [
        query(store, f"SELECT * FROM {view.name} ORDER BY ALL", note=notes.append) for view in views.VIEWS
    ]


def test_rows_that_are_kept_are_those_that_are_parsed(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    first, repeated = answers(large, notes), answers(large, notes)
    assert {path.name.split("-")[0] for path in (large / "cache" / "a").iterdir()} == {
        view.name for view in views.KEPT
    }
    assert len(notes) == 2 * len(views.KEPT) and not (large / "cache" / "open").exists()
    monkeypatch.setattr("replay.sql.row_cache.LEAST_EVENTS", 10**9)
    parsed = answers(large, notes)
    for view, one, two, three in zip(views.VIEWS, first, repeated, parsed, strict=True):
        assert one.equals(two) and one.equals(three), view.name
    shutil.rmtree(large / "cache")
    assert answers(large, notes) == parsed


def test_rows_kept_when_a_run_ends_are_what_the_first_question_is_answered_from(large: Path) -> None:
    sql.keep(large, "a")
    sql.keep(large, "open")  # not finished: nothing is kept
    assert [path.name for path in (large / "cache").iterdir() if path.is_dir()] == ["a"]
    notes: list[str] = []
    answers(large, notes)
    assert notes and all(note.startswith("b:") for note in notes)


@pytest.mark.parametrize("kept", [False, True])
def test_payloads_of_older_versions_are_shown_in_the_current_form(
    large: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """The stored version 1 gives the action another name; `events` shows what is stored."""
    text = "SELECT run, number, action FROM decisions ORDER BY ALL"
    before = rows(large, text)
    monkeypatch.setattr("replay.sql.row_cache.LEAST_EVENTS", 100 if kept else 10**9)
    kind = events.EVENT_TYPES["decided"]
    monkeypatch.setitem(events.EVENT_TYPES, "decided", events.EventType("decided", 2, kind.payload))
    monkeypatch.setitem(events.UPCAST, ("decided", 1), lambda old: {**old, "action": old["action"].upper()})
    assert rows(large, text) == [(run, number, str(action).upper()) for run, number, action in before]
    stored = "SELECT DISTINCT payload->>'$.action', version FROM events WHERE type = 'decided' ORDER BY 1"
    assert rows(large, stored) == [("hold", 1), ("move", 1)]
    assert (
        definitions.upcast_payload("decided", 1, '{"number": 1, "action": "hold"}')
        == '{"action":"HOLD","number":1}'
    )


def test_a_damaged_cache_is_rebuilt_with_a_note(large: Path) -> None:
    text = "SELECT count(*), max(bandwidth_bps), min(seq) FROM links"
    expected = rows(large, text)
    chance = random.Random(0)
    for number in range(8 * EFFORT):
        path = chance.choice(sorted((large / "cache").rglob("*.parquet")))
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data[: chance.randrange(len(data))] if number % 3 == 0 else data)
        tally("caches", 1)
        notes: list[str] = []
        assert query(large, text, note=notes.append).num_rows == 1 and rows(large, text) == expected
        assert "is not what was written" in notes[0] or "links" not in path.name
    digests = large / "cache" / "verified.json"
    changed = digests.read_bytes().replace(b'"a/', b'"b/')
    for damage in (b"", b"{", b"[]", b'{"schema":"twin.cache/1","files":{}}', b"\xff", b"[" * 10**5, changed):
        digests.write_bytes(damage)
        notes.clear()
        assert query(large, text, note=notes.append).num_rows == 1 and rows(large, text) == expected
        assert notes[0] == f"{digests}: is not what was written; it is made again"


def test_what_is_derived_can_be_deleted_at_any_time(large: Path) -> None:
    """Some of it, or all, between any two questions: twenty canned ones have the same answers."""
    canned = [f"SELECT * FROM {view.name} ORDER BY ALL" for view in views.VIEWS]
    canned += [
        "SELECT src, dst, max(bandwidth_bps) FROM links GROUP BY ALL ORDER BY ALL",
        "SELECT run, sum(tokens), max(egress_usd) FROM iterations GROUP BY ALL ORDER BY ALL",
        "SELECT action, count(*) FROM decisions JOIN runs USING (run) GROUP BY ALL ORDER BY ALL",
        "SELECT run, max(pause_s) FROM plans GROUP BY ALL ORDER BY ALL",
    ]
    assert len(canned) >= 20
    chance = random.Random(1)
    expected = [query(large, text) for text in canned]
    for number in range(4 * EFFORT):
        files = sorted(path for path in (large / "cache").rglob("*") if path.is_file())
        for path in chance.sample(files, k=chance.randint(1, len(files))):
            path.unlink()
        if number % 4 == 0:
            shutil.rmtree(large / "cache")
        chosen = range(len(canned)) if number == 0 else chance.sample(range(len(canned)), k=4)
        assert all(query(large, canned[n]).equals(expected[n]) for n in chosen)
        tally("deleted", 1)


def test_a_segment_changed_behind_the_cache_is_found(large: Path) -> None:
    assert rows(large, "SELECT count(*) FROM events")
    path = max((large / "runs" / "a").glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError, match=path.name):
        query(large, "SELECT 1")
    path.unlink()
    with pytest.raises(DamageError, match=path.name):
        query(large, "SELECT 1")


def test_a_store_that_cannot_be_written_is_read(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StorageError("read-only")

    monkeypatch.setattr("replay.sql.row_cache.durable.replace", refuse)
    monkeypatch.setattr("replay.sql.row_cache.durable.put_file", refuse)
    assert rows(large, "SELECT count(*) FROM decisions WHERE run = 'a'") == [(12,)]


def test_structs_and_maps_are_json(store: Path) -> None:
    answer = query(store, "SELECT {'a': 1.5, 'b': [DATE '2024-01-02']} AS s, 0.0 / 0.0 AS n")
    assert json.loads(render(answer, "json")) == [{"s": {"a": 1.5, "b": ["2024-01-02"]}, "n": None}]
