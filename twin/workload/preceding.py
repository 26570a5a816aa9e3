"""Fields 17 and 18 of a log: the job before each, and the think time between its end and the submission."""

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from ingest.readers.clusters.swf_log import SwfLog
from twin.queue.dependencies import Dependencies, on_cycle
from twin.queue.jobs import LONGEST_NS, Int
from twin.workload.columns import Mask

CIRCLE = "its preceding jobs lead back to itself"
UNKNOWN_THINK = -1
"""Think time of a job where the log does not know it; it counts as none."""


def rows_before(log: SwfLog) -> Int:
    """Returns the row of the preceding job of each row, -1 for none, -2 for one that is not in the log."""
    place = {number: at for at, number in enumerate(log.column("job").tolist())}
    named = log.column("preceding_job").tolist()
    return np.array([place.get(one, -2) if one > 0 else -1 for one in named], np.int64)


def faults(log: SwfLog, asked: bool) -> dict[str, Mask]:
    """Returns masks of rows that cannot follow their preceding job, by reason; unless it is `asked` that they
    do, only circles are faults."""
    before, think = rows_before(log), log.column("think_s")
    found = {CIRCLE: on_cycle(np.maximum(before, -1))}
    if asked:
        named = before != -1
        found["its preceding job is not in the log"] = before == -2
        found["its preceding job comes later in the log"] = before > np.arange(len(before))
        found["think time negative"] = named & (think < 0) & (think != UNKNOWN_THINK)
        found["think time beyond all reason"] = named & (think >= LONGEST_NS / NS_PER_S)
    return found


def of_kept(log: SwfLog, kept: Mask, number: Int) -> tuple[Dependencies, list[str]]:
    """Returns the dependencies of the jobs that are kept, in the order of `number`, and what is to be said of
    them. A job whose preceding job was left out is submitted when it was recorded.

    Raises:
        UsageError: no job has a preceding one.
    """
    row = {int(one): at for at, one in enumerate(log.column("job").tolist()) if kept[at]}
    rows = np.array([row[one] for one in number.tolist()], np.int64)
    place = np.full(len(log.line), -1)
    place[rows] = np.arange(len(rows))
    before = rows_before(log)[rows]
    preceding = np.where(before >= 0, place[np.maximum(before, 0)], -1)
    waits = preceding >= 0
    if not waits.any():
        raise UsageError(
            f"{log.name}: no job names a preceding one (field 17 of the Standard Workload Format): "
            "leave --dependencies out"
        )
    think = log.column("think_s")[rows]
    think_ns = np.where(waits, np.maximum(think, 0) * NS_PER_S, 0).astype(np.int64)
    return Dependencies(preceding, think_ns), _notes(waits, think, int((before >= 0).sum()))


def _notes(waits: NDArray[np.bool_], think: NDArray[np.float64], named: int) -> list[str]:
    """Returns what is done to the jobs that have a preceding one, a sentence each."""
    followers = int(waits.sum())
    notes = [f"{followers:,} jobs are submitted when the job before them ends, plus their think time"]
    if alone := named - followers:
        notes.append(f"{alone:,} jobs follow one that was left out; they are submitted as recorded")
    if unknown := int((waits & (think == UNKNOWN_THINK)).sum()):
        notes.append(f"{unknown:,} think times are unknown and count as 0 s")
    return notes
