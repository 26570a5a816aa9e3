"""A queue run as events: its header, the rows that were left out, all changes of its jobs, and its sums.

The log holds all inputs: from its events alone the jobs are made again (`logged_run.py`), simulated again and
compared.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.durable import DISK
from ingest.core.names import is_name
from ingest.parsing.reader import Reject
from replay.log.run_log import RunWriter
from replay.logqueue import logged_nodes, logged_power, logged_sites
from replay.logqueue.job_changes import AnySchedule, JobNames, changes, failures
from replay.logqueue.logged_nodes import NODES
from replay.logqueue.logged_power import POWER
from replay.logqueue.logged_sites import SITES
from replay.store import run_index
from replay.store.event_sinks import Sink
from replay.store.run_header import QUEUE, Header, opening
from twin.nodes.metrics import node_figures
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.selection import NodeJobs
from twin.power.powered_queue import PowerChoices
from twin.queue.dependencies import MovedSubmissions
from twin.queue.jobs import FailedStarts, Prediction, QueueJobs
from twin.queue.metrics import figures
from twin.queue.rules import QueueRules
from twin.queue.simulation import QueueSchedule
from twin.sites.figures import site_figures
from twin.sites.simulation import SiteSchedule
from twin.workload.selection import LogJobs

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QueueChoices:
    """Choices with which a queue run was made: source of the jobs, scheduler, pool, prediction and rules.

    `placement` is that of a run on nodes, whose GPUs are the `processors`; None on a pool. `dependencies`:
    whether jobs were submitted by the ends of those before them."""

    log: str
    policy: str
    processors: int
    prediction: Prediction
    rules: str
    placement: str | None = None
    dependencies: bool = False

    def to_json(self) -> Json:
        """Returns the fields by name, without a placement or dependencies where there are none."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None and value is not False}


@dataclass(frozen=True, slots=True)
class QueueOrigin:
    """Source of the jobs of a run, as its header tells: a data set of the lake, the scenario with all
    its keys, the part of the log, the seed, a note on what is synthetic, and the run that it is a what-if
    of."""

    dataset: str | None = None
    scenario: Json | None = None
    window: str = "all"
    seed: int = 0
    note: str = ""
    branch: Json | None = None


NO_ORIGIN = QueueOrigin()


def record(
    store: Path, log: LogJobs | NodeJobs, done: AnySchedule, policy: str, *, prediction: Prediction,
    rules: QueueRules, placement: str | None = None, origin: QueueOrigin = NO_ORIGIN,
    power: PowerChoices | None = None,
) -> str:  # fmt: skip
    """Writes a schedule as a finished run and returns its id; with `power` also the site's, and accounts.

    Raises:
        StorageError: the disk refused.
    """
    moved = isinstance(done, QueueSchedule) and done.moved is not None
    choices = QueueChoices(log.name, policy, _size_of(done), prediction, rules.name, placement, moved)
    names = JobNames(log.ids, log.users)
    failed = log.failed if isinstance(log, LogJobs) else {}
    header = header_of(choices, done, origin, power)
    return written(store, header, done, names, log.rejects, failed)


def written(
    store: Path, header: Header, done: AnySchedule, names: JobNames, left_out: tuple[Reject, ...],
    failed: FailedStarts,
) -> str:  # fmt: skip
    """Writes the events of a finished run and returns its id.

    Raises:
        StorageError: the disk refused.
    """
    scenario = header.world["scenario"]
    policy = "-".join(filter(None, (scenario[QUEUE]["policy"], scenario[QUEUE].get("placement"))))
    run_id = run_index.new_id(
        store, scenario["name"], policy.replace("+", "-"), header.seed, header.config_digest
    )
    DISK.foretell((run_index.folder(store, run_id), f"log of the schedule of {policy}, and of each other"))
    with RunWriter.create(run_index.folder(store, run_id)) as writer:
        emit(writer, header, done, names, left_out, failed)
    return run_id


def _size_of(done: AnySchedule) -> int:
    """Returns the processors of a pool, or the GPUs of a cluster."""
    if isinstance(done, SiteSchedule):
        return int(done.world.gpus.sum())
    return done.cluster.total_gpus if isinstance(done, NodeSchedule) else done.processors


