"""Removed runs and garbage: gone for good, nothing else, whenever the process is killed."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ingest.core import durable
from ingest.core.durable import Lock
from ingest.core.errors import LockedError, NotFoundError
from replay.api import store_check
from replay.inventory import garbage, listing, removal
from replay.log.run_log import RunReader
from replay.sql import query
from replay.store import checkpoint_registry, run_index, run_labels
from tests.support.histories import killed, write

SELECT = "select run from decisions group by run order by run"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two labelled runs with cached rows."""
    monkeypatch.setattr("replay.sql.row_cache.LEAST_EVENTS", 100)
    for run in "ab":
        write(tmp_path / "runs" / run, policy="mpc", flush_events=50)
        run_labels.tag(tmp_path, run, ["kept"])
    query.query(tmp_path, SELECT)
    return tmp_path


def everything(store: Path) -> set[str]:
    return {str(path.relative_to(store)) for path in store.rglob("*") if path.name != "labels.lock"}


def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_removed_run_leaves_nothing_and_others_stay(store: Path) -> None:
    other = {name for name in everything(store) if Path(name).stem == "b" or "/b/" in name}
    plan = removal.planned(store, ["a"])
    assert plan == removal.remove(store, ["a"]) and plan[0].events > 100
    assert run_index.all_ids(store) == ("b",) and run_labels.read(store, "b").tags == ("kept",)
    assert not any(name.split("/")[-1].startswith("a") or "/a/" in name for name in everything(store))
    assert other <= everything(store)
    assert store_check.check(store).findings == ()
    assert query.query(store, SELECT).to_pylist() == [{"run": "b"}]


def test_a_plan_changes_nothing_and_counts_the_bytes(store: Path) -> None:
    before = everything(store)
    (plan,) = removal.planned(store, ["a"])
    assert everything(store) == before
    parts = [
        store / "runs" / "a",
        store / "heads" / "a.json",
        store / "labels" / "a.json",
        store / "cache" / "a",
    ]
    assert plan.bytes == sum(removal.size_of(path) for path in parts) > 1000


def test_a_run_that_is_written_is_not_removed(store: Path) -> None:
    with Lock(store / "runs" / "a" / ".lock"), pytest.raises(LockedError):
        removal.remove(store, ["a"])
    assert RunReader(store / "runs" / "a").verify() == []
    with pytest.raises(NotFoundError):
        removal.remove(store, ["c"])


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("call", range(1, 9))
def test_killed_at_any_call_a_removal_leaves_a_run_whole_or_gone(
    store: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def counted(name: str) -> None:
        real = getattr(durable, name)

        def called(*arguments: Path, **more: durable.Disk) -> None:
            nonlocal calls
            calls += 1
            if calls == call:
                raise Killed
            real(*arguments, **more)

        patch.setattr(durable, name, called)

    with monkeypatch.context() as patch:
        for name in ("move", "remove", "remove_tree"):
            counted(name)
        patch.setattr("replay.log.chain_heads.remove", durable.remove)
        with suppress(Killed):
            removal.remove(store, ["a"])
    if (store / "runs" / "a").is_dir():
        assert RunReader(store / "runs" / "a").verify() == [] and run_labels.read(store, "a").tags
    else:
        garbage.collect(store, dry_run=False)
        assert not any("a" in Path(name).stem.split("-")[-1:] for name in everything(store))
        assert store_check.check(store).findings == ()
    assert RunReader(store / "runs" / "b").verify() == []


def litter(store: Path) -> dict[str, Path]:
    """One thing of each kind, by kind."""
    pid = dead()
    left = {
        "empty runs": store / "runs" / "empty",
        "uncommitted events": store / "runs" / "a" / f".{0:020d}.json.{pid}-1.tmp",
        "scratch folders": store / ".scratch-x",
        "temporary files": store / "reports" / f".page.html.{pid}-2.tmp",
        "lake files": store / "lake" / "link_samples" / "dataset=x" / f".{'0' * 64}.parquet.{pid}-3.tmp",
        "cached rows": store / "cache" / "gone" / f"links-{'0' * 32}.parquet",
        "labels": store / "labels" / "gone.json",
        "checkpoints": store / "checkpoints" / ("ab" * 32),
    }
    for kind, path in left.items():
        if kind in ("empty runs", "scratch folders", "checkpoints"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"1234567")
    (left["checkpoints"] / f"hippo-{'ab' * 32}.pt").write_bytes(b"1234567")
    left["labels"].write_bytes((store / "labels" / "a.json").read_bytes())
    return left


def test_every_kind_of_garbage_is_found_told_and_taken_away(store: Path) -> None:
    before, kept = everything(store), store / "reports" / "page.html"
    left = litter(store)
    kept.write_text("kept")
    told = garbage.collect(store, dry_run=True)
    assert {one.kind: one.path for one in told.found} == left and told.notes == ()
    assert all(path.exists() for path in left.values())
    assert told.bytes == 7 * 5 + left["labels"].stat().st_size
    done = garbage.collect(store, dry_run=False)
    assert done.found == told.found and done.bytes == told.bytes and done.done
    assert not any(path.exists() for path in left.values()) and kept.exists()
    assert before <= everything(store)
    assert garbage.collect(store, dry_run=False).found == ()
    assert {row.run: row.problem for row in listing.rows(store)} == {"a": None, "b": None}


def test_what_is_in_use_is_no_garbage(store: Path) -> None:
    own = store / "reports" / f".page.html.{os.getpid()}-2.tmp"
    own.parent.mkdir()
    own.write_bytes(b"being written")
    empty = store / "runs" / "starting"
    with Lock(empty / ".lock"):
        assert garbage.collect(store, dry_run=False).found == ()
    assert own.exists() and empty.exists()


def test_a_run_that_was_killed_is_kept_and_told(store: Path) -> None:
    killed(store / "runs" / "a")
    found = garbage.collect(store, dry_run=False)
    assert {one.kind for one in found.found} <= {"cached rows"}
    assert [note.split(":")[0] for note in found.notes] == ["a"]


def test_what_cannot_be_read_stays_with_a_note(store: Path) -> None:
    path = store / "labels" / "a.json"
    path.write_bytes(b"{}")
    (note,) = garbage.collect(store, dry_run=False).notes
    assert note.startswith("labels stay: ") and path.exists()


def test_checkpoints_that_a_run_or_the_pointer_names_stay(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = litter(store)["checkpoints"]
    monkeypatch.setattr(checkpoint_registry, "history", lambda store: ("ab" * 32,))
    assert "checkpoints" not in {one.kind for one in garbage.collect(store, dry_run=False).found}
    assert left.exists()


def test_a_store_that_is_not_there_has_no_garbage(tmp_path: Path) -> None:
    assert garbage.collect(tmp_path / "none", dry_run=False).found == ()
    assert not (tmp_path / "none").exists()
