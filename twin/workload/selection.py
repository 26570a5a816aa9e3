"""The jobs of a log that a pool can run, and the rows that are left out, each with its reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError, UsageError
from ingest.parsing.reader import Reject
from ingest.readers.clusters.swf_log import SwfLog
from twin.queue.dependencies import Dependencies
from twin.queue.jobs import FailedStarts, QueueJobs
from twin.queue.rules import QueueRules
from twin.workload import preceding
from twin.workload.columns import Mask, read_columns


@dataclass(frozen=True, eq=False)
class LogJobs:
    """The jobs of a log on a pool, the rows left out with their reasons, and what else is to be known.

    `ids`, `users`: names of jobs and users by number, where numbers stand for names. `failed`: starts of jobs
    that ran out of memory, by number. `dependencies`: who is submitted by the end of whom, if that is asked.
    """

    name: str
    processors: int
    jobs: QueueJobs
    rejects: tuple[Reject, ...]
    notes: tuple[str, ...]
    ids: Mapping[int, str] = field(default_factory=dict)
    users: Mapping[int, str] = field(default_factory=dict)
    failed: FailedStarts = field(default_factory=dict)
    dependencies: Dependencies | None = None

    @property
    def reasons(self) -> dict[str, int]:
        """Rows left out by reason, most first."""
        return by_reason(self.rejects)


def by_reason(rejects: Sequence[Reject]) -> dict[str, int]:
    """Returns the number of rows left out by reason, most first."""
    return dict(Counter(reject.reason for reject in rejects).most_common())


def select(
    log: SwfLog, rules: QueueRules, processors: int | None = None, *, dependencies: bool = False
) -> LogJobs:
    """Returns the jobs that the rules take from a log; `processors` replaces what its header says. With
    `dependencies` a job follows the one before it, where the log names one.

    Raises:
        UsageError: the size of the machine is not known, or no job follows another one.
        InputError: no job is left.
    """
    size = processors or log.processors
    if size is None:
        raise UsageError(
            f"{log.name} does not say how large the machine is (MaxProcs, MaxNodes); add --processors N"
        )
    columns, faults = read_columns(log, size, rules)
    submit, run, width, estimate = columns
    faults |= preceding.faults(log, dependencies)
    kept, rejects = _sieve(log, faults)
    if not kept.any():
        reasons = Counter(reject.reason for reject in rejects).most_common(1)
        raise InputError(
            f"{log.name}: no job is left of {log.rows_in:,} rows; {reasons[0][0]}: {reasons[0][1]:,}"
        )
    jobs = QueueJobs.of_seconds(
        submit[kept], run[kept], width[kept].astype(np.int64), estimate[kept],
        number=log.column("job")[kept].astype(np.int64), user=log.column("user")[kept].astype(np.int64),
        priority=log.column("queue")[kept].astype(np.int64), deadline=_deadlines(log, kept),
        account=log.column("group")[kept].astype(np.int64),
    )  # fmt: skip
    found = tuple(sorted((*log.rejects, *rejects), key=lambda reject: reject.row))
    notes, waits = _notes(log, kept, rules), None
    if dependencies:
        waits, said = preceding.of_kept(log, kept, jobs.number)
        notes += said
    elif after := int((log.column("preceding_job")[kept] > 0).sum()):
        notes.append(f"{after:,} jobs name a job before them; their submit time is taken as it is")
    return LogJobs(
        log.name, size, jobs, found, tuple(notes), log.ids, log.users, dependencies=waits
    )  # fmt: skip


def _deadlines(log: SwfLog, kept: Mask) -> NDArray[np.float64] | None:
    """Deadlines of the jobs that are kept, -1 s where there is none; None where the log knows none."""
    return None if log.deadline_s is None else np.nan_to_num(log.deadline_s[kept], nan=-1.0)


def _sieve(log: SwfLog, faults: dict[str, Mask]) -> tuple[Mask, list[Reject]]:
    """Returns which rows are kept, and the others with the first reason that holds."""
    kept = np.ones(len(log.line), np.bool_)
    rejects = []
    for reason, mask in faults.items():
        rows = np.flatnonzero(kept & mask)
        rejects += [
            Reject(int(log.line[row]), "job", f"{log.table[row, 0]:.0f}", reason) for row in rows.tolist()
        ]
        kept &= ~mask
    return kept, rejects


def _first(log: SwfLog, kept: Mask, found: Mask) -> str:
    """Returns the row and the job of the first of the kept rows that are meant."""
    at = int(np.flatnonzero(kept)[np.argmax(found)])
    number = int(log.column("job")[at])
    return f"(first: row {int(log.line[at])}, job {log.ids.get(number, number)})"


def _notes(log: SwfLog, kept: Mask, rules: QueueRules) -> list[str]:
    """Returns what is done to the jobs that are kept, a sentence each."""
    run, estimate, submit = (log.column(name)[kept] for name in ("run_s", "estimate_s", "submit_s"))
    held, asked = log.column("processors")[kept], log.column("processors_requested")[kept]
    notes = []
    if not (log.column("estimate_s") > 0).any():
        notes.append("the log has no estimates: run times are taken for them")
    elif (longer := (estimate > 0) & (estimate < run)).any():
        done = "are cut there" if rules.cuts else "run on"
        notes.append(
            f"{int(longer.sum()):,} runs are longer than their estimate and {done} "
            f"{_first(log, kept, longer)}"
        )
    if (early := np.diff(submit, prepend=submit[0]) < 0).any():
        notes.append(
            f"{int(early.sum()):,} rows were submitted before the row above them; jobs are sorted by submit "
            f"time {_first(log, kept, early)}"
        )
    if differ := int(((held > 0) & (asked > 0) & (held != asked)).sum()):
        which = "those requested are" if rules.cuts else "the larger is"
        notes.append(f"{differ:,} jobs held other processors than they requested; {which} taken")
    if nameless := int((log.column("user")[kept] < 0).sum()):
        notes.append(f"{nameless:,} jobs name no user; an order that goes by users takes them for one")
    if not (log.column("wait_s") >= 0).any():
        notes.append("the log has no wait times: its submit times may be start times")
    return notes
