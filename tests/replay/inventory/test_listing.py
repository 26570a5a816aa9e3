"""The list of runs: kinds, figures computed once, conditions and orders."""

from pathlib import Path

import pytest

from ingest.core.errors import UsageError
from replay.bench.world import BenchWorld
from replay.inventory import cached_figures, listing, selection
from replay.inventory.listing import RunRow
from replay.log.run_log import RunReader
from replay.metrics.kpis import of_events
from replay.run.whatif import what_if
from replay.store import run_index, run_labels
from tests.support.toys import toy_run, without_lake
from tests.support.worlds import toy_scenario


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replay of `static` and of `single`, a what-if and a member of a bench, and a run without an event."""
    made = tmp_path_factory.mktemp("listed")
    with pytest.MonkeyPatch.context() as patch:
        without_lake(patch)
        base = toy_run(made, "static").run_id
        toy_run(made, "single")
        what_if(made, base, "greedy")
        BenchWorld.of(toy_scenario(), seed=3).run(made, "static")
    (made / "runs" / "empty").mkdir()
    run_labels.tag(made, base, ["paper"])
    run_labels.note(made, base, "the first")
    return made


@pytest.fixture(scope="module")
def rows(store: Path) -> list[RunRow]:
    return listing.rows(store)


def named(rows: list[RunRow]) -> list[tuple[str | None, str | None]]:
    return [(row.policy, row.kind) for row in rows]


def test_a_row_says_what_made_a_run(rows: list[RunRow]) -> None:
    known = [row for row in rows if row.problem is None]
    assert named(known) == [("static", "bench"), ("greedy", "what-if"), ("single", "replay"),
                            ("static", "replay")]  # fmt: skip
    first = known[-1]
    assert known[1].branch_of == first.run and first.labels.tags == ("paper",)
    assert first.finished and first.seed == 0 and first.scenario == "toy-3" and first.events > 10
    assert first.started is not None and first.started.endswith("Z")


def test_a_run_that_cannot_be_read_hides_no_other(rows: list[RunRow]) -> None:
    (empty,) = [row for row in rows if row.problem is not None]
    assert empty.run == "empty" and "before anything was stored" in str(empty.problem)
    assert empty.to_json()["tokens"] is None and not empty.finished


def test_figures_are_those_of_the_events_and_read_once(
    store: Path, rows: list[RunRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(row for row in rows if row.policy == "single")
    events = RunReader(run_index.folder(store, row.run)).events()
    assert row.figures == of_events(events).to_json()
    monkeypatch.setattr(cached_figures, "of_events", None)  # would fail
    assert listing.row(store, row.run) == row
    path = cached_figures.path_of(store, row.run)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"moves":', b'"movez":'))
    with pytest.raises(TypeError):
        listing.row(store, row.run)
    path.write_bytes(data)


def test_figures_of_another_version_of_the_code_are_computed_again(
    store: Path, rows: list[RunRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(row for row in rows if row.policy == "single")
    monkeypatch.setattr(cached_figures, "code_version", lambda: {"sources": "other"})
    monkeypatch.setattr(cached_figures, "of_events", None)
    with pytest.raises(TypeError):
        listing.row(store, row.run)


CONDITIONS = {
    "policy = 'static'": ["static", "static"],
    "'paper' in tags": ["static"],
    "note like '%first' -- a comment": ["static"],
    "kind = 'what-if' or branch_of is not null": ["greedy"],
    "seed = 3 and finished": ["static"],
    "tokens > (select min(tokens) from runs) and moves = 0": ["static", "static"],
    "false": [],
}  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_is_sql_over_the_columns(rows: list[RunRow], condition: str) -> None:
    assert [row.policy for row in selection.where(rows, condition)] == CONDITIONS[condition]


REFUSED = {
    "utilization > 0": "utilisation",
    "1; drop table runs": "syntax",
    "seed in (select 1 from read_csv('/etc/passwd'))": "read_csv",
    "run in (select run from '/etc/passwd')": "reads views, no files",
    "getenv('HOME') = 'x'": "getenv",
    "": "TUPLE",
}


@pytest.mark.parametrize("condition", REFUSED)
def test_a_condition_that_is_none_or_reads_more_is_refused(rows: list[RunRow], condition: str) -> None:
    with pytest.raises(UsageError, match=REFUSED[condition]):
        selection.where(rows, condition)


def test_rows_are_ordered_by_any_column_and_what_has_no_value_is_last(rows: list[RunRow]) -> None:
    values = [row.to_json()["tokens"] for row in selection.ordered(rows, "tokens")]
    assert values[:-1] == sorted(values[:-1]) and values[-1] is None
    falling = [row.to_json()["tokens"] for row in selection.ordered(rows, "-tokens")]
    assert falling[:-1] == values[-2::-1] and falling[-1] is None
    with pytest.raises(UsageError, match="did you mean 'tokens'"):
        selection.ordered(rows, "token")


def test_every_column_of_the_list_can_be_asked_for(rows: list[RunRow]) -> None:
    assert set(selection.SCHEMA.names) == set(rows[0].to_json())
