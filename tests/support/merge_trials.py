"""A process that joins small commits and is killed at one of its system calls."""

import os
import signal
from pathlib import Path
from typing import Any

from ingest.core.durable import DISK, Disk
from ingest.lake import merging
from tests.support.fork_server import PROCESSES

CALLS = ("create", "write", "fsync", "link", "rename", "unlink", "fsync_directory")


class KillingDisk(Disk):
    """The disk, which ends its process before the call whose number is `left`."""

    left: int

    def __getattribute__(self, name: str) -> Any:
        if name in CALLS:
            vars(self)["left"] -= 1
            if vars(self)["left"] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


def _join(store: Path, dataset: str, calls: int) -> None:
    vars(DISK)["left"] = calls
    DISK.__class__ = KillingDisk
    merging.merge_small(store, dataset)


def join(store: Path, dataset: str, calls: int) -> bool:
    """Joins in a process that is killed after so many calls; True if it was."""
    process = PROCESSES.Process(target=_join, args=(store, dataset, calls))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0
