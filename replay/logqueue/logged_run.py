"""A queue run read back from its events, and its audit: the same schedule from the same inputs."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from ingest.parsing.reader import Reject
from policy.placement.registry import placement
from policy.placement.sites import site_choice
from policy.queue.registry import recipe
from replay.log.events import Event
from replay.log.run_log import RunReader
from replay.logqueue import logged_nodes, logged_sites, run_events
from replay.logqueue.logged_nodes import NODES
from replay.logqueue.logged_sites import SITES
from replay.logqueue.run_events import AnySchedule, JobNames, QueueChoices
from replay.store import run_index
from replay.store.event_sinks import Compare, DivergenceError, Reached
from replay.store.run_header import QUEUE, Header, from_payload
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.queue.jobs import UNKNOWN, FailedStarts, Int, QueueJobs
from twin.queue.rules import rule_set
from twin.queue.simulation import QueueSchedule, simulate
from twin.sites.simulation import SiteSchedule, simulate_on_sites

Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class LoggedQueue:
    """A queue run: its header, what it was made with, its schedule as logged, names, and rows left out.

    Of a run on `nodes` the schedule counts GPUs, thousandths of them where jobs share some (`unit`)."""

    run_id: str
    header: Header
    choices: QueueChoices
    schedule: QueueSchedule
    names: JobNames
    left_out: tuple[Reject, ...]
    nodes: NodeSchedule | None = None
    sites: SiteSchedule | None = None
    failed: FailedStarts = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """Returns what the schedule counts as processors."""
        if self.sites is not None:
            return "GPUs"
        if self.nodes is None:
            return "processors"
        shared = self.schedule.processors != self.nodes.cluster.total_gpus
        return "thousandths of a GPU" if shared else "GPUs"

    @property
    def logged(self) -> AnySchedule:
        """Returns the schedule as it was written."""
        return self.nodes or self.sites or self.schedule

    def index(self, job: str) -> int:
        """Returns the place of a job.

        Raises:
            UsageError: there is none of that name, or it was left out.
        """
        for at, number in enumerate(self.schedule.jobs.number.tolist()):
            if self.names.job(number) == job:
                return at
        for one in self.left_out:
            if one.raw == job:
                raise UsageError(f"{self.run_id}: job {job} was left out: {one.reason} (row {one.row})")
        first = self.names.job(int(self.schedule.jobs.number[0]))
        raise UsageError(f"{self.run_id} has no job {job!r}; its first is {first!r}, see `twin sql`")


def is_queue(store: Path, run_id: str) -> bool:
    """Returns True if the run is one of a queue."""
    header = RunReader(run_index.folder(store, run_id)).header()
    return bool(header["policy"] == QUEUE)


def load(store: Path, run_id: str) -> LoggedQueue:
    """Returns a queue run from its log.

    Raises:
        UsageError: it is another run. DamageError: the log is damaged.
    """
    reader = RunReader(run_index.folder(store, run_id))
    header = from_payload(reader.header())
    if header.policy != QUEUE:
        raise UsageError(f"{run_id} is no queue run; `twin queue LOG --keep` makes one")
    choices = QueueChoices(**header.world["scenario"][QUEUE])
    return _folded(run_id, header, choices, reader.events())


def _folded(run_id: str, header: Header, choices: QueueChoices, events: Iterable[Event]) -> LoggedQueue:
    """Returns the run that the events tell."""
    specs: list[Json] = []
    submitted: list[int] = []
    place: dict[str, int] = {}
    started: dict[str, tuple[int, bool]] = {}
    laid: dict[str, Json] = {}
    ended: dict[str, int] = {}
    failed: dict[int, tuple[tuple[int, Json], ...]] = {}
    left_out = []
    for event in events:
        if event.type == "job_submitted":
            place[event.job] = len(specs)
            specs.append(event.payload["spec"])
            submitted.append(event.sim_ns)
        elif event.type == "job_started":
            started[event.job] = event.sim_ns, event.payload["reason"] == run_events.OVERTAKES
            laid[event.job] = event.payload["spec"]
        elif event.type == "job_finished":
            ended[event.job] = event.sim_ns
        elif event.type == "job_out_of_memory":
            number = place[event.job] + 1
            after_ns = event.sim_ns - started[event.job][0]
            failed[number] = (*failed.get(number, ()), (after_ns, event.payload))
        elif event.type == "job_failed":
            left_out.append(Reject(reason=event.payload["reason"], **event.payload["spec"]))
    start_ns = np.array([started[job][0] for job in place], np.int64)
    overtook = np.array([started[job][1] for job in place], np.bool_)
    end_ns = np.array([ended[job] for job in place], np.int64)
    jobs, users = _jobs(specs, np.array(submitted, np.int64), end_ns - start_ns)
    names = JobNames(dict(enumerate(place, 1)), users)
    stored, where = header.world["scenario"], [laid[job] for job in place]
    if SITES in stored:
        over = logged_sites.schedule_from(stored[SITES], specs, where, jobs, start_ns, overtook)
        return LoggedQueue(run_id, header, choices, over.as_pool, names, tuple(left_out), None, over)
    if NODES not in stored:
        done = QueueSchedule(jobs, choices.processors, start_ns, overtook)
        return LoggedQueue(run_id, header, choices, done, names, tuple(left_out), failed=failed)
    kinds = np.array([spec["class"] for spec in specs], np.int64)
    placed = _on_nodes(stored[NODES], kinds, jobs, start_ns, overtook, [one["places"] for one in where])
    return LoggedQueue(run_id, header, choices, placed.in_gpus, names, tuple(left_out), placed)


def _on_nodes(
    stored: Json, kinds: Int, jobs: QueueJobs, start_ns: Int, overtook: Any,
    laid: list[list[tuple[int, int]]],
) -> NodeSchedule:  # fmt: skip
    """Returns the schedule of a run on nodes."""
    cluster = logged_nodes.cluster_from(stored)
    width = int(cluster.gpus.max())
    first = np.concatenate(([0], np.cumsum([len(one) for one in laid]))).astype(np.int64)
    slots = np.array([node * width + gpu for one in laid for node, gpu in one], np.int64)
    demands = logged_nodes.demands_from(stored, kinds)
    return NodeSchedule(jobs, cluster, demands, start_ns, overtook, first, slots)


def _jobs(specs: list[Json], submit_ns: Int, run_ns: Int) -> tuple[QueueJobs, dict[int, str]]:
    """Returns jobs, numbered by their place, and the names of users by number."""
    people = sorted({spec["user"] for spec in specs} - {None}, key=_rank)
    number = {name: at for at, name in enumerate(people)}

    def column(name: str) -> Int:
        return np.array([UNKNOWN if spec[name] is None else spec[name] for spec in specs], np.int64)

    user = np.array([number.get(spec["user"], UNKNOWN) for spec in specs], np.int64)
    jobs = QueueJobs(
        np.arange(1, len(specs) + 1), submit_ns, run_ns, column("processors"), column("estimate_ns"), user,
        column("priority"), column("deadline_ns"),
    )  # fmt: skip
    return jobs, dict(enumerate(people))


def _rank(name: str) -> tuple[int, str]:
    """Order of users: numbers by their size, as in a log, then names."""
    return (int(name), "") if name.isdigit() else (2**63, name)


@dataclass(frozen=True, slots=True)
class QueueAudit:
    """Findings of an audit of a queue run: faults as (check, problem), and how many events agree."""

    run_id: str
    findings: tuple[tuple[str, str], ...]
    compared: int

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.findings


def audit(store: Path, run_id: str) -> QueueAudit:
    """Simulates a queue run again and compares every event; changes the future, and compares the past.

    The chain and the digests of the log are those of every run and are checked before (`replay.audit`).
    """
    run = load(store, run_id)
    findings = [("conservation", problem) for problem in contradictions(run.schedule)]
    if run.nodes is not None:
        findings += [("conservation", problem) for problem in logged_nodes.overfull(run.nodes)]
    if run.sites is not None:
        findings += [("conservation", problem) for problem in logged_sites.overfull(run.sites)]
    compare, error = repeated(store, run)
    if error is not None:
        findings.append(("re-execution", f"event {error.seq} differs: {error.what}"))
    findings += [("look-ahead", problem) for problem in looks_ahead(run)]
    return QueueAudit(run_id, tuple(findings), compare.compared)


def repeated(
    store: Path, run: LoggedQueue, until: int | None = None
) -> tuple[Compare, DivergenceError | None]:
    """Simulates a run again, and compares it with its log up to the event `until`; returns the comparison and
    the first difference."""
    reader = RunReader(run_index.folder(store, run.run_id))
    compare = Compare(run.run_id, reader.events(), until=until, partial=not reader.finished)
    try:
        with suppress(Reached):
            run_events.emit(
                compare, run.header, played(run, run.logged.jobs), run.names, run.left_out,
                run.failed,
            )  # fmt: skip
    except DivergenceError as error:
        return compare, error
    return compare, None


def played(run: LoggedQueue, jobs: QueueJobs, policy: str | None = None) -> AnySchedule:
    """Returns what the run's scheduler, or another one, makes of jobs of the run, which are numbered by their
    place in it."""
    chosen, nodes = run.choices, run.nodes
    with_ = recipe(policy or chosen.policy)
    rules, prediction = rule_set(chosen.rules), chosen.prediction
    if run.sites is not None:
        asked = logged_sites.select(run.sites.asked, jobs.number - 1)
        return simulate_on_sites(
            jobs, asked, run.sites.world, with_, site_choice(str(chosen.placement)), prediction=prediction
        )
    if nodes is None:
        return simulate(jobs, chosen.processors, with_, prediction=prediction, rules=rules)
    demands = replace(nodes.demands, class_of=nodes.demands.class_of[jobs.number - 1])
    return simulate_on_nodes(
        jobs, demands, nodes.cluster, with_, placement(str(chosen.placement)), prediction=prediction,
        rules=rules, seed=run.header.seed,
    )  # fmt: skip


def contradictions(done: QueueSchedule) -> list[str]:
    """Returns what cannot be: a start before the submission, or more processors in use than there are."""
    problems = []
    early = np.flatnonzero(done.start_ns < done.jobs.submit_ns)
    if len(early):
        problems.append(f"{len(early)} jobs start before they are submitted, the first is job {early[0] + 1}")
    used = used_processors(done)[1]
    if len(used) and used.max() > done.processors:
        problems.append(f"{used.max():,} processors are in use of {done.processors:,}")
    return problems


def used_processors(done: QueueSchedule) -> tuple[Int, Int]:
    """Returns the times at which processors in use change, and how many are from then on."""
    times = np.concatenate((done.start_ns, done.end_ns))
    steps = np.concatenate((done.jobs.processors, -done.jobs.processors))
    changed, at = np.unique(times, return_inverse=True)
    net = np.zeros(len(changed), np.int64)
    np.add.at(net, at, steps)
    return changed, np.cumsum(net)


def looks_ahead(run: LoggedQueue) -> list[str]:
    """Returns which starts up to the middle of the run depend on what happened later.

    Runs that end later are cut to half of what was left of them, and later submissions are left out. With the
    prediction `actual` the scheduler knows run times by design, and nothing is checked.
    """
    done, jobs = run.schedule, run.logged.jobs
    if run.choices.prediction == "actual" or not len(jobs):
        return []
    middle = int(np.median(done.start_ns))
    known = done.jobs.submit_ns <= middle
    left = np.maximum(done.end_ns - np.maximum(done.start_ns, middle), 0)
    if run.sites is not None:  # a rate that links change says nothing of how much work is left
        shorter = np.where(done.start_ns > middle, jobs.estimate_ns, jobs.run_ns)
        return _moved(run, known, middle, played(run, replace(jobs, run_ns=shorter).select(known)))
    shorter = np.where(done.end_ns > middle, np.maximum(done.jobs.run_ns - left // 2, 1), done.jobs.run_ns)
    return _moved(run, known, middle, played(run, replace(jobs, run_ns=shorter).select(known)))


def _moved(run: LoggedQueue, known: Any, middle: int, other: AnySchedule) -> list[str]:
    """Returns which starts up to the middle differ between a run and its jobs with another future."""
    done = run.schedule
    before = done.start_ns[known] <= middle
    moved = np.flatnonzero(before & (other.start_ns != done.start_ns[known]))
    return [
        f"the start of job {run.names.job(at + 1)} depends on what happened after it"
        for at in moved[:1].tolist()
    ]
