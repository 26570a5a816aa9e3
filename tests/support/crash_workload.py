"""The run that the crash tests write: small, deterministic, the same in every process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ingest.core.durable import DISK, Disk
from replay.log.run_log import RunReader, RunWriter
from tests.support.histories import started
from tests.support.tally import EFFORT, tally

__all__ = ["EFFORT", "event", "stored", "tally", "write"]


def event(number: int) -> tuple[int, str, dict[str, Any]]:
    """Event `number` of the run."""
    if number == 0:
        return 0, "run_started", started()
    samples = [[0, 1, 1e9 + number, 0.05], [1, 0, 2e9 / number, 0.05]]
    return number * 1000, "link_observed", {"sampled_ns": number * 999, "samples": samples}


def write(
    run_dir: Path,
    events: int,
    per_flush: int,
    *,
    disk: Disk = DISK,
    acknowledge: Callable[[int], object] = lambda seq: None,
) -> tuple[str, str]:
    """Start or resume the run and write it to its end; every durable sequence number is acknowledged.

    Every `per_flush` events become a segment; the first half of them is in the tail before.
    """
    make = RunWriter.open if run_dir.exists() else RunWriter.create
    with make(run_dir, disk=disk, flush_events=per_flush, flush_s=10**9) as writer:
        for number in range(events):
            writer.append(*event(number))
            if number % per_flush in (0, per_flush // 2):
                acknowledge(writer.flush())
        return writer.finish({"events": events})


def stored(run_dir: Path) -> int:
    """Last committed sequence number, -1 if there is none; everything in the directory is checked first."""
    reader = RunReader(run_dir)
    end = reader.contents().end
    if end:
        assert reader.verify() == []
    numbers = [item.seq for item in reader.events()]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= end  # more, where a writer lives
    return len(numbers) - 1
