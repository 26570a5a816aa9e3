"""Devices, FIFOs, sockets and files of the kernel in a folder: named and left out, the others are taken."""

import os
import socket
from pathlib import Path

import pytest

from ingest.core.errors import InputError
from ingest.core.file_kinds import refuse_special
from ingest.parsing import archive
from ingest.pipeline.follow import follow
from ingest.pipeline.ingest import ingest
from ingest.readers import job_logs
from tests.support.private_devices import NULL, device

CSV = "ts,src,dst,bandwidth_bps\n2026-01-01T00:00:00Z,a,b,1e9\n"
LINKS = {
    "kcore.csv": "/proc/kcore", "maps.csv": "/proc/self/maps", "kernel.csv.gz": "/proc/self/status",
    "system.csv": "/sys/kernel/notes", "mem.parquet": "/proc/self/mem",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "links.csv").write_text(CSV)
    return folder


def left_out(folder: Path, store: Path) -> dict[str, str]:
    """Name and reason of each file that was not read; the sound one was."""
    report = ingest([folder], store)
    assert [Path(file.path).name for file in report.files if not file.skipped_reason] == ["links.csv"]
    return {Path(file.path).name: file.skipped_reason or "" for file in report.skipped}


def test_links_to_files_of_the_kernel_are_left_out_by_kind(folder: Path, tmp_path: Path) -> None:
    linked = {name: target for name, target in LINKS.items() if Path(target).exists()}
    for name, target in linked.items():
        (folder / name).symlink_to(target)
    reasons = left_out(folder, tmp_path / "store")
    assert reasons.keys() == linked.keys() and linked
    assert all("a file of the system" in reason for reason in reasons.values()), reasons


@pytest.mark.parametrize("name", ["other.csv", "other.csv.gz", "other.parquet"])
def test_fifos_and_sockets_are_left_out_by_kind(folder: Path, tmp_path: Path, name: str) -> None:
    os.mkfifo(folder / name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket.csv"))
        reasons = left_out(folder, tmp_path / "store")
    assert "a FIFO" in reasons[name] and "a socket" in reasons["socket.csv"]


@pytest.mark.parametrize("name", ["zero.csv", "zero.tar.gz"])
def test_devices_and_links_to_them_are_left_out_by_kind(folder: Path, tmp_path: Path, name: str) -> None:
    device(tmp_path / "zero", (1, 5))
    device(folder / "null.csv", NULL)
    (folder / name).symlink_to(tmp_path / "zero")
    reasons = left_out(folder, tmp_path / "store")
    assert reasons.keys() == {name, "null.csv"} and all("a device" in why for why in reasons.values())


def test_a_link_to_the_folder_of_the_kernel_is_not_walked(tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "links.csv").write_text(CSV)
    (folder / "SOURCES.md").write_text("where they are from")
    (folder / "proc").symlink_to("/proc")
    assert left_out(folder, tmp_path / "store").keys() == {"proc"}


def test_a_fifo_in_a_folder_that_is_followed_holds_up_nothing(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "fifo.csv")
    done = follow([folder], tmp_path / "store", polls=2, poll_s=0.01)
    assert done.rows == 1 and "a FIFO" in done.skipped[str(folder / "fifo.csv")]


def test_a_job_log_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.swf")
    os.mkfifo(tmp_path / "log.swf.gz")
    for name in ("log.swf", "log.swf.gz"):
        with pytest.raises(InputError, match="a FIFO"):
            job_logs.read(tmp_path / name)


def test_ordinary_files_and_links_to_them_are_regular(folder: Path) -> None:
    (folder / "again.csv").symlink_to("links.csv")
    assert refuse_special(folder / "again.csv").st_size == len(CSV)
    assert not archive.is_archive(folder / "again.csv")
