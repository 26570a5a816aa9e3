"""One writer, several readers: nobody blocks or is blocked, and what is read only grows."""

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from ingest.core.errors import LockedError
from replay.log.run_log import RunReader, RunWriter
from replay.sql import query
from tests.support import crash_workload as workload
from tests.support.fork_server import PROCESSES

QUESTIONS = 8 * workload.EFFORT


def write_until_signalled(run_dir: Path, pipe: Connection) -> None:
    with RunWriter.create(run_dir) as writer:
        writer.append(*workload.event(0))
        pipe.send("started")
        number = 1
        while not pipe.poll():
            writer.append(*workload.event(number))
            if number % 7 == 0:
                writer.flush()
                time.sleep(0.005)
            number += 1
        writer.finish({"events": number})
    pipe.send(number)


def read_until_signalled(run_dir: Path, pipe: Connection) -> None:
    counts = [0, workload.stored(run_dir) + 1]
    while not pipe.poll():
        counts.append(workload.stored(run_dir) + 1)
    pipe.send(counts)


def start(target: Callable[[Path, Connection], None], run_dir: Path) -> Connection:
    ours, theirs = PROCESSES.Pipe()
    PROCESSES.Process(target=target, args=(run_dir, theirs), daemon=True).start()
    return ours


def test_readers_see_a_growing_whole_log_while_it_is_written(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "live"
    writer = start(write_until_signalled, run_dir)
    assert writer.recv() == "started"
    readers = [start(read_until_signalled, run_dir) for _ in range(4)]
    answers = [0]
    for _ in range(QUESTIONS):
        with pytest.raises(LockedError):
            RunWriter.open(run_dir)
        answers.append(query.query(tmp_path, "SELECT count(*) AS n FROM events")["n"][0].as_py())
    workload.tally("second writers and queries", 2 * QUESTIONS)
    for reader in readers:
        reader.send("stop")
        counts = reader.recv()
        assert len(counts) > 1 and counts == sorted(counts)
        workload.tally("readings", len(counts) - 1)
    writer.send("stop")
    written = writer.recv()
    assert answers == sorted(answers) and answers[-1] > 0
    assert workload.stored(run_dir) == written
    assert RunReader(run_dir).finished
