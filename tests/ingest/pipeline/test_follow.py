"""Following files that grow and folders that fill, with kills in between: every row once."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ingest.lake import duckdb_views, lake
from ingest.pipeline import follow
from ingest.pipeline.ingest import ingest
from tests.support.formats import LINKS, RUN, iperf_bytes, lines, link


def rows(store: Path) -> list[float]:
    sql = "SELECT bandwidth_bps FROM link_samples ORDER BY ts, bandwidth_bps"
    return [row[0] for row in duckdb_views.connect(store).execute(sql).fetchall()]


def sample(number: int) -> str:
    return link(str(number), ts=f"2024-01-01T{number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z")


def test_a_growing_csv_gives_its_complete_lines(tmp_path: Path) -> None:
    path, store = tmp_path / "set/l.csv", tmp_path / "store"
    path.parent.mkdir()
    path.write_bytes(lines(LINKS, sample(1), sample(2)) + sample(3).encode()[:9])
    state = follow.Followed()
    seen: list[list[float]] = []

    def grow(line: str) -> None:
        seen.append(rows(store))
        if len(seen) == 1:
            with path.open("ab") as stream:
                stream.write(
                    sample(3).encode()[9:] + b"\n" + sample(4).encode() + b"\n" + link("-1").encode()
                )
                stream.write(b"\n")

    follow.follow([path.parent], store, poll_s=0.01, polls=5, notify=grow, into=state)
    assert seen == [[1, 2], [1, 2, 3, 4]]
    assert (state.rows, state.rejected, state.files, state.polls) == (4, 1, 2, 5)
    assert follow.follow([path], store, poll_s=0, polls=2).rows == 0  # a new start knows what was taken
    names = sorted(e.file.partition("@")[0] for m in lake.live(store) for e in m.sources)
    assert names == ["l.csv", "l.csv"]


def test_equal_lines_are_rows_each_time(tmp_path: Path) -> None:
    path, store = tmp_path / "set/l.csv", tmp_path / "store"
    path.parent.mkdir()
    path.write_bytes(lines(LINKS, sample(1)))
    for _ in range(3):
        follow.follow([path], store, poll_s=0, polls=1)
        with path.open("ab") as stream:
            stream.write(sample(1).encode() + b"\n")
    assert rows(store) == [1, 1, 1]


def test_whole_files_and_pieces_replace_each_other(tmp_path: Path) -> None:
    path, store = tmp_path / "set/l.csv", tmp_path / "store"
    path.parent.mkdir()
    path.write_bytes(lines(LINKS, sample(1), sample(2)))
    for step in range(3, 9):
        if step % 3:
            follow.follow([path], store, poll_s=0, polls=1)
        else:
            ingest([path], store)
        assert rows(store) == [float(n) for n in range(1, step)]
        with path.open("ab") as stream:
            stream.write(sample(step).encode() + b"\n")


def test_a_file_that_was_cut_is_named(tmp_path: Path) -> None:
    path, store = tmp_path / "set/l.csv", tmp_path / "store"
    path.parent.mkdir()
    path.write_bytes(lines(LINKS, sample(1), sample(2)))
    follow.follow([path], store, poll_s=0, polls=1)
    path.write_bytes(lines(LINKS, sample(1)))
    done = follow.follow([path], store, poll_s=0, polls=1)
    assert "a new file needs a new name" in done.skipped[str(path)]
    assert rows(store) == [1, 2]


def test_whole_documents_are_taken_when_they_rest(tmp_path: Path) -> None:
    folder, store = tmp_path / "set", tmp_path / "store"
    folder.mkdir()
    assert follow.follow([folder], store, poll_s=0, polls=2).rows == 0  # empty so far
    path = folder / RUN
    path.parent.mkdir(parents=True)
    path.write_bytes(iperf_bytes()[:100])
    state = follow.Followed()

    def rest() -> None:
        path.write_bytes(iperf_bytes())

    timer = threading.Timer(0.25, rest)
    timer.start()
    follow.follow([folder], store, poll_s=0.1, polls=12, into=state)
    assert state.rows == 3 and len(rows(store)) == 3


COMMAND = "import cli; cli.main()"


def started(repository: Path, store: Path, folder: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-c",
        COMMAND,
        "--store",
        str(store),
        "--json",
        "ingest",
        "--follow",
        str(folder),
    ]
    return subprocess.Popen(
        command, cwd=repository, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def waited(store: Path, least: int) -> None:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        if (store / "lake").is_dir() and len(rows(store)) >= least:
            return
        time.sleep(0.1)
    pytest.fail(f"not {least} rows in time")


def test_killed_while_a_writer_writes_and_restarted(tmp_path: Path, repository: Path) -> None:
    folder, store = tmp_path / "set", tmp_path / "store"
    folder.mkdir()
    path = folder / "l.csv"
    path.write_bytes(lines(LINKS))
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        with path.open("ab", buffering=0) as stream:
            while not stop.is_set() and written < 20_000:
                text = f"{sample(written)}\n".encode()
                stream.write(text[:7])  # a line is there in halves now and then
                stream.write(text[7:])
                written += 1
                time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        first = started(repository, store, folder)
        waited(store, 1)
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
        before = len(rows(store))
        second = started(repository, store, folder)
        waited(store, before + 1)
    finally:
        stop.set()
        writer.join()
    waited(store, written)
    second.send_signal(signal.SIGINT)
    said, _ = second.communicate(timeout=60)
    report = json.loads(said)
    assert second.returncode == 0
    assert (report["schema"], report["rows"], report["rejected"]) == ("twin.follow/1", written - before, 0)
    assert rows(store) == [float(n) for n in range(written)]
