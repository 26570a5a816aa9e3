"""Each call to the disk fails once, in every way: the log stays valid and the writer says so and stops."""

from pathlib import Path

import pytest

from ingest.core.errors import StorageError
from replay.log.run_log import RunReader, RunWriter
from tests.support import crash_workload as workload
from tests.support.disks import FAULTS, Crash, FailingDisk

EVENTS, PER_FLUSH = 12 * min(workload.EFFORT, 5), 3
HARMLESS = ("short write", "interrupted")
"""The program goes on as if nothing had been: the rest is written with further calls."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    return workload.write(tmp_path_factory.mktemp("whole") / "run", EVENTS, PER_FLUSH)[0]


def attempt(run_dir: Path, disk: FailingDisk) -> tuple[int, bool]:
    """Write the run on a failing disk; returns (last acknowledged number, whether it came to its end)."""
    acknowledged = [-1]
    try:
        workload.write(run_dir, EVENTS, PER_FLUSH, disk=disk, acknowledge=acknowledged.append)
    except (StorageError, Crash):
        return acknowledged[-1], False
    return acknowledged[-1], True


@pytest.mark.parametrize("mode", FAULTS)
def test_whatever_call_fails_nothing_is_lost_and_the_run_resumes(
    tmp_path: Path, mode: str, uninterrupted: str
) -> None:
    for failed in range(1000):
        run_dir, disk = tmp_path / str(failed), FailingDisk(mode, failed + 1)
        durable, ended = attempt(run_dir, disk)
        if run_dir.exists():
            assert workload.stored(run_dir) >= durable
        assert workload.write(run_dir, EVENTS, PER_FLUSH)[0] == uninterrupted
        if disk.calls == failed:  # the whole run passed untouched
            break
        assert ended == (mode in HARMLESS)
    workload.tally("failed calls", failed)
    commits = 1 + EVENTS // PER_FLUSH
    assert ended and failed >= 2 * commits, "every commit writes two files"


@pytest.mark.parametrize("mode", sorted(FAULTS.keys() - {"crash", *HARMLESS}))
def test_a_writer_that_met_an_error_refuses_to_go_on(tmp_path: Path, mode: str) -> None:
    disk = FailingDisk(mode, 0)
    writer = RunWriter.create(tmp_path / "run", disk=disk)
    writer.append(*workload.event(0))
    writer.append(*workload.event(1))
    disk.at = disk.calls + 1
    with pytest.raises(StorageError, match="cannot be written"):
        writer.flush()
    disk.at = 0  # the disk is well again
    for repeated in (writer.flush, lambda: writer.append(*workload.event(2)), lambda: writer.finish({})):
        with pytest.raises(StorageError, match="a write failed before; resume"):
            repeated()
    writer.close()
    assert RunReader(tmp_path / "run").verify() == []
    # an append whose sync failed is whole but was never acknowledged: it may be read
    assert workload.stored(tmp_path / "run") in ((0, 1) if mode == "fsync error" else (0,))
