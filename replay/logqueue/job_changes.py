"""Changes of the jobs of a schedule, and of the nodes that they run on, as events in their order, and back.

At one instant come submissions, ends, nodes that come back, nodes that go out, runs that a fault ends, and
starts, each by job or node: a job that ends when its node fails has ended, and one that a fault ends can
start elsewhere at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import DamageError, UsageError
from ingest.parsing.reader import Reject
from replay.log.events import Event
from replay.logqueue import logged_sites
from twin.nodes.on_nodes import NodeSchedule
from twin.nodes.outages import DRAIN, UNBROKEN, UP, Interruptions
from twin.nodes.runs import hit_nodes, runs_of
from twin.queue.dependencies import Dependencies, MovedSubmissions
from twin.queue.jobs import UNKNOWN, FailedStarts, Int
from twin.queue.simulation import QueueSchedule
from twin.sites.simulation import SiteSchedule

Json = dict[str, Any]
Timed = tuple[int, str, Json, str]
"""Time, type of the event, payload, job."""
AnySchedule = QueueSchedule | NodeSchedule | SiteSchedule
HEAD, OVERTAKES = "head of the queue", "overtakes the head of the queue"
DONE, CUT = "done", "at its estimate"
FAULTS, DRAINS, REPAIRED = "fault", "drain", "outage over"
"""Reasons for which a node changes."""
SUBMITTED, ENDED, NODE, PREEMPTED, STARTED = range(5)
"""Kinds of changes, in their order at one instant."""


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


@dataclass(frozen=True, eq=False)
class _Starts:
    """Starts of runs: place of the job, nanoseconds, and whether it overtook (r,); where it lies, by run."""

    job: Int
    start_ns: Int
    overtook: NDArray[np.bool_]
    places: Callable[[int], Json]


def changes(done: AnySchedule, names: JobNames) -> Iterator[Timed]:
    """Yields the changes of all jobs, and of nodes up to the last end, in order."""
    jobs, count = done.jobs, len(done.jobs)
    called = [names.job(number) for number in jobs.number.tolist()]
    begun, (places, others) = _starts(done), _of_outages(done, called)
    kinds = np.repeat((SUBMITTED, ENDED, STARTED), (count, count, len(begun.job)))
    times = np.concatenate((jobs.submit_ns, done.end_ns, begun.start_ns))
    within = np.concatenate((np.arange(count), np.arange(count), begun.job))
    if others:
        rank, second = np.array(places, np.int64).T
        kinds, within = np.concatenate((kinds, rank)), np.concatenate((within, second))
        times = np.concatenate((times, np.array([one[0] for one in others], np.int64)))
    order = np.lexsort((within, kinds, times))
    sizes, specs = _gpus_held(done), _specs(done, names)
    cut = (jobs.run_ns == jobs.estimate_ns).tolist()
    of_run, overtook = begun.job.tolist(), begun.overtook.tolist()
    for time_ns, at in zip(times[order].tolist(), order.tolist(), strict=True):
        if at < count:
            yield time_ns, "job_submitted", {"reason": "", "gpus": [0], "spec": specs[at]}, called[at]
        elif at < 2 * count:
            why = CUT if cut[at - count] else DONE
            yield time_ns, "job_finished", {"reason": why, "gpus": [0], "spec": {}}, called[at - count]
        elif at - 2 * count < len(of_run):
            run = at - 2 * count
            why, job = OVERTAKES if overtook[run] else HEAD, of_run[run]
            said = {"reason": why, "gpus": sizes[job], "spec": begun.places(run)}
            yield time_ns, "job_started", said, called[job]
        else:
            yield others[at - 2 * count - len(of_run)]


def failures(done: AnySchedule, names: JobNames, failed: FailedStarts) -> list[Timed]:
    """Returns failed starts in order, without those after the end of a cut job."""
    held = zip(done.jobs.number.tolist(), done.start_ns.tolist(), done.end_ns.tolist(), strict=True)
    found = [
        (start_ns + after_ns, "job_out_of_memory", payload, names.job(number))
        for number, start_ns, end_ns in held
        for after_ns, payload in failed.get(number, ())
        if start_ns + after_ns <= end_ns
    ]
    return sorted(found, key=itemgetter(0))


def _starts(done: AnySchedule) -> _Starts:
    """The starts of all runs; on a pool they lie nowhere in particular."""
    every = np.arange(len(done.jobs))
    if isinstance(done, SiteSchedule):
        ways = done.option.tolist()
        return _Starts(every, done.start_ns, done.backfilled, lambda run: {"way": ways[run]})
    if not isinstance(done, NodeSchedule):
        return _Starts(every, done.start_ns, done.backfilled, lambda run: {})
    runs = runs_of(done)
    width, slots, first = int(done.cluster.gpus.max()), runs.slots.tolist(), runs.first.tolist()

    def places(run: int) -> Json:
        return {"places": [list(divmod(one, width)) for one in slots[first[run] : first[run + 1]]]}

    return _Starts(runs.job, runs.start_ns, runs.backfilled, places)


def _of_outages(done: AnySchedule, called: list[str]) -> tuple[list[tuple[int, int]], list[Timed]]:
    """Changes of nodes up to the last end, and runs that faults ended, each with its kind and its rank among
    those of its kind at one instant."""
    places, found = list[tuple[int, int]](), list[Timed]()
    if not isinstance(done, NodeSchedule) or not len(done.outages):
        return places, found
    last_ns, depth = int(done.end_ns.max(initial=-1)), [0] * len(done.cluster)
    for time_ns, node, kind in zip(*(column.tolist() for column in done.outages.changes()), strict=True):
        if time_ns > last_ns:
            break
        depth[node] += -1 if kind == UP else 1
        why = REPAIRED if kind == UP else DRAINS if kind == DRAIN else FAULTS
        said = {"node": node, "reason": why, "outages": depth[node]}
        places.append((NODE, node + (kind != UP) * len(depth)))
        found.append((time_ns, "node_up" if kind == UP else "node_down", said, ""))
    broken = done.broken
    columns = (broken.job, broken.end_ns, broken.kept_ns, broken.lost_ns, hit_nodes(done))
    for job, time_ns, kept_ns, lost_ns, node in zip(*(one.tolist() for one in columns), strict=True):
        spec = {"node": node, "kept_ns": kept_ns, "lost_ns": lost_ns}
        said = {"reason": f"fault of node {node}", "gpus": [0], "spec": spec}
        places.append((PREEMPTED, job))
        found.append((time_ns, "job_preempted", said, called[job]))
    return places, found


def _gpus_held(done: AnySchedule) -> list[list[int]]:
    """Returns the GPUs or processors of each job, at every site if there are several."""
    if isinstance(done, SiteSchedule):
        return list(done.world.options.need[done.option].tolist())
    return [[size] for size in done.jobs.processors.tolist()]


def _specs(done: AnySchedule, names: JobNames) -> list[Json]:
    """Returns what is known of each job when it is submitted; on nodes its class of demands, too."""
    jobs = done.jobs
    kinds = done.demands.class_of.tolist() if isinstance(done, NodeSchedule) else None
    following = _following(done, names)
    columns = (jobs.processors, jobs.estimate_ns, jobs.user, jobs.priority, jobs.deadline_ns, jobs.account)
    return [
        {
            "processors": processors,
            "estimate_ns": estimate_ns,
            "user": names.user(user),
            "priority": None if priority == UNKNOWN else priority,
            "deadline_ns": None if deadline_ns == UNKNOWN else deadline_ns,
            **({} if account == UNKNOWN else {"account": account}),
            **({} if kinds is None else {"class": kinds[at]}),
            **(logged_sites.spec_of(done, at) if isinstance(done, SiteSchedule) else {}),
            **following[at],
        }
        for at, (processors, estimate_ns, user, priority, deadline_ns, account) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def _following(done: AnySchedule, names: JobNames) -> list[Json]:
    """Returns the place of each job in the log and, of one that follows another, the recorded submission, the
    job before it and the think time; nothing of jobs that were submitted as recorded."""
    moved = done.moved if isinstance(done, QueueSchedule) else None
    if moved is None:
        return [{}] * len(done.jobs)
    waits, number = moved.dependencies, done.jobs.number.tolist()
    columns = (waits.preceding, waits.think_ns, moved.recorded_ns)
    return [
        {"place": at}
        if before < 0
        else {
            "place": at, "recorded_ns": recorded_ns, "after": names.job(number[before]),
            "think_ns": think_ns,
        }
        for at, (before, think_ns, recorded_ns) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]  # fmt: skip


class JobHistory:
    """History of the jobs of a run, from its events: specs, submissions and places in their order; by name
    the start of the last run, where it lay, and the end; rows that were left out; runs that faults ended."""

    def __init__(self) -> None:
        self.specs: list[Json] = []
        self.submitted: list[int] = []
        self.place: dict[str, int] = {}
        self.started: dict[str, tuple[int, bool]] = {}
        self.laid: dict[str, Json] = {}
        self.ended: dict[str, int] = {}
        self.failed: dict[int, tuple[tuple[int, Json], ...]] = {}
        self.left_out: list[Reject] = []
        self.broken: list[tuple[int, int, int, int, bool]] = []
        self.broken_laid: list[Json] = []

    def take(self, event: Event) -> None:
        """Takes the next event."""
        if event.type == "job_submitted":
            self.place[event.job] = len(self.specs)
            self.specs.append(event.payload["spec"])
            self.submitted.append(event.sim_ns)
        elif event.type == "job_started":
            self.started[event.job] = event.sim_ns, event.payload["reason"] == OVERTAKES
            self.laid[event.job] = event.payload["spec"]
        elif event.type == "job_preempted":
            self._ended_by_a_fault(event)
        elif event.type == "job_finished":
            self.ended[event.job] = event.sim_ns
        elif event.type == "job_out_of_memory":
            number = self.place[event.job] + 1
            after_ns = event.sim_ns - self.started[event.job][0]
            self.failed[number] = (*self.failed.get(number, ()), (after_ns, event.payload))
        elif event.type == "job_failed":
            self.left_out.append(Reject(reason=event.payload["reason"], **event.payload["spec"]))

    def moved(self) -> MovedSubmissions:
        """Sorts the jobs by their place in the log, and returns who followed whom.

        Raises:
            DamageError: their specs do not say that, or what cannot be.
        """
        places = [spec["place"] for spec in self.specs if isinstance(spec.get("place"), int)]
        names = list(self.place)
        if len(places) < len(names) or set(places) != set(range(len(places))):
            raise DamageError("the places of the jobs in the log that was played are not 0, 1, 2 and so on")
        order = sorted(range(len(places)), key=places.__getitem__)
        self.specs = [self.specs[at] for at in order]
        self.submitted = [self.submitted[at] for at in order]
        self.place = {names[at]: place for place, at in enumerate(order)}
        rows = [self._follows(names[at], self.specs[place]) for place, at in enumerate(order)]
        try:
            preceding, think_ns, recorded_ns = np.array(rows, np.int64).reshape(-1, 3).T
            waits = Dependencies(preceding, think_ns)
            waits.check(len(rows))
        except (UsageError, OverflowError) as error:
            raise DamageError(f"who followed whom in the log that was played: {error}") from error
        return MovedSubmissions(waits, np.where(waits.waits, recorded_ns, self.submitted))

    def _follows(self, job: str, spec: Json) -> tuple[int, int, int]:
        """Place of the job before one, or -1, the think time and the recorded submission, nanoseconds."""
        if "after" not in spec:
            return -1, 0, 0
        think_ns, recorded_ns = spec.get("think_ns"), spec.get("recorded_ns")
        known = isinstance(spec["after"], str) and spec["after"] in self.place
        if not known or not isinstance(think_ns, int) or not isinstance(recorded_ns, int):
            raise DamageError(f"job {job!r} follows {spec['after']!r}: no such job, or no think time")
        return self.place[spec["after"]], think_ns, recorded_ns

    def _ended_by_a_fault(self, event: Event) -> None:
        if event.job not in self.started:
            raise DamageError(f"event {event.seq}: job {event.job!r} is preempted and does not run")
        (start_ns, overtook), laid = self.started.pop(event.job), self.laid.pop(event.job)
        kept_ns = event.payload["spec"].get("kept_ns")
        if not isinstance(kept_ns, int) or "places" not in laid:
            raise DamageError(f"event {event.seq}: job {event.job!r} lies on no node that a fault could end")
        self.broken.append((self.place[event.job], start_ns, event.sim_ns, kept_ns, overtook))
        self.broken_laid.append(laid)

    def interruptions(self, width: int) -> Interruptions:
        """Returns the runs that faults ended, on nodes of at most so many GPUs."""
        if not self.broken:
            return UNBROKEN
        job, start_ns, end_ns, kept_ns = (
            np.array([one[at] for one in self.broken], np.int64) for at in range(4)
        )
        overtook = np.array([one[4] for one in self.broken], np.bool_)
        first, slots = slots_of(self.broken_laid, width)
        return Interruptions(job, start_ns, end_ns, kept_ns, overtook, first, slots)


def slots_of(laid: Sequence[Json], width: int) -> tuple[Int, Int]:
    """Returns where the slots of each run begin (r + 1,), and the slots, of what starts say
    of nodes and GPUs; `width`: the most GPUs of a node."""
    places = [one["places"] for one in laid]
    first = np.concatenate(([0], np.cumsum([len(one) for one in places]))).astype(np.int64)
    return first, np.array([node * width + gpu for one in places for node, gpu in one], np.int64)
