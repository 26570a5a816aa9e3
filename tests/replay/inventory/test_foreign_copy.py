"""`twin restore` of a copy from elsewhere: the files that its manifest lists, and nothing else."""

import json
import os
import resource
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from ingest.core import durable
from ingest.core.errors import DamageError, StorageError, TwinError, UsageError
from replay.inventory import backup, copy_manifest
from replay.inventory.backup import back_up, restore
from replay.inventory.bucket import Bucket
from replay.inventory.places import Folder
from tests.support.hostile import VALUES
from tests.support.toys import toy_run, without_lake

ROW = [1, "a" * 64, ""]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole copy."""
    folder = tmp_path_factory.mktemp("good")
    with pytest.MonkeyPatch.context() as patch:
        without_lake(patch)
        toy_run(folder / "store", "greedy")
    back_up(folder / "store", Folder(folder / "copy"))
    return folder / "copy"


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "copy")
    return tmp_path / "copy"


def refused(copy: Path, match: str = "") -> None:
    """Checks that the copy is refused before anything is written."""
    new = copy.parent / "new"
    with pytest.raises(DamageError, match=match):
        restore(Folder(copy), new)
    assert not new.exists()


def a_file(copy: Path) -> Path:
    return next((copy / "runs").rglob("*.parquet"))


def swapped(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def change(copy: Path) -> None:
        path = a_file(copy)
        path.unlink()
        make(path)

    return change


def socket_at(path: Path) -> None:
    os.chdir(path.parent)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def linked_folder(copy: Path) -> None:
    run = a_file(copy).parent
    shutil.move(run, copy.parent / "elsewhere")
    run.symlink_to(copy.parent / "elsewhere")


SHAPES: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (swapped(lambda path: path.symlink_to("/etc/passwd")), "a link"),
    "link to a device": (swapped(lambda path: path.symlink_to("/dev/zero")), "a link"),
    "FIFO": (swapped(os.mkfifo), "a FIFO"),
    "socket": (swapped(socket_at), "a socket"),
    "folder": (swapped(Path.mkdir), "missing from the copy"),
    "linked folder": (linked_folder, "a link"),
    "missing": (lambda copy: a_file(copy).unlink(), "missing from the copy"),
    "truncated": (lambda copy: os.truncate(a_file(copy), 10), "10 bytes, not the"),
    "oversized": (lambda copy: os.truncate(a_file(copy), 200 << 30), "214,748,364,800 bytes, not the"),
    "surplus": (lambda copy: (copy / "runs" / "more").write_text("x"), "does not list it"),
    "surplus FIFO": (lambda copy: os.mkfifo(copy / "more"), "a FIFO"),
    "surplus link": (lambda copy: (copy / "lake").symlink_to("/etc"), "a link"),
    "deep folders": (lambda copy: (copy / "/".join("d" * 30)).mkdir(parents=True), "so deep"),
    "manifest is a FIFO": (
        lambda copy: ((copy / "backup.json").unlink(), os.mkfifo(copy / "backup.json")), "not a regular file",
    ),
    "manifest is a link": (
        lambda copy: ((copy / "backup.json").unlink(), (copy / "backup.json").symlink_to("/dev/zero")),
        "not a regular file",
    ),
    "manifest is a folder": (
        lambda copy: ((copy / "backup.json").unlink(), (copy / "backup.json").mkdir()), "not a regular file",
    ),
    "manifest of 200 GiB": (lambda copy: os.truncate(copy / "backup.json", 200 << 30), "at most"),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_no_listed_regular_file_of_its_size_is_refused_before_a_byte_is_written(
    copy: Path, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    change, problem = SHAPES[shape]
    change(copy)
    refused(copy, problem)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_refused(copy: Path) -> None:
    path = a_file(copy)
    path.unlink()
    try:
        os.mknod(path, 0o020666, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("this machine makes no devices")
    refused(copy, "a device")


def test_hidden_files_locks_and_caches_are_passed_over(copy: Path) -> None:
    for name in (".snapshot", "runs/.lock", "labels.lock", "cache/rows.parquet"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("x")
    os.mkfifo(copy / "cache" / "pipe")
    restore(Folder(copy), copy.parent / "new")
    assert not list((copy.parent / "new").glob("cache")) and not (copy.parent / "new" / ".snapshot").exists()


def manifest_with(copy: Path, **changes: Any) -> None:
    fields = json.loads((copy / "backup.json").read_text()) | changes
    (copy / "backup.json").write_text(json.dumps({k: v for k, v in fields.items() if v != "absent"}))


@pytest.mark.parametrize("name", [
    "../evil", "/evil", "runs/../../evil", "runs//evil", "runs\\evil", "", ".", "a/./b", "a" * 300, "lake\n",
    "a\0b", "/".join("a" * 30), "/".join(["a" * 200] * 5), ".hidden", "runs/.lock", "cache/rows",
    "bucket.json",
    "backup.json", "\ud800", "runs",
])  # fmt: skip
def test_a_name_leads_to_a_file_that_a_copy_may_hold_or_is_refused(copy: Path, name: str) -> None:
    fields = json.loads((copy / "backup.json").read_text())
    manifest_with(copy, files={**fields["files"], name: ROW})
    refused(copy, r"backup\.json")


@pytest.mark.parametrize("field", ["schema", "at_epoch_s", "complete", "files"])
def test_a_manifest_fits_its_model_or_is_refused(copy: Path, field: str) -> None:
    fields = json.loads((copy / "backup.json").read_text())
    for value in ["absent", *VALUES]:
        if (
            isinstance(value, type(fields[field]))
            and field in ("at_epoch_s", "complete")
            and value in (0, 1, 7, 8)
        ):
            continue
        manifest_with(copy, **{**fields, field: value})
        try:
            restore(Folder(copy), copy.parent / "new")
        except (TwinError, UsageError) as error:
            assert len(str(error)) < 1_000, field
        else:
            shutil.rmtree(copy.parent / "new")
            assert (field, type(value)) in (("at_epoch_s", int), ("complete", bool), ("schema", str))
        assert not (copy.parent / "new").exists()


@pytest.mark.parametrize("row", [
    [], 0, "x", None, [1], ROW[:2], [*ROW, 1], ["1", *ROW[1:]], [-1, *ROW[1:]], [1.5, *ROW[1:]],
    [True, *ROW[1:]], [2**60, *ROW[1:]], [1, "x", ""], [1, "A" * 64, ""], [1, None, ""], [1, "a" * 64, 5],
    [1, "a" * 64, "t" * 300],
])  # fmt: skip
def test_a_row_of_a_manifest_fits_its_model_or_is_refused(copy: Path, row: Any) -> None:
    fields = json.loads((copy / "backup.json").read_text())
    manifest_with(copy, files={**fields["files"], "lake/x": row})
    refused(copy, r"backup\.json: not what `twin backup` writes \(files\.lake/x")


@pytest.mark.parametrize("data", [
    b"", b"[]", b"null", b"[" * 100_000, b'{"files":' * 100_000, b"\xff\xfe", b"{", b'"' + b"a" * 1_000_000,
    b'{"files":{' + b",".join(b'"%d":0' % n for n in range(600_000)) + b"}}", b"[" * (1 << 26), b"9" * 5_000,
], ids=range(11))  # fmt: skip
def test_bytes_that_are_no_manifest_are_refused_quickly(copy: Path, data: bytes) -> None:
    (copy / "backup.json").write_bytes(data)
    refused(copy, r"backup\.json")


def test_memory_stays_bounded_and_a_file_that_cannot_fit_on_the_disk_is_refused(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, size, digest = "lake/large", 600 << 20, "0" * 64
    (copy / "lake").mkdir()
    (copy / name).write_bytes(b"")
    os.truncate(copy / name, size)
    fields = json.loads((copy / "backup.json").read_text())
    manifest_with(copy, files={**fields["files"], name: [size, digest, ""]})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamageError, match="not what was written"):
        restore(Folder(copy), copy.parent / "new")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10
    assert not list((copy.parent / "new").rglob("*large*"))
    shutil.rmtree(copy.parent / "new")
    os.truncate(copy / name, 1 << 43)
    manifest_with(copy, files={**fields["files"], name: [1 << 43, digest, ""]})
    with pytest.raises(StorageError, match="are free"):
        restore(Folder(copy), copy.parent / "new")
    assert not (copy.parent / "new").exists()


def test_a_backup_into_a_copy_from_elsewhere_writes_through_no_link(good: Path, copy: Path) -> None:
    linked_folder(copy)
    with pytest.raises(DamageError, match="a link"):
        back_up(good.parent / "store", Folder(copy))
    manifest_with(copy, files={"../evil": ROW})
    with pytest.raises(DamageError, match=r"backup\.json"):
        back_up(good.parent / "store", Folder(copy))


def test_a_store_inside_the_copy_is_refused(copy: Path) -> None:
    with pytest.raises(UsageError, match="lie in each other"):
        restore(Folder(copy), copy / "new")


def test_a_place_that_no_folder_can_be_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (
        tmp_path / "file",
        tmp_path / ("a" * 300),
        Path("/dev/null"),
        tmp_path / "no",
    ):
        with pytest.raises(TwinError):
            restore(Folder(place), tmp_path / "new")


def test_a_file_that_grows_or_changes_under_the_restoration_is_not_taken(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = backup._check_room

    def then_change(store: Path, size: int) -> None:
        real(store, size)
        swapped(os.mkfifo)(copy)

    monkeypatch.setattr(backup, "_check_room", then_change)
    with pytest.raises(DamageError, match="not a regular file"):
        restore(Folder(copy), copy.parent / "new")


def test_objects_beside_those_of_a_copy_and_of_other_sizes_are_refused(good: Path, tmp_path: Path) -> None:
    for change, problem in (
        (lambda client, name: obstore.put(client, "lake/more", b"x"), "does not list it"),
        (lambda client, name: obstore.put(client, name, b"x"), "1 bytes, not the"),
        (lambda client, name: obstore.delete(client, name), "missing from the copy"),
        (lambda client, name: obstore.put(client, copy_manifest.NAME, b"[" * 100_000), r"backup\.json"),
    ):
        client = MemoryStore()
        back_up(good.parent / "store", Bucket("s3://memory", client))
        name = next(row["path"] for row in obstore.list(client).collect() if row["path"].endswith(".parquet"))
        change(client, name)
        with pytest.raises(DamageError, match=problem):
            restore(Bucket("s3://memory", client), tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_a_killed_backup_leaves_no_whole_copy_with_surplus_files(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    restore(Folder(good), store)
    (store / "labels").mkdir()
    (store / "labels" / "old.json").write_text("x")
    back_up(store, Folder(tmp_path / "copy"))
    durable.remove(store / "labels" / "old.json")
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "remove", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            back_up(store, Folder(tmp_path / "copy"))
    assert not copy_manifest.parsed("x", (tmp_path / "copy" / copy_manifest.NAME).read_bytes()).complete
    back_up(store, Folder(tmp_path / "copy"))
    restore(Folder(tmp_path / "copy"), tmp_path / "new")
