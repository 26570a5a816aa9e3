"""Which rows of a log are jobs that a pool can run, and with which processors, run time and estimate.

Published results rest on these choices as much as on the scheduler; the rule set says which ones.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError, UsageError
from ingest.parsing.reader import Reject
from ingest.readers.clusters.swf_log import SwfLog
from twin.queue.jobs import LATEST_NS, LONGEST_NS, FailedStarts, QueueJobs
from twin.queue.rules import QueueRules

LATEST_S, LONGEST_S = LATEST_NS / 1e9, LONGEST_NS / 1e9
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LogJobs:
    """The jobs of a log on a pool, the rows left out with their reasons, and what else is to be known.

    `ids`, `users`: names of jobs and users by number, where numbers stand for names. `failed`: starts of jobs
    that ran out of memory, by number.
    """

    name: str
    processors: int
    jobs: QueueJobs
    rejects: tuple[Reject, ...]
    notes: tuple[str, ...]
    ids: Mapping[int, str] = field(default_factory=dict)
    users: Mapping[int, str] = field(default_factory=dict)
    failed: FailedStarts = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, int]:
        """Rows left out by reason, most first."""
        return by_reason(self.rejects)


def by_reason(rejects: Sequence[Reject]) -> dict[str, int]:
    """Returns the number of rows left out by reason, most first."""
    return dict(Counter(reject.reason for reject in rejects).most_common())


def select(log: SwfLog, rules: QueueRules, processors: int | None = None) -> LogJobs:
    """Returns the jobs that the rules take from a log; `processors` replaces what its header says.

    Raises:
        UsageError: the size of the machine is not known.
        InputError: no job is left.
    """
    size = processors or log.processors
    if size is None:
        raise UsageError(
            f"{log.name} does not say how large the machine is (MaxProcs, MaxNodes); add --processors N"
        )
    if rules.cuts:
        columns, faults = _with_estimates(log, size)
    else:
        columns, faults = _with_long_runs(log, size)
    submit, run, width, estimate = columns
    faults["submit time negative"] = submit < 0
    faults["its preceding jobs lead back to itself"] = cyclic(log.column("job"), log.column("preceding_job"))
    faults["time beyond all reason"] = (submit >= LATEST_S) | (np.maximum(run, estimate) >= LONGEST_S)
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
    )  # fmt: skip
    found = tuple(sorted((*log.rejects, *rejects), key=lambda reject: reject.row))
    return LogJobs(log.name, size, jobs, found, tuple(_notes(log, kept, rules)), log.ids, log.users)


Columns = tuple[NDArray[np.float64], ...]


def _with_estimates(log: SwfLog, size: int) -> tuple[Columns, dict[str, Mask]]:
    """Submit, run, processors and estimate of each row, and masks of rows that are no jobs, by reason.

    The "strong filter" behind Gaussier et al., SC 2015: processors are those requested, or those allocated
    where only they are known. A log without any estimate has its run times for them.
    """
    held, asked = log.column("processors"), log.column("processors_requested")
    run, estimate = log.column("run_s"), log.column("estimate_s")
    if not (estimate > 0).any():
        estimate = run
    faults = {
        "more processors than the machine has": (held > size) | (asked > size),
        "no processors": (held <= 0) & (asked <= 0),
        "run time not positive": run <= 0,
        "estimate not positive": estimate <= 0,
    }
    return (log.column("submit_s"), run, np.where(asked > 0, asked, held), estimate), faults


def _with_long_runs(log: SwfLog, size: int) -> tuple[Columns, dict[str, Mask]]:
    """The same as RLScheduler (SC 2020) reads a log: the larger number of processors, a negative run time
    is 10 s, an unknown estimate is the run time; where that is unknown too, the estimate stays at -1 s."""
    run = log.column("run_s")
    width = np.maximum(log.column("processors"), log.column("processors_requested"))
    faults = {
        "run time zero": run == 0,
        "more processors than the machine has": width > size,
        "no processors": width <= 0,
    }
    estimate = np.where(log.column("estimate_s") == -1, run, log.column("estimate_s"))
    faults["estimate below -1"] = estimate < -1
    run = np.where(run < 0, 10.0, run)
    return (log.column("submit_s"), run, width, estimate), faults


def _deadlines(log: SwfLog, kept: Mask) -> NDArray[np.float64] | None:
    """Deadlines of the jobs that are kept, -1 s where there is none; None where the log knows none."""
    return None if log.deadline_s is None else np.nan_to_num(log.deadline_s[kept], nan=-1.0)


def cyclic(job: NDArray[np.float64], preceding: NDArray[np.float64]) -> Mask:
    """Returns which jobs lie on a cycle of preceding jobs (n,); `preceding` is -1 where a job has none."""
    place = {number: at for at, number in enumerate(job.tolist())}
    before = [place.get(number, -1) if number > 0 else -1 for number in preceding.tolist()]
    found, seen = np.zeros(len(job), np.bool_), [0] * len(job)
    for first in range(len(job)):
        at, walk = first, first + 1
        while at >= 0 and not seen[at]:
            seen[at], at = walk, before[at]
        if at >= 0 and seen[at] == walk:  # this walk met itself: everything from here on is the cycle
            while not found[at]:
                found[at], at = True, before[at]
    return found


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


def _notes(log: SwfLog, kept: Mask, rules: QueueRules) -> list[str]:
    """Returns what is done to the jobs that are kept, a sentence each."""
    run, estimate, submit = (log.column(name)[kept] for name in ("run_s", "estimate_s", "submit_s"))
    held, asked = log.column("processors")[kept], log.column("processors_requested")[kept]
    notes = []
    if not (log.column("estimate_s") > 0).any():
        notes.append("the log has no estimates: run times are taken for them")
    elif longer := int(((estimate > 0) & (estimate < run)).sum()):
        done = "are cut there" if rules.cuts else "run on"
        notes.append(f"{longer:,} runs are longer than their estimate and {done}")
    if early := int((np.diff(submit) < 0).sum()):
        notes.append(
            f"{early:,} rows were submitted before the row above them; jobs are sorted by submit time"
        )
    if differ := int(((held > 0) & (asked > 0) & (held != asked)).sum()):
        which = "those requested are" if rules.cuts else "the larger is"
        notes.append(f"{differ:,} jobs held other processors than they requested; {which} taken")
    if after := int((log.column("preceding_job")[kept] > 0).sum()):
        notes.append(f"{after:,} jobs name a job before them; their submit time is taken as it is")
    if not (log.column("wait_s") >= 0).any():
        notes.append("the log has no wait times: its submit times may be start times")
    return notes
