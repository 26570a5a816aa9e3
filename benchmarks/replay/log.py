"""The run log beside SQLite (WAL, FULL): durable events a second, and their cost: python -m
benchmarks.replay.log

Both write the same payload texts, made by the same function, into one temporary folder on the same disk,
one transaction or frame of the tail a commit (the log adds a segment for every 5,000 events), and both are
durable when a commit returns. They take turns; the medians are shown. Then: 99th percentile of a
commit, bytes an event, what a commit of the log spends its time on, and seconds to verify and to recover a
run, scaled to a million events. A fast fsync flatters both. Making a file is slow on ext4 while many were
deleted near it in the last minutes (their inodes are stepped over, one by one): set TMPDIR to a folder where
that was not so, or wait.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ingest.core.durable import Disk
from replay.log.events import payload_text
from replay.log.run_log import RunReader, RunWriter, recover

TURNS = 5
HEADER = {
    "scenario": {"cluster": {"domains": []}, "name": "benchmark"},
    "policy": "none",
    "seed": 0,
    "engine": "kernel",
    "window": "test",
    "dataset": None,
    "checkpoint": None,
    "config_digest": "",
    "code": {},
    "traces": {},
    "note": "",
    "end_ns": 0,
    "origin_epoch_ns": 0,
    "enforce_deadline": False,
}


class ClockedDisk(Disk):
    """The disk, and how many seconds went into waiting for it and into making files."""

    def __init__(self) -> None:
        self.waited_s = self.made_s = 0.0

    def create(self, path: Path) -> int:
        began = time.perf_counter()
        fd = super().create(path)
        self.made_s += time.perf_counter() - began
        return fd

    def fsync(self, fd: int) -> None:
        began = time.perf_counter()
        super().fsync(fd)
        self.waited_s += time.perf_counter() - began

    def fsync_directory(self, path: Path) -> None:
        began = time.perf_counter()
        super().fsync_directory(path)
        self.waited_s += time.perf_counter() - began


def payload(number: int) -> dict[str, object]:
    """Telemetry of a three-domain cluster: six links."""
    samples = [
        [i, j, 2e9 + 1e3 * (number % 977) + i, 0.0412 + j / 1e4] for i in range(3) for j in range(3) if i != j
    ]
    return {"sampled_ns": number * 1000, "samples": samples}


def commits(
    events: int, per_commit: int, add: Callable[[int], object], commit: Callable[[], object]
) -> tuple[float, list[float]]:
    """(seconds in all, seconds of each commit)."""
    each, began = [], time.perf_counter()
    for number in range(1, events + 1):
        add(number)
        if number % per_commit == 0:
            at = time.perf_counter()
            commit()
            each.append(time.perf_counter() - at)
    return time.perf_counter() - began, each


def ours(folder: Path, events: int, per_commit: int, disk: Disk | None = None) -> tuple[float, list[float]]:
    """The run log."""
    with RunWriter.create(folder, flush_s=1e9, disk=disk or Disk()) as writer:
        writer.append(0, "run_started", HEADER)
        return commits(
            events, per_commit, lambda n: writer.append(n * 1000, "link_observed", payload(n)), writer.flush
        )


def spent(folder: Path, per_commit: int) -> str:
    """What one commit of the log takes its time for."""
    disk = ClockedDisk()
    seconds, each = ours(folder, 100 * min(per_commit, 200), per_commit, disk)
    commit_s, append_s = sum(each), seconds - sum(each)
    own_s = commit_s - disk.waited_s - disk.made_s
    waited, made, own, append = (1e3 * s / len(each) for s in (disk.waited_s, disk.made_s, own_s, append_s))
    return (
        f"a commit: {waited:.2f} ms waiting for the disk, {made:.2f} ms making files, {own:.2f} ms "
        f"encoding and hashing; before it {append:.2f} ms checking the events and writing their texts"
    )


def sqlite(folder: Path, events: int, per_commit: int) -> tuple[float, list[float]]:
    """SQLite with a write-ahead log and full synchronisation: no chain, no typed payloads, no digest."""
    folder.mkdir()
    connection = sqlite3.connect(folder / "log.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE events (seq INTEGER PRIMARY KEY, sim_ns INTEGER, type TEXT, payload TEXT)"
    )
    connection.execute("BEGIN")

    def add(number: int) -> None:
        row = (number, number * 1000, "link_observed", payload_text(payload(number)))
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)

    def commit() -> None:
        connection.execute("COMMIT")
        connection.execute("BEGIN")

    try:
        return commits(events, per_commit, add, commit)
    finally:
        connection.close()


def size(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.iterdir())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory() as root:
        columns = f"{'events/s':>18}{'p99 commit':>12}{'B/event':>9}"
        print(f"{'':15}{'run log':>18}{'':21}{'SQLite':>18}")
        print(f"{'events a commit':15}{columns}{columns}{'ratio':>8}")
        for per_commit in (1, 100, 1000):
            count = max(per_commit, min(events, 1000 * per_commit))
            turns: dict[str, list[tuple[float, float, float]]] = {"log": [], "sqlite": []}
            for turn in range(TURNS):
                for name, write in (("log", ours), ("sqlite", sqlite)):
                    folder = Path(root) / f"{name}-{per_commit}-{turn}"
                    seconds, each = write(folder, count, per_commit)
                    p99_ms = 1e3 * float(np.quantile(each, 0.99))
                    turns[name].append((count / seconds, p99_ms, size(folder) / count))
            cells = [tuple(np.median(turns[name], axis=0)) for name in turns]
            rates = "".join(f"{rate:18,.0f}{p99:9.2f} ms{bytes_:9.1f}" for rate, p99, bytes_ in cells)
            print(f"{per_commit:15}{rates}{cells[0][0] / cells[1][0]:8.2f}")
        for per_commit in (1, 100, 1000):
            print(f"{per_commit:15,} {spent(Path(root) / f'clocked-{per_commit}', per_commit)}")
        folder = Path(root) / "log-1000-0"
        RunReader(folder).verify()  # compiles
        stored = RunReader(folder).manifests()[-1].last_seq + 1
        for name, act in (("verify", RunReader(folder).verify), ("recover", lambda: recover(folder))):
            began = time.perf_counter()
            assert not act()
            print(f"{name}: {(time.perf_counter() - began) / stored * 1e6:.2f} s a million events")


if __name__ == "__main__":
    main()
