"""kill -9 at random moments: nothing that was acknowledged is lost, and the resumed run is the same run."""

import random
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.support import crash_workload as workload
from tests.support.fork_server import PROCESSES

EVENTS, PER_FLUSH = 1000, 8
KILLS_PER_RUN = 10
LONGEST_S = 0.08


def writer(run_dir: Path, pipe: Connection) -> None:
    pipe.send(-1)  # ready: from here on it may be killed
    workload.write(run_dir, EVENTS, PER_FLUSH, acknowledge=pipe.send)


def killed_after(run_dir: Path, delay_s: float) -> int:
    """Let a writer run, kill it, and return the last sequence number that it called durable."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=writer, args=(run_dir, theirs))
    process.start()
    theirs.close()
    acknowledged = ours.recv()
    time.sleep(delay_s)
    process.kill()
    process.join()
    try:
        while ours.poll():
            acknowledged = ours.recv()
    except EOFError:
        pass
    ours.close()
    return acknowledged


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return workload.write(tmp_path_factory.mktemp("whole") / "run", EVENTS, PER_FLUSH)[0]


@pytest.mark.parametrize("seed", range(4 * workload.EFFORT))
def test_a_killed_writer_loses_nothing_acknowledged_and_resumes_to_the_same_digest(
    tmp_path: Path, seed: int, uninterrupted: str
) -> None:
    run_dir, chance, durable = tmp_path / "run", random.Random(seed), -1
    for _ in range(KILLS_PER_RUN):
        durable = max(durable, killed_after(run_dir, chance.uniform(0, LONGEST_S)))
        if run_dir.exists():
            there = workload.stored(run_dir)
            assert there >= durable, "an acknowledged segment is gone"
            durable = there
    workload.tally("kills", KILLS_PER_RUN)
    digest, _ = workload.write(run_dir, EVENTS, PER_FLUSH)
    assert digest == uninterrupted
    assert workload.stored(run_dir) == EVENTS
