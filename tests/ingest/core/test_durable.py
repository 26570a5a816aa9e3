"""Atomic, durable files; and the rule that nobody else opens a file for writing."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from ingest.core.durable import TEMPORARY, Disk, Lock, put, put_file, remove, replace, sweep
from ingest.core.errors import ExistsError, LockedError, StorageError, TwinError


class Calls(Disk):
    """Notes the order of the calls."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def create(self, path: Path) -> int:
        self.log.append("create")
        return super().create(path)

    def write(self, fd: int, data: memoryview) -> int:
        self.log.append("write")
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self.log.append("fsync")
        super().fsync(fd)

    def link(self, source: Path, target: Path) -> None:
        self.log.append("link")
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self.log.append("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self.log.append("unlink")
        super().unlink(path)

    def fsync_directory(self, path: Path) -> None:
        self.log.append("fsync directory")
        super().fsync_directory(path)


def test_put_writes_syncs_links_and_syncs_the_directory_in_this_order(tmp_path: Path) -> None:
    disk = Calls()
    stored = put(tmp_path / "a", b"hello", disk=disk)
    assert disk.log == ["create", "write", "fsync", "link", "unlink", "fsync directory"]
    assert (tmp_path / "a").read_bytes() == b"hello"
    assert stored.size_bytes == 5
    assert stored.sha256 == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_put_never_overwrites(tmp_path: Path) -> None:
    put(tmp_path / "a", b"old")
    with pytest.raises(ExistsError, match="never overwritten"):
        put(tmp_path / "a", b"new")
    with pytest.raises(ExistsError):
        put(tmp_path / "a", b"new", idempotent=True)
    assert put(tmp_path / "a", b"old", idempotent=True).size_bytes == 3
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_put_loses_against_one_who_commits_in_between(tmp_path: Path) -> None:
    class Slow(Disk):
        def link(self, source: Path, target: Path) -> None:
            target.write_bytes(b"the other")
            super().link(source, target)

    with pytest.raises(ExistsError):
        put(tmp_path / "a", b"mine", disk=Slow())
    assert (tmp_path / "a").read_bytes() == b"the other"
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "the temporary file is gone"


def test_short_writes_are_continued(tmp_path: Path) -> None:
    class Short(Disk):
        def write(self, fd: int, data: memoryview) -> int:
            return super().write(fd, data[:7])

    data = bytes(range(256)) * 20
    assert put(tmp_path / "a", data, disk=Short()).size_bytes == len(data)
    assert (tmp_path / "a").read_bytes() == data


def test_put_file_streams_and_a_failing_writer_leaves_nothing(tmp_path: Path) -> None:
    def parts(stream: BinaryIO) -> None:
        for number in range(300):
            stream.write(bytes([number % 256]) * 10_000)

    assert put_file(tmp_path / "new" / "deep" / "a", parts).size_bytes == 3_000_000

    def fails(stream: BinaryIO) -> None:
        stream.write(b"x" * 5_000_000)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        put_file(tmp_path / "b", fails)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_put_file_takes_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": list(range(10_000))})
    put_file(tmp_path / "a.parquet", lambda stream: pq.write_table(table, stream))
    assert pq.read_table(tmp_path / "a.parquet").equals(table)


def test_replace_swaps_atomically(tmp_path: Path) -> None:
    disk = Calls()
    replace(tmp_path / "a", b"one", disk=disk)
    assert disk.log == ["create", "write", "fsync", "rename", "fsync directory"]
    replace(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_replace_keeps_the_old_content(tmp_path: Path) -> None:
    class Stuck(Disk):
        def rename(self, source: Path, target: Path) -> None:
            raise OSError(5, "Input/output error")

    replace(tmp_path / "a", b"one")
    with pytest.raises(StorageError, match="Input/output error"):
        replace(tmp_path / "a", b"two", disk=Stuck())
    assert (tmp_path / "a").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_errors_name_the_file_and_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(TwinError, match=r"file.*"):
        put(tmp_path / "file" / "below", b"")
    with pytest.raises(StorageError, match="run the command again"):
        remove(tmp_path / "nothing")


def test_left_over_temporary_names_are_stepped_over_and_match_their_pattern(tmp_path: Path) -> None:
    seen: list[str] = []

    class Watch(Disk):
        def create(self, path: Path) -> int:
            seen.append(path.name)
            if len(seen) == 1:
                path.write_bytes(b"of a dead process with this number")
            return super().create(path)

    put(tmp_path / "a.json", b"{}", disk=Watch())
    assert len(seen) == 2
    assert all(TEMPORARY.fullmatch(name) for name in seen)
    assert not any(name.endswith((".json", ".parquet")) for name in seen)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    class Full(Disk):
        def write(self, fd: int, data: memoryview) -> int:
            raise OSError(28, "No space left on device")

    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        put(tmp_path / str(number), b"x" * 5_000_000)
        with pytest.raises(StorageError, match="No space left"):
            put(tmp_path / f"{number}-b", b"x" * 100, disk=Full())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(list(tmp_path.iterdir())) == 20


def test_a_lock_is_exclusive_until_released(tmp_path: Path) -> None:
    with Lock(tmp_path / "runs" / "lock"), pytest.raises(LockedError, match=f"pid {os.getpid()}"):
        Lock(tmp_path / "runs" / "lock")
    with Lock(tmp_path / "runs" / "lock") as lock:
        lock.release()
        Lock(tmp_path / "runs" / "lock").release()


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = [f".a.{dead.pid}-0.tmp", f".b.{os.getpid()}-0.tmp", "a.tmp", ".c.tmp", f".d.{10**30}-1.tmp"]
    for name in names:
        (tmp_path / name).touch()
    assert sweep(tmp_path) == (names[0], names[4])
    assert {path.name for path in tmp_path.iterdir()} == set(names[1:4])


# --- the rule ---

PACKAGES = ("ingest", "twin", "policy", "replay", "commands")
METHODS = {
    "write_text",
    "write_bytes",
    "touch",
    "rename",
    "hardlink_to",
    "symlink_to",
    "unlink",
}
METHODS |= {"to_csv", "to_parquet", "write_parquet", "write_csv", "tofile"}
TO_A_STREAM = {"write_table", "save", "savez", "savez_compressed", "savetxt", "savefig", "dump", "to_file"}
MEMORY = re.compile(r"(BytesIO|StringIO|BufferOutputStream)\(")
LIBRARIES = {"np", "numpy", "torch", "pq", "pa", "pickle", "json", "yaml", "plt", "figure", "polars", "pl"}
MODULES = {"shutil", "tempfile"}
OS = {
    "open",
    "link",
    "rename",
    "replace",
    "remove",
    "unlink",
    "makedirs",
    "truncate",
    "write",
    "symlink",
}


def offences(tree: ast.Module) -> Iterator[str]:
    buffers = streams(tree)
    for function in ast.walk(tree):
        if isinstance(function, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in function.names} | {getattr(function, "module", None)}
            if names & MODULES:
                yield f"line {function.lineno}: imports {names & MODULES}"
        if isinstance(function, ast.Call):
            what = offence(function, buffers)
            if what:
                yield f"line {function.lineno}: {what}"


def streams(tree: ast.Module) -> set[str]:
    """Names that are bound to memory buffers, or annotated as binary streams."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and MEMORY.search(ast.unparse(node.value)):
            found |= {ast.unparse(target) for target in node.targets}
        if isinstance(node, ast.arg) and node.annotation and "IO" in ast.unparse(node.annotation):
            found.add(node.arg)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("put_file"):
            found |= {a.arg for arg in node.args if isinstance(arg, ast.Lambda) for a in arg.args.args}
    return found


def offence(call: ast.Call, buffers: set[str]) -> str | None:
    name = ast.unparse(call.func)
    last = name.rsplit(".", 1)[-1]
    arguments = [ast.unparse(arg) for arg in call.args]
    if last == "open" and name.startswith("os."):
        return name
    if last == "open":
        given = [arg for arg in arguments[0 if "." in name else 1 :] if arg[:1] in "'\""]
        modes = [*given[-1:], *(ast.unparse(k.value) for k in call.keywords if k.arg == "mode")]
        return f"{name}({modes})" if any(set(mode) & set("wax+") for mode in modes) else None
    if name.startswith("os.") and last in OS:
        return name
    if last in METHODS and "disk" not in name and "durable" not in name:
        return name
    if last in TO_A_STREAM and name.split(".")[0] in LIBRARIES and not set(arguments) & buffers:
        return f"{name}({', '.join(arguments)})"
    return None


ALLOWED = {
    "ingest/core/compiled.py",  # a folder for compiled code, which is a cache
    "ingest/core/durable.py",
    "ingest/public/fetch.py",  # a scratch folder for downloads under way; durable writes what is kept
    "ingest/core/scratch.py",  # a temporary folder that is deleted when its process ends
    "policy/sharing/sia.py",  # /dev/null, for what a library prints
}


def test_no_other_module_opens_files_for_writing(repository: Path) -> None:
    found = []
    for package in PACKAGES:
        for path in sorted((repository / package).rglob("*.py")):
            where = path.relative_to(repository).as_posix()
            if where not in ALLOWED:
                found += [f"{where} {what}" for what in offences(ast.parse(path.read_text()))]
    assert not found, "write through ingest.core.durable:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "open('x', 'w')",
        "open(path, mode='ab')",
        "path.open('r+')",
        "path.write_text('')",
        "pq.write_table(table, path)",
        "np.save(path, array)",
        "torch.save(state, path)",
        "os.rename(a, b)",
        "import shutil",
        "from tempfile import mkstemp",
    ],
)
def test_the_rule_sees(code: str) -> None:
    assert list(offences(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "open('x')",
        "path.open('rb')",
        "zipfile.open(name)",
        "sink = io.BytesIO()\npq.write_table(table, sink)",
        "def f(stream: BinaryIO) -> None:\n    torch.save(state, stream)",
        "put_file(path, lambda stream: np.save(stream, array))",
        "durable.replace(path, data)",
    ],
)
def test_the_rule_lets_pass(code: str) -> None:
    assert not list(offences(ast.parse(code)))


def test_a_folder_in_the_place_of_a_file_asks_for_the_name_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot be written \(Is a directory\); give the name of a file"):
        replace(tmp_path, b"x")
