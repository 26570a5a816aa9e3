"""Why a job of a queue run waited: who was in front, who held the processors, who went first."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S, to_ns
from policy.queue.registry import recipe
from replay.logqueue import start_forecast
from replay.logqueue.logged_run import LoggedQueue, load, used_processors
from replay.logqueue.start_forecast import StartForecast
from twin.nodes.runs import hit_nodes
from twin.queue.jobs import Int
from twin.queue.simulation import QueueSchedule
from twin.queue.usage import usage_key

Json = dict[str, Any]
SHOWN = 5
"""Jobs and users that are named; all are counted."""


@dataclass(frozen=True, slots=True)
class JobShare:
    """A job or a user, its processors, and the processor-seconds that it had while the job waited."""

    name: str
    processors: int
    processor_s: float


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run of the job that a fault ended: the node, when it began and ended, seconds, the work that a
    checkpoint kept of it and that was lost, and how long the job waited for its next run."""

    node: int
    started_s: float
    ended_s: float
    kept_s: float
    lost_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class OutNode:
    """An outage that lasted while the job waited: its node, kind, begin and end, seconds."""

    node: int
    kind: str
    down_s: float
    up_s: float


@dataclass(frozen=True, slots=True)
class JobAudit:
    """The wait of one job: before its first start and, where faults ended runs of it, before others.

    unit: what processors are: on nodes GPUs, thousandths of them where jobs share some.
    in_front, in_front_processors: jobs before it in the queue at its submission, and what they ask for.
    waited_s: its wait. busy_s: seconds of it in which fewer processors were free than it asks for; out_s:
    those in which nodes that were out had what was missing; held_back_s: those in which enough were free, but
    jobs before it, or their reservation, had a claim on them.
    holders: users by the processor-seconds of their jobs during its wait. overtaken_by: jobs that came later
    and started earlier. released_by: jobs that ended at the very moment it started.
    ended_runs: runs of it that faults ended. outages, out_nodes: how many lasted in its wait, and the first.
    forecast, fits_now: as of `at_s`; None where the job did not wait then.
    follows, think_s: the job whose end it waited for before it was submitted, and the think time after that.
    """

    run_id: str
    policy: str
    job: str
    user: str | None
    processors: int
    estimate_s: float
    submitted_s: float
    started_s: float
    finished_s: float
    overtook: bool
    free_at_submission: int
    running: int
    in_front: int
    in_front_processors: int
    first_in_front: tuple[str, ...]
    waited_s: float
    busy_s: float
    out_s: float
    held_back_s: float
    holders: tuple[JobShare, ...]
    overtaken: int
    overtaken_by: tuple[JobShare, ...]
    released_by: tuple[str, ...]
    ended_runs: tuple[EndedRun, ...]
    outages: int
    out_nodes: tuple[OutNode, ...]
    forecast: StartForecast | None
    fits_now: tuple[tuple[int, int], ...]
    unit: str = "processors"
    follows: str | None = None
    think_s: float | None = None

    def to_json(self) -> Json:
        """Returns the object of `twin audit RUN --job J --json`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        for name in ("holders", "overtaken_by", "ended_runs", "out_nodes"):
            plain[name] = [asdict(one) for one in plain[name]]
        plain["forecast"] = None if self.forecast is None else self.forecast.to_json()
        plain["fits_now"] = [{"processors": size, "estimate_s": length} for size, length in self.fits_now]
        plain["run"] = plain.pop("run_id")
        return {"schema": "twin.queue_job/1", **plain}


def explain(store: Path, run_id: str, name: str, at_s: float | None = None) -> JobAudit:
    """Returns why a job waited; the forecast is that of `at_s`, by default of its submission.

    Raises:
        UsageError: no queue run, no such job, or it did not wait at `at_s`.
    """
    run = load(store, run_id).by_submission
    job, done, runs = run.index(name), run.schedule, run.runs
    waits = _waits(run, job)
    submit, start, end = waits[0][0], waits[0][1], int(done.end_ns[job])
    at_ns = submit if at_s is None else to_ns(at_s)
    waiting = any(since <= at_ns < until for since, until in waits)
    if at_s is not None and not waiting:
        when = " and ".join(f"from {since / NS_PER_S:g} to {until / NS_PER_S:g} s" for since, until in waits)
        raise UsageError(f"job {name} waits {when}; take --at in between")
    front, size = _in_front(run, job), int(done.jobs.processors[job])
    parts = np.sum([_split(run, since, until, size) for since, until in waits], axis=0) / NS_PER_S
    present = (runs.start_ns <= submit) & (runs.end_ns > submit) & (run.run_job != job)
    first = run.first_start_ns
    later = np.flatnonzero((np.arange(len(done.jobs)) > job) & (first < start) & (start > submit))
    released = np.unique(run.run_job[runs.end_ns == start]) if start > submit else np.array([], np.int64)
    out, before = _lasting(run, waits), run.preceding(job)
    return JobAudit(
        run_id=run_id, policy=run.choices.policy, job=name, user=run.names.user(int(done.jobs.user[job])),
        processors=size, estimate_s=int(done.jobs.estimate_ns[job]) / NS_PER_S,
        submitted_s=submit / NS_PER_S, started_s=start / NS_PER_S, finished_s=end / NS_PER_S,
        overtook=bool(runs.backfilled[run.run_job == job].any()),
        free_at_submission=int(
            done.processors - runs.jobs.processors[present].sum() - value_at(*run.taken_out, submit)
        ),
        running=int(present.sum()), in_front=len(front),
        in_front_processors=int(done.jobs.processors[front].sum()), first_in_front=_called(run, front),
        waited_s=sum(until - since for since, until in waits) / NS_PER_S, busy_s=float(parts[0]),
        out_s=float(parts[1]), held_back_s=float(parts[2]), holders=_holders(run, job, waits),
        overtaken=len(later), overtaken_by=_shares(run, later, submit, start),
        released_by=_called(run, released), ended_runs=_ended_runs(run, job), outages=len(out),
        out_nodes=out[:SHOWN], forecast=start_forecast.forecast(run, job, at_ns) if waiting else None,
        fits_now=tuple(start_forecast.fits_now(run, at_ns)) if waiting else (), unit=run.unit,
        follows=None if before is None else before[0],
        think_s=None if before is None else before[1] / NS_PER_S,
    )  # fmt: skip


def _waits(run: LoggedQueue, job: int) -> list[tuple[int, int]]:
    """Returns begin and end of each wait of a job, nanoseconds: one before each of its runs."""
    own = np.flatnonzero(run.run_job == job)
    own = own[np.argsort(run.runs.start_ns[own])]
    ready_ns, start_ns = run.runs.jobs.submit_ns[own], run.runs.start_ns[own]
    return list(zip(ready_ns.tolist(), start_ns.tolist(), strict=True))


def _ended_runs(run: LoggedQueue, job: int) -> tuple[EndedRun, ...]:
    """Returns the runs of a job that faults ended."""
    if run.nodes is None:
        return ()
    broken, nodes = run.nodes.broken, hit_nodes(run.nodes)
    own = np.flatnonzero(broken.job == job)
    columns = (broken.start_ns, broken.end_ns, broken.kept_ns, broken.lost_ns)
    seconds = [column[own] / NS_PER_S for column in columns]
    waited_s = [(until - since) / NS_PER_S for since, until in _waits(run, job)[1:]]
    rows = zip(nodes[own].tolist(), *(column.tolist() for column in seconds), waited_s, strict=True)
    return tuple(EndedRun(*row) for row in rows)


def _lasting(run: LoggedQueue, waits: list[tuple[int, int]]) -> tuple[OutNode, ...]:
    """Returns the outages that last in a wait, in the order in which they begin."""
    if run.nodes is None:
        return ()
    out = run.nodes.outages
    over = np.zeros(len(out), np.bool_)
    for since, until in waits:
        over |= (out.down_ns < until) & (out.up_ns > since)
    columns = (out.node[over], out.drain[over], out.down_ns[over] / NS_PER_S, out.up_ns[over] / NS_PER_S)
    return tuple(
        OutNode(node, "drain" if drain else "fault", down_s, up_s)
        for node, drain, down_s, up_s in zip(*(column.tolist() for column in columns), strict=True)
    )


def _called(run: LoggedQueue, places: Int) -> tuple[str, ...]:
    numbers = run.schedule.jobs.number[places[:SHOWN]].tolist()
    return tuple(run.names.job(number) for number in numbers)


def _in_front(run: LoggedQueue, job: int) -> Int:
    """Returns the jobs that stand before this one in the queue at its submission, the first one first."""
    done = run.schedule
    at_ns = int(done.jobs.submit_ns[job])
    waits = run.run_job[(run.runs.jobs.submit_ns <= at_ns) & (run.runs.start_ns > at_ns)]
    waiting = np.union1d(waits[waits < job], [job]).astype(np.int64)
    jobs = run.logged.jobs
    keys = recipe(run.choices.policy).keys(jobs, jobs.predicted_ns(run.choices.prediction))
    if keys.usage != "none":
        all_, begun = run.runs, np.flatnonzero(run.runs.start_ns < at_ns)
        columns = (
            run.run_job[begun], all_.jobs.processors[begun], all_.start_ns[begun], all_.end_ns[begun]
        )  # fmt: skip
        runs = list(zip(*(column.tolist() for column in columns), strict=True))
        own = {one: usage_key(keys, done.jobs.user, runs, one, at_ns) for one in waiting.tolist()}
        ordered = np.array(sorted(own, key=lambda one: (own[one], one)), np.int64)
        return ordered[: int(np.flatnonzero(ordered == job)[0])]
    if keys.power:
        aged = (at_ns - done.jobs.submit_ns[waiting]) / NS_PER_S / keys.scale[waiting]
        key = -(aged**keys.power) * keys.factor[waiting]
    else:
        key = keys.static[waiting]
    ordered = waiting[np.lexsort((waiting, key))]
    return ordered[: int(np.flatnonzero(ordered == job)[0])]


def _split(run: LoggedQueue, since: int, until: int, size: int) -> tuple[int, int, int]:
    """Returns nanoseconds of a wait with fewer free processors than a job asks for, those in which nodes that
    are out have what is missing, and the others."""
    changed, used = used_processors(run.runs)
    out_at, out = run.taken_out
    marks = np.unique(np.concatenate((changed, out_at, [since, until])))
    marks = marks[(marks >= since) & (marks <= until)]
    lengths, gone = np.diff(marks), value_at(out_at, out, marks[:-1])
    free = run.schedule.processors - value_at(changed, used, marks[:-1]) - gone
    few = free < size
    missing = few & (free + gone >= size)
    return (
        int(lengths[few & ~missing].sum()), int(lengths[missing].sum()), int(lengths[~few].sum())
    )  # fmt: skip


def value_at(times: Int, values: Int, at: Int | int) -> Any:
    """Returns a step function at some times; 0 before its first step."""
    last = np.searchsorted(times, at, side="right")
    return np.append(0, values)[last]


def _held_s(done: QueueSchedule, places: Int, since: int, until: int) -> Any:
    """Returns the processor-seconds that runs had between two times (n,)."""
    ends = np.minimum(done.end_ns[places], until)
    lasted = np.maximum(ends - np.maximum(done.start_ns[places], since), 0)
    return lasted / NS_PER_S * done.jobs.processors[places]


def _holders(run: LoggedQueue, job: int, waits: list[tuple[int, int]]) -> tuple[JobShare, ...]:
    """Returns the users who had the most processor-seconds during the waits of a job."""
    done, own = run.runs, run.run_job == job
    held, over = np.zeros(len(own)), np.zeros(len(own), np.bool_)
    for since, until in waits:
        over |= (done.end_ns > since) & (done.start_ns < until)
        held += _held_s(done, np.arange(len(own)), since, until)
    places = np.flatnonzero(over & ~own)
    users, at = np.unique(done.jobs.user[places], return_inverse=True)
    sums, sizes = np.bincount(at, held[places]), np.bincount(at, done.jobs.processors[places])
    order = np.argsort(-sums, kind="stable")[:SHOWN]
    return tuple(
        JobShare(run.names.user(int(users[k])) or "unknown", int(sizes[k]), float(sums[k])) for k in order
    )


def _shares(run: LoggedQueue, places: Int, since: int, until: int) -> tuple[JobShare, ...]:
    """Returns the jobs that had the most processor-seconds between two times, of these."""
    held = np.zeros(len(run.schedule.jobs))
    np.add.at(held, run.run_job, _held_s(run.runs, np.arange(len(run.run_job)), since, until))
    order = places[np.argsort(-held[places], kind="stable")]
    sizes = run.schedule.jobs.processors
    return tuple(
        JobShare(name, int(sizes[one]), float(held[one]))
        for name, one in zip(_called(run, order), order[:SHOWN].tolist(), strict=True)
    )
