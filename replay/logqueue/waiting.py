"""Why a job of a queue run waited: who was in front, who held the processors, who went first."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S, to_ns
from policy.queue.registry import recipe
from replay.logqueue import start_forecast
from replay.logqueue.logged_run import LoggedQueue, load, used_processors
from replay.logqueue.start_forecast import StartForecast
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
class JobAudit:
    """The wait of one job.

    unit: what processors are: on nodes GPUs, thousandths of them where jobs share some.
    in_front, in_front_processors: jobs before it in the queue at its submission, and what they ask for.
    busy_s: seconds of its wait in which fewer processors were free than it asks for; held_back_s: those in
    which enough were free, but jobs before it, or their reservation, had a claim on them.
    holders: users by the processor-seconds of their jobs during its wait. overtaken_by: jobs that came later
    and started earlier. released_by: jobs that ended at the very moment it started.
    forecast, fits_now: as of `at_s`; None where the job did not wait then.
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
    busy_s: float
    held_back_s: float
    holders: tuple[JobShare, ...]
    overtaken: int
    overtaken_by: tuple[JobShare, ...]
    released_by: tuple[str, ...]
    forecast: StartForecast | None
    fits_now: tuple[tuple[int, int], ...]
    unit: str = "processors"

    @property
    def waited_s(self) -> float:
        """Start minus submission."""
        return self.started_s - self.submitted_s

    def to_json(self) -> Json:
        """Returns the object of `twin audit RUN --job J --json`."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        for name in ("holders", "overtaken_by"):
            shares = plain[name]
            plain[name] = [{field: getattr(one, field) for field in JobShare.__slots__} for one in shares]
        plain["forecast"] = None if self.forecast is None else self.forecast.to_json()
        plain["fits_now"] = [{"processors": size, "estimate_s": length} for size, length in self.fits_now]
        plain["run"] = plain.pop("run_id")
        return {"schema": "twin.queue_job/1", **plain, "waited_s": self.waited_s}


def explain(store: Path, run_id: str, name: str, at_s: float | None = None) -> JobAudit:
    """Returns why a job waited; the forecast is that of `at_s`, by default of its submission.

    Raises:
        UsageError: no queue run, no such job, or it did not wait at `at_s`.
    """
    run = load(store, run_id)
    job, done = run.index(name), run.schedule
    submit, start, end = (int(times[job]) for times in (done.jobs.submit_ns, done.start_ns, done.end_ns))
    at_ns = submit if at_s is None else to_ns(at_s)
    if at_s is not None and not submit <= at_ns < start:
        raise UsageError(
            f"job {name} waits from {submit / NS_PER_S:g} to {start / NS_PER_S:g} s; take --at in between"
        )
    front, size = _in_front(run, job), int(done.jobs.processors[job])
    busy_ns, held_ns = _split(done, submit, start, size)
    present = (done.start_ns <= submit) & (done.end_ns > submit)
    present[job] = False
    later = np.flatnonzero((np.arange(len(done.jobs)) > job) & (done.start_ns < start) & (start > submit))
    released = np.flatnonzero(done.end_ns == start) if start > submit else np.array([], np.int64)
    waits = start > at_ns
    return JobAudit(
        run_id=run_id, policy=run.choices.policy, job=name, user=run.names.user(int(done.jobs.user[job])),
        processors=size, estimate_s=int(done.jobs.estimate_ns[job]) / NS_PER_S,
        submitted_s=submit / NS_PER_S, started_s=start / NS_PER_S, finished_s=end / NS_PER_S,
        overtook=bool(done.backfilled[job]),
        free_at_submission=int(done.processors - done.jobs.processors[present].sum()),
        running=int(present.sum()), in_front=len(front),
        in_front_processors=int(done.jobs.processors[front].sum()), first_in_front=_called(run, front),
        busy_s=busy_ns / NS_PER_S, held_back_s=held_ns / NS_PER_S,
        holders=_holders(run, job, submit, start), overtaken=len(later),
        overtaken_by=_shares(run, later, submit, start), released_by=_called(run, released),
        forecast=start_forecast.forecast(run, job, at_ns) if waits else None,
        fits_now=tuple(start_forecast.fits_now(run, at_ns)) if waits else (), unit=run.unit,
    )  # fmt: skip


def _called(run: LoggedQueue, places: Int) -> tuple[str, ...]:
    numbers = run.schedule.jobs.number[places[:SHOWN]].tolist()
    return tuple(run.names.job(number) for number in numbers)


def _in_front(run: LoggedQueue, job: int) -> Int:
    """Returns the jobs that stand before this one in the queue at its submission, the first one first."""
    done = run.schedule
    at_ns = int(done.jobs.submit_ns[job])
    waiting = np.flatnonzero((done.jobs.submit_ns <= at_ns) & (done.start_ns > at_ns))
    waiting = np.union1d(waiting[waiting < job], [job]).astype(np.int64)
    jobs = run.logged.jobs
    keys = recipe(run.choices.policy).keys(jobs, jobs.predicted_ns(run.choices.prediction))
    if keys.usage != "none":
        begun = np.flatnonzero(done.start_ns < at_ns)
        columns = (begun, done.jobs.processors[begun], done.start_ns[begun], done.end_ns[begun])
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


def _split(done: QueueSchedule, submit: int, start: int, size: int) -> tuple[int, int]:
    """Returns nanoseconds of the wait with fewer free processors than the job asks for, and the others."""
    changed, used = used_processors(done)
    inside = changed[(changed > submit) & (changed < start)]
    marks = np.concatenate(([submit], inside, [max(start, submit)]))
    at = np.searchsorted(changed, marks[:-1], side="right") - 1
    free = done.processors - np.where(at >= 0, used[np.maximum(at, 0)], 0)
    lengths = np.diff(marks)
    busy = int(lengths[free < size].sum())
    return busy, int(lengths.sum()) - busy


def _held_s(done: QueueSchedule, places: Int, since: int, until: int) -> Any:
    """Returns the processor-seconds that jobs had between two times (n,)."""
    ends = np.minimum(done.end_ns[places], until)
    lasted = np.maximum(ends - np.maximum(done.start_ns[places], since), 0)
    return lasted / NS_PER_S * done.jobs.processors[places]


def _holders(run: LoggedQueue, job: int, since: int, until: int) -> tuple[JobShare, ...]:
    """Returns the users who had the most processor-seconds during a wait."""
    done = run.schedule
    places = np.flatnonzero((done.end_ns > since) & (done.start_ns < until))
    places = places[places != job]
    held = _held_s(done, places, since, until)
    users, at = np.unique(done.jobs.user[places], return_inverse=True)
    sums, sizes = np.bincount(at, held), np.bincount(at, done.jobs.processors[places])
    order = np.argsort(-sums, kind="stable")[:SHOWN]
    return tuple(
        JobShare(run.names.user(int(users[k])) or "unknown", int(sizes[k]), float(sums[k])) for k in order
    )


def _shares(run: LoggedQueue, places: Int, since: int, until: int) -> tuple[JobShare, ...]:
    """Returns the jobs that had the most processor-seconds."""
    held = _held_s(run.schedule, places, since, until)
    order = places[np.argsort(-held, kind="stable")]
    sizes = run.schedule.jobs.processors
    return tuple(
        JobShare(name, int(sizes[one]), float(_held_s(run.schedule, np.array([one]), since, until)[0]))
        for name, one in zip(_called(run, order), order[:SHOWN].tolist(), strict=True)
    )
