"""A queue run as events: every job's submission, start and end, and the rows that were left out.

The log holds all inputs: from its events alone the jobs are made again (`logged_run.py`), simulated again and
compared.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.names import is_name
from ingest.parsing.reader import Reject
from replay.log.run_log import RunWriter
from replay.store import run_index
from replay.store.event_sinks import Sink
from replay.store.run_header import QUEUE, Header, opening
from twin.queue.jobs import UNKNOWN, Prediction, QueueJobs
from twin.queue.metrics import figures
from twin.queue.rules import QueueRules
from twin.queue.selection import LogJobs
from twin.queue.simulation import QueueSchedule

Json = dict[str, Any]
HEAD, OVERTAKES = "head of the queue", "overtakes the head of the queue"
DONE, CUT = "done", "at its estimate"
SUBMITTED, ENDED, STARTED = range(3)
"""Kinds of changes, in their order at one instant under most rules."""


@dataclass(frozen=True, slots=True)
class QueueChoices:
    """What a queue run was made with: source of the jobs, scheduler, pool, prediction and rules."""

    log: str
    policy: str
    processors: int
    prediction: Prediction
    rules: str

    def to_json(self) -> Json:
        """Returns the fields by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class JobNames:
    """Names of jobs and users by their numbers; a number without a name stands for itself."""

    ids: Mapping[int, str]
    users: Mapping[int, str]

    def job(self, number: int) -> str:
        """Returns the name of a job."""
        return self.ids.get(number, str(number))

    def user(self, number: int) -> str | None:
        """Returns the name of a user; None where it is not known."""
        return None if number == UNKNOWN else self.users.get(number, str(number))


def record(
    store: Path, log: LogJobs, done: QueueSchedule, policy: str, *,
    prediction: Prediction, rules: QueueRules, dataset: str | None = None,
) -> str:  # fmt: skip
    """Writes a schedule as a finished run and returns its id.

    Raises:
        StorageError: the disk refused.
    """
    choices = QueueChoices(log.name, policy, done.processors, prediction, rules.name)
    header = header_of(choices, done.jobs, int(done.end_ns.max()), dataset)
    name = header.world["scenario"]["name"]
    run_id = run_index.new_id(store, name, policy.replace("+", "-"), 0, header.config_digest)
    with RunWriter.create(run_index.folder(store, run_id)) as writer:
        emit(writer, header, done, JobNames(log.ids, log.users), log.rejects)
    return run_id


def header_of(choices: QueueChoices, jobs: QueueJobs, end_ns: int, dataset: str | None) -> Header:
    """Returns the header of a run; its scenario is what was chosen."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(choices.log).name.split(".")[0])[:40]
    world = {
        "scenario": {"name": name if is_name(name) else QUEUE, QUEUE: choices.to_json()},
        "window": "all",
        "dataset": dataset,
        "seed": 0,
        "traces": {"source": digest_of(jobs)},
        "note": "",
        "end_ns": end_ns,
        "origin_epoch_ns": 0,
    }
    return Header(world, QUEUE, "kernel", None, False)


def digest_of(jobs: QueueJobs) -> str:
    """Returns the SHA-256 of submissions, runs, processors and estimates."""
    columns = np.stack((jobs.submit_ns, jobs.run_ns, jobs.processors, jobs.estimate_ns))
    return sha256(columns.astype("<i8").tobytes()).hexdigest()


def emit(
    sink: Sink, header: Header, done: QueueSchedule, names: JobNames, left_out: tuple[Reject, ...]
) -> None:
    """Gives all events of a run to a sink."""
    sink.append(0, "run_started", header.payload(), wall=opening())
    for one in left_out:
        row = {"row": one.row, "column": one.column, "raw": one.raw}
        sink.append(0, "job_failed", {"reason": one.reason, "gpus": [0], "spec": row}, job=one.raw)
    for time_ns, kind, payload, job in _changes(done, names):
        sink.append(time_ns, kind, payload, job=job)
    sink.finish(totals(done), sim_ns=int(done.end_ns.max()))


def totals(done: QueueSchedule) -> Json:
    """Returns the sums and figures of a run, as `run_finished` has them."""
    return {
        "processor_ns": sum(map(int.__mul__, done.jobs.run_ns.tolist(), done.jobs.processors.tolist())),
        "wait_ns": int((done.start_ns - done.jobs.submit_ns).sum()),
        "figures": figures(done).to_json(),
    }


def _changes(done: QueueSchedule, names: JobNames) -> Iterator[tuple[int, str, Json, str]]:
    """Yields (time, type, payload, job) of all jobs in order; at one instant submissions, ends, starts."""
    jobs, count = done.jobs, len(done.jobs)
    times = np.concatenate((jobs.submit_ns, done.end_ns, done.start_ns))
    kinds = np.repeat((SUBMITTED, ENDED, STARTED), count)
    order = np.lexsort((np.tile(np.arange(count), 3), kinds, times))
    called = [names.job(number) for number in jobs.number.tolist()]
    sizes, overtook = jobs.processors.tolist(), done.backfilled.tolist()
    cut = (jobs.run_ns == jobs.estimate_ns).tolist()
    specs = _specs(jobs, names)
    for time_ns, at in zip(times[order].tolist(), order.tolist(), strict=True):
        kind, job = divmod(at, count)
        if kind == SUBMITTED:
            yield time_ns, "job_submitted", {"reason": "", "gpus": [0], "spec": specs[job]}, called[job]
        elif kind == STARTED:
            why = OVERTAKES if overtook[job] else HEAD
            yield time_ns, "job_started", {"reason": why, "gpus": [sizes[job]], "spec": {}}, called[job]
        else:
            why = CUT if cut[job] else DONE
            yield time_ns, "job_finished", {"reason": why, "gpus": [0], "spec": {}}, called[job]


def _specs(jobs: QueueJobs, names: JobNames) -> list[Json]:
    """Returns what is known of each job when it is submitted."""
    columns = (jobs.processors, jobs.estimate_ns, jobs.user, jobs.priority, jobs.deadline_ns)
    return [
        {
            "processors": processors,
            "estimate_ns": estimate_ns,
            "user": names.user(user),
            "priority": None if priority == UNKNOWN else priority,
            "deadline_ns": None if deadline_ns == UNKNOWN else deadline_ns,
        }
        for processors, estimate_ns, user, priority, deadline_ns in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
