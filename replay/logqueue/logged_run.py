"""A queue run read back from its events, and played again from what they tell."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
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
from replay.logqueue import logged_nodes, logged_sites
from replay.logqueue.job_changes import AnySchedule, JobHistory, JobNames, slots_of
from replay.logqueue.logged_nodes import NODES
from replay.logqueue.logged_sites import SITES
from replay.logqueue.run_events import QueueChoices
from replay.store import run_index
from replay.store.run_header import QUEUE, Header, from_payload
from twin.nodes.on_nodes import NodeSchedule, simulate_on_nodes
from twin.nodes.outage_plan import OutagePlan
from twin.nodes.outages import NodeOutages
from twin.nodes.runs import NodeRuns, out_over_time, runs_of
from twin.placement.cluster import MILLI
from twin.queue.dependencies import MovedSubmissions
from twin.queue.jobs import UNKNOWN, FailedStarts, Int, QueueJobs
from twin.queue.rules import rule_set
from twin.queue.simulation import QueueSchedule, simulate
from twin.sites.simulation import SiteSchedule, simulate_on_sites

Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class LoggedQueue:
    """A queue run: its header, what it was made with, its schedule as logged, names, and rows left out.

    Of a run on `nodes` the schedule counts GPUs, thousandths of them where jobs share some (`unit`). Where
    faults ended runs, a start in it is the end less the run time: `runs` say who held what at a time. Where
    jobs followed others, `moved` says who did, by place in the log that was played."""

    run_id: str
    header: Header
    choices: QueueChoices
    schedule: QueueSchedule
    names: JobNames
    left_out: tuple[Reject, ...]
    nodes: NodeSchedule | None = None
    sites: SiteSchedule | None = None
    failed: FailedStarts = field(default_factory=dict)
    moved: MovedSubmissions | None = None

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

    @cached_property
    def by_submission(self) -> "LoggedQueue":
        """Returns the run with its jobs in the order of their submissions in it, ties in that of the log."""
        if self.moved is None:
            return self
        done, order = self.schedule, np.argsort(self.schedule.jobs.submit_ns, kind="stable")
        columns = done.start_ns[order], done.backfilled[order]
        return replace(self, schedule=QueueSchedule(done.jobs.select(order), done.processors, *columns))

    def preceding(self, job: int) -> tuple[str, int] | None:
        """Returns the name of the job whose end a job waited for before it was submitted, and the think time,
        nanoseconds; None if there is none."""
        if self.moved is None:
            return None
        waits, place = self.moved.dependencies, int(self.schedule.jobs.number[job]) - 1
        before = int(waits.preceding[place])
        return None if before < 0 else (self.names.job(before + 1), int(waits.think_ns[place]))

    @cached_property
    def node_runs(self) -> NodeRuns | None:
        """Returns all runs of the jobs; None on no nodes."""
        return None if self.nodes is None else runs_of(self.nodes)

    @property
    def run_job(self) -> Int:
        """Returns the place of the job of each run."""
        return np.arange(len(self.schedule.jobs)) if self.node_runs is None else self.node_runs.job

    @cached_property
    def runs(self) -> QueueSchedule:
        """Returns the runs as jobs of their own: on a pool each job has one."""
        return self.schedule if self.node_runs is None else self.node_runs.as_jobs(self.schedule)

    @property
    def first_start_ns(self) -> Int:
        """Returns when each job starts for the first time (n,), nanoseconds."""
        runs = self.node_runs
        return self.schedule.start_ns if runs is None else runs.first_starts(len(self.schedule.jobs))

    @cached_property
    def taken_out(self) -> tuple[Int, Int]:
        """Returns the times at which outages take more or less of the machine, and how much from each on, in
        the unit of the schedule: what no job holds of nodes that are out."""
        if self.nodes is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        times, milli = out_over_time(self.nodes)
        return times, milli // (MILLI if self.unit == "GPUs" else 1)

    def index(self, job: str) -> int:
        """Returns the place of a job.

        Raises:
            UsageError: there is none of that name, or it was left out.
        """
        for at, number in enumerate(self.schedule.jobs.number.tolist()):
            if self.names.job(number) == job:
                return at
        for one in self.left_out:
            if one.raw.partition(" with ")[0] == job:  # on nodes the row says how many GPUs it asked for
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
    read = JobHistory()
    for event in events:
        read.take(event)
    moved = read.moved() if choices.dependencies else None
    stored, place = header.world["scenario"], read.place
    for job in place:
        if job not in read.started or job not in read.ended:
            raise UsageError(f"{run_id} tells of no end of job {job}: it was stopped while it was written")
    start_ns = np.array([read.started[job][0] for job in place], np.int64)
    overtook = np.array([read.started[job][1] for job in place], np.bool_)
    end_ns = np.array([read.ended[job] for job in place], np.int64)
    width = int(logged_nodes.cluster_from(stored[NODES]).gpus.max()) if NODES in stored else 0
    broken = read.interruptions(width)
    kept_ns = np.zeros(len(place), np.int64)
    np.add.at(kept_ns, broken.job, broken.kept_ns)
    jobs, users = _jobs(read.specs, np.array(read.submitted, np.int64), end_ns - start_ns + kept_ns)
    names = JobNames(dict(enumerate(place, 1)), users)
    left_out, where = tuple(read.left_out), [read.laid[job] for job in place]
    if SITES in stored:
        over = logged_sites.schedule_from(stored[SITES], read.specs, where, jobs, start_ns, overtook)
        return LoggedQueue(run_id, header, choices, over.as_pool, names, left_out, None, over)
    if NODES not in stored:
        done = QueueSchedule(jobs, choices.processors, start_ns, overtook, moved)
        return LoggedQueue(run_id, header, choices, done, names, left_out, failed=read.failed, moved=moved)
    cluster = logged_nodes.cluster_from(stored[NODES])
    first, slots = slots_of(where, width)
    kinds = np.array([spec["class"] for spec in read.specs], np.int64)
    outages, interval_ns = logged_nodes.outages_from(stored[NODES])
    outages.check(cluster)
    placed = NodeSchedule(
        jobs, cluster, logged_nodes.demands_from(stored[NODES], kinds), start_ns, overtook, first, slots,
        outages, broken, interval_ns,
    )  # fmt: skip
    return LoggedQueue(run_id, header, choices, placed.in_gpus, names, left_out, placed)


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
        np.array([spec.get("account", UNKNOWN) for spec in specs], np.int64),
    )  # fmt: skip
    return jobs, dict(enumerate(people))


def _rank(name: str) -> tuple[int, str]:
    """Order of users: numbers by their size, as in a log, then names."""
    return (int(name), "") if name.isdigit() else (2**63, name)


def played(
    run: LoggedQueue, jobs: QueueJobs, policy: str | None = None, outages: NodeOutages | None = None
) -> AnySchedule:
    """Returns what the run's scheduler, or another one, makes of jobs of the run, which are numbered by their
    place in it; nodes have the outages of the run, or those given.

    Raises:
        UsageError: the faults of the run cannot be drawn further, which another scheduler may need.
    """
    chosen, nodes = run.choices, run.nodes
    with_ = recipe(policy or chosen.policy)
    rules, prediction = rule_set(chosen.rules), chosen.prediction
    if run.sites is not None:
        asked = logged_sites.select(run.sites.asked, jobs.number - 1)
        return simulate_on_sites(
            jobs, asked, run.sites.world, with_, site_choice(str(chosen.placement)), prediction=prediction
        )
    if nodes is None:
        jobs, waits = (jobs, None) if run.moved is None else run.moved.again(jobs)
        return simulate(
            jobs, chosen.processors, with_, prediction=prediction, rules=rules, dependencies=waits
        )
    demands = replace(nodes.demands, class_of=nodes.demands.class_of[jobs.number - 1])
    on_nodes = partial(
        simulate_on_nodes, jobs, demands, nodes.cluster, with_, placement(str(chosen.placement)),
        prediction=prediction, rules=rules, seed=run.header.seed,
        checkpoint_interval_ns=nodes.checkpoint_interval_ns,
    )  # fmt: skip
    if policy is None or outages is not None or nodes.outages.law is None:
        return on_nodes(outages=nodes.outages if outages is None else outages)
    return _drawn_further(nodes, jobs, on_nodes)


def _drawn_further(
    nodes: NodeSchedule, jobs: QueueJobs, on_nodes: Callable[..., NodeSchedule]
) -> NodeSchedule:
    """Plays jobs with the faults of a run, and those that follow by their law if its jobs end later."""
    law = nodes.outages.law
    assert law is not None, "the faults of the run were drawn"
    plan = OutagePlan(mtbf_s=law.mtbf_s, mttr_s=law.mttr_s, seed=law.seed)
    found = plan.play(
        nodes.cluster, jobs, lambda *, outages, checkpoint_interval_ns: on_nodes(outages=outages)
    )
    until_ns = int(min(nodes.end_ns.max(), found.end_ns.max()))
    same, own = found.outages.begun_by(until_ns), nodes.outages.begun_by(until_ns)
    if not (np.array_equal(same.down_ns, own.down_ns) and np.array_equal(same.up_ns, own.up_ns)):
        raise UsageError("the faults of this run were drawn by another version of NumPy, which draws others")
    return found


def used_processors(done: QueueSchedule) -> tuple[Int, Int]:
    """Returns the times at which processors in use change, and how many are from then on."""
    times = np.concatenate((done.start_ns, done.end_ns))
    steps = np.concatenate((done.jobs.processors, -done.jobs.processors))
    changed, at = np.unique(times, return_inverse=True)
    net = np.zeros(len(changed), np.int64)
    np.add.at(net, at, steps)
    return changed, np.cumsum(net)
