"""Small commits become larger ones: the same rows and the same digest, whenever it is killed."""

import os
import shutil
from pathlib import Path

import pytest

from ingest.core import durable
from ingest.lake import duckdb_views, lake, manifests, merging
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import from_bytes
from ingest.pipeline.ingest import ingest_sources
from tests.support.formats import LINKS, lines, link
from tests.support.lakes import count
from tests.support.merge_trials import join

SET = DatasetOptions(name="set", reader="columns", table="link_samples", assumptions=("made up",))
ROWS = "SELECT epoch_ns(ts), bandwidth_bps, source_file FROM link_samples ORDER BY ALL"


def commit(store: Path, number: int, options: DatasetOptions = SET) -> None:
    """Commits a source of one row and a reject."""
    content = lines(LINKS, link(str(number)), "x")
    ingest_sources(options, [from_bytes(f"page@{number}-{number + 1}", "page", content)], store)


def rows(store: Path) -> list[tuple[object, ...]]:
    return duckdb_views.connect(store).execute(ROWS).fetchall()


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of as many commits as become one."""
    store = tmp_path_factory.mktemp("eight") / "store"
    for number in range(merging.FAN_IN):
        commit(store, number)
    return store


@pytest.fixture
def store(eight: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(eight, tmp_path / "store"))


def test_rows_digest_and_statements_stay(store: Path) -> None:
    before, digest, info = rows(store), lake.digest(store), lake.datasets(store)
    assert len(before) == merging.FAN_IN == len(lake.live(store))
    assert merging.merge_small(store, "other") == 0
    assert merging.merge_small(store, "set") == merging.FAN_IN
    assert (rows(store), lake.digest(store), lake.datasets(store)) == (before, digest, info)
    (one,) = lake.live(store)
    assert sorted((part.table, part.rows) for part in one.parts) == [("link_samples", 8), ("rejects", 8)]
    assert merging.merge_small(store, "set") == 0
    commit(store, 0)  # is there
    assert lake.live(store) == [one]


def test_a_reader_that_has_begun_finds_its_files(store: Path) -> None:
    held = lake.parts(store)["link_samples"]
    merging.merge_small(store, "set")
    lake.clean(store)
    assert all(path.exists() for path in held) and lake.verify(store) == []
    (one,) = lake.live(store)
    os.utime(manifests.folder_of(store) / f"{one.id}.json", (0, 0))  # a while ago
    assert lake.clean(store) == 3 * merging.FAN_IN
    assert not any(path.exists() for path in held) and count(store) == merging.FAN_IN


def test_what_became_one_twice_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FAN_IN", 2)
    monkeypatch.setattr(merging, "SOURCE_ROWS", 1)
    for number in range(8):
        commit(tmp_path, number)
        merging.merge_small(tmp_path, "set")
    (one,) = lake.live(tmp_path)
    assert len(one.sources) == 8 and count(tmp_path) == 8
    on_disk = list(manifests.folder_of(tmp_path).iterdir())
    assert len(on_disk) > 1
    for path in on_disk:  # in any order
        if path.stem != one.id:
            path.unlink()
            assert lake.live(tmp_path) == [one]


def test_commits_under_other_options_and_large_ones_stay(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.drop(store, "set")
    for number in range(merging.FAN_IN):
        commit(store, number, SET.model_copy(update={"title": "of its own"} if number == 3 else {}))
    assert merging.merge_small(store, "set") == 0
    commit(store, 9)
    monkeypatch.setattr(merging, "LARGE", 32)
    assert merging.merge_small(store, "set") == 0
    monkeypatch.setattr(merging, "LARGE", 33)
    assert merging.merge_small(store, "set") == merging.FAN_IN
    assert {len(one.sources) for one in lake.live(store)} == {1, merging.FAN_IN}


def test_another_writer_is_waited_for(store: Path) -> None:
    with durable.Lock(store / "lake" / "lock"):
        assert merging.merge_small(store, "set") == 0
    assert len(lake.live(store)) == merging.FAN_IN


def test_killed_at_any_call_all_rows_are_there_once(store: Path, tmp_path: Path) -> None:
    before, digest = rows(store), lake.digest(store)
    calls, copy = 0, tmp_path / "copy"
    while join(Path(shutil.copytree(store, copy)), "set", calls):
        assert lake.digest(copy) == digest and lake.verify(copy) == []
        if calls % 4 == 0:
            assert rows(copy) == before
            merging.merge_small(copy, "set")
            assert lake.digest(copy) == digest and len(lake.live(copy)) == 1
        shutil.rmtree(copy)
        calls += 1
    assert calls > 15, f"{calls}: every step of the commit was cut short"
