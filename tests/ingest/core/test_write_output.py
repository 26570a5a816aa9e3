"""What a user names as an output: files are replaced, devices, FIFOs and terminals are opened and written."""

import os
import pty
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from commands.frame.dry_run import noting
from ingest.core import durable
from ingest.core.errors import StorageError
from tests.support.private_devices import FULL, NULL, device, kind


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    null = device(tmp_path / "null", NULL)
    durable.write_output(null, b"x" * 100)
    assert kind(null) == "c" and [p.name for p in tmp_path.iterdir()] == ["null"]


def test_a_full_device_is_a_storage_error(tmp_path: Path) -> None:
    full = device(tmp_path / "full", FULL)
    with pytest.raises(StorageError, match="No space left"):
        durable.write_output(full, b"x")
    assert kind(full) == "c"


@pytest.mark.parametrize("size", [3, 1 << 20])
def test_a_fifo_gets_the_bytes(tmp_path: Path, size: int) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(fifo.read_bytes()))
    reader.start()
    durable.write_output(fifo, b"x" * size)
    reader.join()
    assert received == [b"x" * size] and kind(fifo) == "p"


def test_a_fifo_that_nobody_reads_ends_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "READER_WAIT_S", 0.1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(StorageError, match="no program reads"):
        durable.write_output(fifo, b"x")
    assert kind(fifo) == "p"


def test_a_terminal_is_written(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        durable.write_output(Path(os.ttyname(theirs)), b"plan")
        assert os.read(ours, 100) == b"plan"
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("target", ["null", "file", "nothing"])
def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path, target: str) -> None:
    if target == "null":
        device(tmp_path / "null", NULL)
    elif target == "file":
        (tmp_path / "file").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(target)
    durable.write_output(link, b"new")
    assert link.is_symlink()
    if target != "null":
        assert (tmp_path / target).read_bytes() == b"new"


def test_a_socket_and_a_folder_are_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(StorageError, match="a socket"):
            durable.write_output(tmp_path / "socket", b"x")
    with pytest.raises(StorageError, match="directory"):
        durable.write_output(tmp_path, b"x")
    assert kind(tmp_path / "socket") == "s"


def test_standard_output_by_its_name_goes_on_where_it_is(tmp_path: Path, repository: Path) -> None:
    code = (
        "from pathlib import Path; from ingest.core import durable; print('before');"
        "durable.write_output(Path('/dev/fd/1'), b'output\\n'); print('after')"
    )
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, cwd=repository, check=True)
    assert (tmp_path / "out").read_text() == "before\noutput\nafter\n"


def test_files_of_the_store_never_replace_a_device(tmp_path: Path) -> None:
    null = device(tmp_path / "null", NULL)
    (tmp_path / "link").symlink_to("null")
    for path in (null, tmp_path / "link"):
        with pytest.raises(StorageError, match="not a regular file"):
            durable.replace(path, b"x")
    assert kind(null) == "c"


def test_a_dry_run_opens_nothing(tmp_path: Path) -> None:
    full = device(tmp_path / "full", FULL)
    with noting() as changes:
        durable.write_output(full, b"x")
    assert [(change.what, change.path) for change in changes] == [("write", str(full))]
