"""Tags and notes: beside the log, whole or not at all, and of one run only."""

import shutil
from pathlib import Path

import pytest

from ingest.core.durable import Lock
from ingest.core.errors import DamageError, LockedError, NotFoundError, UsageError
from replay.api import store_check
from replay.log.compaction import compact
from replay.log.run_log import RunReader
from replay.store import run_index, run_labels
from replay.store.run_labels import Labels
from tests.support.histories import lose_end, write


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path / "runs" / "a", policy="mpc", flush_events=20)
    return tmp_path


def files(run_dir: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run_dir.iterdir()}


def test_labels_are_kept_and_the_log_is_not_touched(store: Path) -> None:
    before = files(store / "runs" / "a")
    assert run_labels.read(store, "a") == Labels()
    assert run_labels.tag(store, "a", ["paper", "best"]) == Labels(("best", "paper"))
    assert run_labels.note(store, "a", "of\nMarch") == Labels(("best", "paper"), "of\nMarch")
    assert run_labels.tag(store, "a", ["new"], ["best"]) == Labels(("new", "paper"), "of\nMarch")
    assert run_labels.read(store, "a") == Labels(("new", "paper"), "of\nMarch")
    assert files(store / "runs" / "a") == before and RunReader(store / "runs" / "a").verify() == []


def test_what_holds_nothing_is_no_file(store: Path) -> None:
    run_labels.tag(store, "a", ["paper"])
    run_labels.tag(store, "a", [], ["paper", "never-there"])
    assert not run_labels.path_of(store, "a").exists()


def test_labels_outlive_compaction(store: Path) -> None:
    run_labels.tag(store, "a", ["paper"])
    compact(run_index.folder(store, "a"))
    assert run_labels.read(store, "a").tags == ("paper",)


def test_labels_outlive_a_lost_end(store: Path) -> None:
    run_labels.tag(store, "a", ["paper"])
    lose_end(run_index.folder(store, "a"))
    assert run_labels.read(store, "a").tags == ("paper",)


def test_another_run_by_the_same_name_inherits_nothing(store: Path) -> None:
    run_labels.tag(store, "a", ["paper"])
    shutil.rmtree(store / "runs" / "a")
    (store / "heads" / "a.json").unlink()
    assert run_labels.orphans(store) == [run_labels.path_of(store, "a")]
    write(store / "runs" / "a", policy="static", flush_events=20)
    assert run_labels.read(store, "a") == Labels()
    assert run_labels.orphans(store) == [run_labels.path_of(store, "a")]
    assert run_labels.tag(store, "a", ["own"]) == Labels(("own",)) and run_labels.orphans(store) == []


def test_every_flipped_byte_is_found(store: Path) -> None:
    run_labels.note(store, "a", "kept")
    path = run_labels.path_of(store, "a")
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(DamageError, match=r"a\.json"):
            run_labels.read(store, "a")
    assert [one.part for one in store_check.check(store).findings] == ["labels"]


@pytest.mark.parametrize("name", ["", "two words", "../x", "x" * 65])
def test_a_tag_is_a_name(store: Path, name: str) -> None:
    with pytest.raises(UsageError, match="tag"):
        run_labels.tag(store, "a", [name])


def test_a_note_has_an_end(store: Path) -> None:
    with pytest.raises(UsageError, match="10,001"):
        run_labels.note(store, "a", "x" * 10_001)


def test_a_run_without_an_event_takes_none(store: Path) -> None:
    (store / "runs" / "empty").mkdir()
    with pytest.raises(NotFoundError, match="nothing of this run is stored"):
        run_labels.note(store, "empty", "x")


def test_a_second_writer_waits(store: Path) -> None:
    with Lock(store / run_labels.LOCK), pytest.raises(LockedError):
        run_labels.tag(store, "a", ["x"])
