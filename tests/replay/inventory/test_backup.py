"""`twin backup`: a copy that verifies, of a store that is written meanwhile, never less than was durable."""

import json
from pathlib import Path
from threading import Event, Thread

import pytest

from ingest.core import durable
from ingest.core.errors import DamageError, LockedError, NotFoundError, UsageError
from replay.api import store_check
from replay.inventory import places
from replay.inventory.backup import Backup, back_up, restore
from replay.inventory.places import Folder
from replay.log.compaction import compact
from replay.log.run_log import RunReader, RunWriter
from replay.store import run_labels
from tests.support import crash_workload as workload
from tests.support.toys import toy_run, without_lake


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    without_lake(monkeypatch)
    toy_run(tmp_path / "store", "greedy")
    return tmp_path / "store"


def copied(store: Path, tmp_path: Path) -> Backup:
    return back_up(store, Folder(tmp_path / "copy"))


def contents(folder: Path) -> dict[str, bytes]:
    hidden = places.MARK, ".lock"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in hidden
    }


def test_a_copy_has_every_file_and_verifies(store: Path, tmp_path: Path) -> None:
    run_labels.tag(store, next((store / "runs").iterdir()).name, ("paper",))
    durable.replace(store / "cache" / "rows", b"derived")
    made = copied(store, tmp_path)
    own = {name: data for name, data in contents(store).items() if not name.startswith("cache")}
    assert contents(tmp_path / "copy") == {n: d for n, d in own.items() if not n.endswith("lock")}
    assert made.runs == 1 and made.copied == len(contents(tmp_path / "copy"))
    assert store_check.check(tmp_path / "copy").ok


def test_a_second_copy_writes_what_is_new(store: Path, tmp_path: Path) -> None:
    first = copied(store, tmp_path)
    again = copied(store, tmp_path)
    assert (again.copied, again.written_bytes, again.unchanged) == (0, 0, first.copied)
    toy_run(store, "static")
    third = copied(store, tmp_path)
    assert third.runs == 2 and third.unchanged == first.copied and third.copied > 0


def test_a_run_that_was_removed_stays_and_one_that_was_compacted_follows(store: Path, tmp_path: Path) -> None:
    run_dir = store / "runs" / "many"
    with RunWriter.create(run_dir, flush_events=4) as writer:
        for number in range(30):
            writer.append(*workload.event(number))
        writer.finish({})
    copied(store, tmp_path)
    compact(run_dir)
    gone = next(path for path in (store / "runs").iterdir() if path != run_dir)
    durable.remove_tree(gone)
    made = copied(store, tmp_path)
    assert made.removed and (tmp_path / "copy" / "runs" / gone.name).is_dir()
    many = RunReader(tmp_path / "copy" / "runs" / "many")
    assert many.digest() == RunReader(run_dir).digest() and store_check.check(tmp_path / "copy").ok


def test_copies_of_a_run_that_is_written_are_whole_and_no_older_than_their_beginning(tmp_path: Path) -> None:
    run_dir, ending, reached = tmp_path / "store" / "runs" / "live", Event(), [0]

    def write() -> None:
        with RunWriter.create(run_dir, flush_events=40) as writer:
            number = 0
            while not ending.is_set():
                writer.append(*workload.event(number))
                number += 1
                if number % 5 == 0:
                    reached[0] = writer.flush()
                    ending.wait(0.001)

    thread = Thread(target=write)
    thread.start()
    while not reached[0]:
        ending.wait(0.001)
    try:
        for _ in range(12):
            durable_before = reached[0]
            with_retries(tmp_path)
            live = RunReader(tmp_path / "copy" / "runs" / "live")
            assert not live.verify()
            numbers = [event.seq for event in live.events()]
            assert numbers == list(range(len(numbers))) and len(numbers) > durable_before
    finally:
        ending.set()
        thread.join()


def with_retries(tmp_path: Path) -> None:
    """A log of forty events a segment may change faster than its few files are copied."""
    for _ in range(20):
        try:
            copied(tmp_path / "store", tmp_path)
        except LockedError as error:
            assert "changed 8 times" in str(error)
        else:
            return
    raise AssertionError("no copy in 160 tries")


def test_a_copy_that_was_interrupted_is_finished(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = iter(range(1_000)), durable.replace

    def third_fails(path: Path, data: bytes) -> durable.Stored:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return real(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(durable, "replace", third_fails)
        with pytest.raises(KeyboardInterrupt):
            copied(store, tmp_path)
    assert b'"complete": false' in (tmp_path / "copy" / places.MARK).read_bytes()
    copied(store, tmp_path)
    assert store_check.check(tmp_path / "copy").ok


def test_rot_in_a_copy_is_found_and_mended(store: Path, tmp_path: Path) -> None:
    copied(store, tmp_path)
    rotten = next((tmp_path / "copy" / "runs").rglob("*.parquet"))
    data = bytearray(rotten.read_bytes())
    data[len(data) // 2] ^= 1
    rotten.write_bytes(data)
    assert not store_check.check(tmp_path / "copy").ok
    assert copied(store, tmp_path).copied == 1
    assert store_check.check(tmp_path / "copy").ok


def test_a_restored_store_is_the_copy(store: Path, tmp_path: Path) -> None:
    copied(store, tmp_path)
    assert restore(Folder(tmp_path / "copy"), tmp_path / "new") == len(contents(tmp_path / "copy"))
    assert contents(tmp_path / "new") == contents(tmp_path / "copy")
    assert store_check.check(tmp_path / "new").ok
    with pytest.raises(UsageError, match="is not empty"):
        restore(Folder(tmp_path / "copy"), tmp_path / "new")


def test_a_damaged_or_half_made_copy_is_not_restored(store: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no whole copy"):
        restore(Folder(tmp_path / "copy"), tmp_path / "new")
    copied(store, tmp_path)
    rotten = next((tmp_path / "copy" / "runs").rglob("*.parquet"))
    rotten.write_bytes(rotten.read_bytes()[:-1] + b"x")
    with pytest.raises(DamageError, match="not what was written"):
        restore(Folder(tmp_path / "copy"), tmp_path / "new")
    rotten.unlink()
    with pytest.raises(DamageError, match="missing"):
        restore(Folder(tmp_path / "copy"), tmp_path / "newer")


@pytest.mark.parametrize("name", ["../evil", "/evil", "runs/../../evil", "runs//evil", "runs\\evil"])
def test_a_mark_cannot_lead_out_of_the_store(tmp_path: Path, name: str) -> None:
    mark = {"schema": "twin.backup/1", "complete": True, "files": {name: [0, "", ""]}}
    durable.replace(tmp_path / "copy" / places.MARK, json.dumps(mark).encode())
    with pytest.raises(DamageError, match=r"backup\.json"):
        restore(Folder(tmp_path / "copy"), tmp_path / "new")


def test_places_that_cannot_be_a_copy_are_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for target, why in ((store / "inside", "lie in each other"), (tmp_path, "lie in each other"),
                        (tmp_path / "full", "thesis.tex"), (tmp_path / "file", "is a file")):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            back_up(store, Folder(target))
    with pytest.raises(UsageError, match="is no store"):
        copied(tmp_path / "full", tmp_path)
    assert (tmp_path / "full" / "thesis.tex").read_text() == "mine"
