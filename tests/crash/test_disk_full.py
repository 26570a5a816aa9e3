"""A disk that is full (a limit on the size of files): the error is said, the log is valid, later the run
goes on."""

import resource
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from ingest.core.errors import StorageError
from tests.support import crash_workload as workload
from tests.support.fork_server import PROCESSES

EVENTS, PER_FLUSH = 300, 100
SIZES = [1, 100, 300, 600, 900, *range(1200, 12000, 700)]


def limited(run_dir: Path, size: int, pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    acknowledged = [-1]
    try:
        workload.write(run_dir, EVENTS, PER_FLUSH, acknowledge=acknowledged.append)
        pipe.send((acknowledged[-1], "done"))
    except StorageError as error:
        pipe.send((acknowledged[-1], str(error)))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return workload.write(tmp_path_factory.mktemp("whole") / "run", EVENTS, PER_FLUSH)[0]


@pytest.mark.parametrize("size", SIZES)
def test_a_full_disk_is_said_and_survived(tmp_path: Path, size: int, uninterrupted: str) -> None:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=limited, args=(tmp_path / "run", size, theirs))
    process.start()
    theirs.close()  # then a process that dies without a word is an error here, not a wait
    durable, message = ours.recv()
    process.join()
    assert message == "done" or "free space" in message
    assert size > 3000 or message != "done", "the limit was met"
    assert workload.stored(tmp_path / "run") >= durable
    assert not [path for path in (tmp_path / "run").iterdir() if path.suffix == ".tmp"], "space is given back"
    assert workload.write(tmp_path / "run", EVENTS, PER_FLUSH)[0] == uninterrupted