def header_of(
    choices: QueueChoices, done: AnySchedule, origin: QueueOrigin, power: PowerChoices | None = None
) -> Header:
    """Returns the header of a run; its scenario is what was chosen, and the nodes where there are any."""
    moved = done.moved if isinstance(done, QueueSchedule) else None
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(choices.log).name.split(".")[0])[:40]
    if origin.scenario is not None:
        name = origin.scenario["name"]
    scenario: Json = {"name": name if is_name(name) else QUEUE, QUEUE: choices.to_json()}
    if origin.scenario is not None:
        scenario["settings"] = origin.scenario
    if isinstance(done, NodeSchedule):
        scenario[NODES] = logged_nodes.to_json(done)
    if power is not None:
        scenario[POWER] = logged_power.to_json(power)
    if isinstance(done, SiteSchedule):
        scenario[SITES] = logged_sites.to_json(done)
    world = {
        "scenario": scenario,
        "window": origin.window,
        "dataset": origin.dataset,
        "seed": origin.seed,
        "traces": {"source": digest_of(done.jobs, moved)},
        "note": origin.note,
        "end_ns": int(done.end_ns.max()),
        "origin_epoch_ns": 0,
    }
    return Header(world, QUEUE, "kernel", None, False, branch=origin.branch)


def digest_of(jobs: QueueJobs, moved: MovedSubmissions | None = None) -> str:
    """Returns the SHA-256 of submissions, runs, processors and estimates; where jobs follow others, of the
    recorded submissions, the places of the jobs before them and think times."""
    columns = [jobs.submit_ns, jobs.run_ns, jobs.processors, jobs.estimate_ns]
    if moved is not None:
        waits = moved.dependencies
        think_ns = np.where(waits.waits, waits.think_ns, 0)
        columns = [moved.recorded_ns, *columns[1:], waits.preceding, think_ns]
    return sha256(np.stack(columns).astype("<i8").tobytes()).hexdigest()


def emit(
    sink: Sink, header: Header, done: AnySchedule, names: JobNames, left_out: tuple[Reject, ...],
    failed: FailedStarts,
) -> None:  # fmt: skip
    """Gives all events of a run to a sink."""
    sink.append(0, "run_started", header.payload(), wall=opening())
    for one in left_out:
        row = {"row": one.row, "column": one.column, "raw": one.raw}
        sink.append(0, "job_failed", {"reason": one.reason, "gpus": [0], "spec": row}, job=one.raw)
    parts = (failures(done, names, failed), changes(done, names), _power(done, header, names))
    for time_ns, kind, payload, job in merge(*parts, key=itemgetter(0)):
        sink.append(time_ns, kind, payload, job=job)
    sink.finish(totals(done), sim_ns=int(done.end_ns.max()))


def totals(done: AnySchedule) -> Json:
    """Returns the sums and figures of a run, those of `run_finished`; a job waits while it holds nothing."""
    held_ns, wait_ns = done.end_ns - done.start_ns, done.start_ns - done.jobs.submit_ns
    if isinstance(done, NodeSchedule):
        broken = done.broken
        np.add.at(held_ns, broken.job, broken.end_ns - broken.start_ns)
        np.add.at(wait_ns, broken.job, broken.start_ns - broken.end_ns)
    return {
        "processor_ns": sum(map(int.__mul__, held_ns.tolist(), done.jobs.processors.tolist())),
        "wait_ns": int(wait_ns.sum()),
        "figures": figures_of(done),
    }


def figures_of(done: AnySchedule) -> Json:
    """Returns the figures of a schedule by name, those of nodes or of sites among them."""
    if isinstance(done, SiteSchedule):
        return site_figures(done).to_json()
    return (node_figures(done) if isinstance(done, NodeSchedule) else figures(done)).to_json()


def _power(done: AnySchedule, header: Header, names: JobNames) -> Iterator[logged_power.Timed]:
    """Returns the events of power, if the header of the run holds a model of it."""
    stored = header.world["scenario"].get(POWER)
    if stored is None:
        return iter(())
    assert isinstance(done, QueueSchedule), "power is kept of a pool"
    choices = logged_power.from_json(stored)
    return logged_power.events(done, choices, logged_power.owners_of(choices.owner, done.jobs, names.user))
