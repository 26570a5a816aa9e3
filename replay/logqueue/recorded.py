"""Schedules that others recorded in the Standard Workload Format: each job with its wait."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ingest.core.units import NS_PER_S
from ingest.readers.clusters import swf_log
from twin.queue.jobs import Int, QueueJobs
from twin.queue.rules import PREDICTSIM
from twin.queue.simulation import QueueSchedule
from twin.workload.selection import select


@dataclass(frozen=True, eq=False)
class RecordedSchedule:
    """Jobs, the pool that they ran on, and their recorded starts (n,), nanoseconds."""

    jobs: QueueJobs
    processors: int
    start_ns: Int

    def other_starts(self, done: QueueSchedule) -> int:
        """Returns how many jobs start at another time than recorded."""
        return int((done.start_ns != self.start_ns).sum())


def read(path: Path) -> RecordedSchedule:
    """Reads a schedule: submit time, run time, processors and estimate as input, the wait as outcome.

    Raises:
        InputError: it cannot be read.
    """
    log = swf_log.read(path)
    chosen = select(log, PREDICTSIM)
    waits = dict(zip(log.column("job").tolist(), log.column("wait_s").tolist(), strict=True))
    wait_s = np.array([waits[number] for number in chosen.jobs.number.tolist()])
    wait_ns = (wait_s * NS_PER_S).astype(np.int64)
    return RecordedSchedule(chosen.jobs, chosen.processors, chosen.jobs.submit_ns + wait_ns)
