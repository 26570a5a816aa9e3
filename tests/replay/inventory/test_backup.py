"""`twin backup`: a copy that verifies, of a store that is written meanwhile, never less than was durable."""

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from ingest.core import durable
from ingest.core.errors import DamageError, NotFoundError, UsageError
from replay.api import store_check
from replay.inventory import backup, copy_manifest
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
    hidden = copy_manifest.NAME, ".lock"
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
            copied(tmp_path / "store", tmp_path)
            live = RunReader(tmp_path / "copy" / "runs" / "live")
            assert not live.verify()
            numbers = [event.seq for event in live.events()]
            assert numbers == list(range(len(numbers))) and len(numbers) > durable_before
    finally:
        ending.set()
        thread.join()


@pytest.mark.parametrize("moment", [1, 3, 6])
def test_a_run_that_is_compacted_or_removed_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    for change in (compact, durable.remove_tree):
        folder = tmp_path / change.__name__
        run_dir = folder / "store" / "runs" / "many"
        with RunWriter.create(run_dir, flush_events=4) as writer:
            for number in range(30):
                writer.append(*workload.event(number))
            writer.finish({})
        read, real = iter(range(1, 1_000)), backup._copy

        def at_a_moment(made: Backup, path: Path, real: Any = real, read: Any = read, change: Any = change,
                        run_dir: Path = run_dir) -> None:  # fmt: skip
            if path.parent == run_dir and next(read) == moment:
                change(run_dir)
            real(made, path)

        with monkeypatch.context() as patched:
            patched.setattr(backup, "_copy", at_a_moment)
            made = copied(folder / "store", folder)
        there = folder / "copy" / "runs" / "many"
        assert made.runs == (change is compact) and there.is_dir() == (change is compact)
        restore(Folder(folder / "copy"), folder / "new")
        if change is compact:
            assert not RunReader(there).verify() and (there / "compacted.json").is_file()


def test_a_copy_has_the_log_up_to_the_end_that_it_had_at_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir, real = tmp_path / "store" / "runs" / "live", backup._copy
    with RunWriter.create(run_dir, flush_events=10, flush_s=10**9) as writer:
        numbers = iter(range(10_000))

        def write(count: int) -> None:
            for _ in range(count):
                writer.append(*workload.event(next(numbers)))
            writer.flush()

        def busy(made: Backup, path: Path) -> None:  # more is written than is copied
            write(25)
            real(made, path)

        write(25)
        monkeypatch.setattr(backup, "_copy", busy)
        copied(tmp_path / "store", tmp_path)
        live = RunReader(tmp_path / "copy" / "runs" / "live")
        assert [event.seq for event in live.events()] == list(range(25)) and not live.verify()


def test_a_damaged_run_is_copied_as_it_is(store: Path, tmp_path: Path) -> None:
    (run_dir,) = (store / "runs").iterdir()
    max(run_dir.glob("*.json")).write_bytes(b"rot")
    made = copied(store, tmp_path)
    own = {name: data for name, data in contents(store).items() if not name.endswith("lock")}
    assert made.runs == 1 and contents(tmp_path / "copy") == own


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
    assert b'"complete":false' in (tmp_path / "copy" / copy_manifest.NAME).read_bytes()
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


def test_parts_of_the_lake_that_are_replaced_meanwhile_leave_a_copy_that_names_what_it_has(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, real = store / "lake", backup._copy
    durable.replace(lake / "committed.json", b"names old")
    durable.replace(lake / "parts" / "old", b"old")
    durable.replace(lake / "parts" / "unnamed", b"unnamed")

    def meanwhile(made: Backup, path: Path) -> None:
        if path.name == "old":
            durable.replace(lake / "parts" / "new", b"new")
            durable.replace(lake / "committed.json", b"names new")
            durable.remove(path)
        if path.name == "unnamed":
            durable.remove(path)
        real(made, path)

    monkeypatch.setattr(backup, "_copy", meanwhile)
    copied(store, tmp_path)
    assert (tmp_path / "copy" / "lake" / "committed.json").read_bytes() == b"names new"
    assert [path.name for path in (tmp_path / "copy" / "lake" / "parts").iterdir()] == ["new"]
    restore(Folder(tmp_path / "copy"), tmp_path / "new")
