"""Persistent schedule of retrainings, which survives restarts and never runs two at a time.

The store holds the trigger, the arguments and the due time as JSON with a digest of itself; the job is built
in memory. So a store that was received names nothing that could be called.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.job import Job
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from pydantic import AfterValidator

from ingest.core import integrity
from ingest.core.durable import make_directory, replace
from ingest.core.errors import DamageError, LockedError, UsageError
from replay.training import drift, retrain
from twin.scenario import prepare

SCHEDULE = "schedule.json"
SCHEMA = "twin.schedule/1"
TYPES = {
    "due": Annotated[str, AfterValidator(datetime.fromisoformat)],
    **dict.fromkeys(("trigger", "task", "scenario"), str),
    "dataset": str | None,
}
OLDER = "schedule.sqlite"
"""The schedule of older versions: a pickled job, which would run code of whoever wrote it."""
JOB = "retrain"
SCHEDULED = "replay.training.schedule:scheduled"
WATCHED = "replay.training.schedule:watched"
CHECK_INTERVAL = "10m"
"""Interval of the check for drift."""
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
"""As crontab counts them."""
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def every(text: str) -> IntervalTrigger:
    """Returns the trigger of "90s", "30m", "6h" or "1d".

    Raises:
        UsageError: the text is none of these.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no interval: write a number and s, m, h or d, for example 6h")
    length = timedelta(**{UNITS[match[2]]: int(match[1])})
    return IntervalTrigger(seconds=int(length.total_seconds()), timezone="UTC")


def cron(text: str) -> CronTrigger:
    """Returns the trigger of a crontab line, in UTC.

    Raises:
        UsageError: not five fields of a crontab.
    """
    *fields, weekdays = text.split() or [""]
    try:
        return CronTrigger.from_crontab(" ".join([*fields, _weekday_names(weekdays)]), timezone="UTC")
    except ValueError as error:
        raise UsageError(f"{text!r} is no crontab line ({error}); for example '0 3 * * *'") from error


def _weekday_names(weekdays: str) -> str:
    """Converts weekdays of a crontab line to names: there 0 and 7 are Sunday, in APScheduler 0 is Monday.

    Raises:
        ValueError: a day after 7.
    """

    def listed(part: str) -> str:
        days, slash, step = part.partition("/")
        ends = ("0-6" if days == "*" and slash else days).split("-")
        if not all(end.isdecimal() for end in ends) or (slash and not step.isdecimal()):
            return part  # names and *, which mean the same there
        first, last = int(ends[0]), int(ends[-1])
        if not first <= last <= 7:
            raise ValueError(f"weekdays {part!r}: from 0 (Sunday) to 7 (Sunday again), ascending")
        last = 6 if slash and len(ends) == 1 else last
        return ",".join(WEEKDAYS[day % 7] for day in range(first, last + 1, int(step or 1)))

    return ",".join(listed(part) for part in weekdays.split(","))


def scheduler(
    store: Path, trigger: BaseTrigger, *, scenario: str, dataset: str | None = None, task: str = SCHEDULED
) -> BackgroundScheduler:
    """Returns a paused scheduler with one job, whose due time is kept in `SCHEDULE` of the store.

    Missed times coalesce into one run, however late; `max_instances` 1 and the lock of `retrain.retrain` keep
    two from running at a time. A restart with the same trigger and scenario keeps the due time.

    Raises:
        DamageError: the stored schedule is not what was written, or one of an older version.
    """
    make_directory(store)
    arguments = [str(store.resolve()), scenario, dataset]
    wanted = {"trigger": str(trigger), "task": task, "scenario": scenario, "dataset": dataset}
    kept = stored(store)
    made = BackgroundScheduler(
        jobstores={"default": KeptDueTime(store, wanted)},
        executors={"default": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone="UTC",
        daemon=True,
    )
    first: dict[str, datetime] = {}
    if task == WATCHED:  # drift is checked at once
        first["next_run_time"] = datetime.now(UTC)
    elif kept is not None and {name: kept[name] for name in wanted} == wanted:
        first["next_run_time"] = datetime.fromisoformat(kept["due"])
    made.start(paused=True)
    made.add_job(task, trigger, arguments, id=JOB, name="retraining", **first)
    return made


class KeptDueTime(MemoryJobStore):
    """A job in memory, whose due time is written to the store whenever it changes."""

    def __init__(self, store: Path, wanted: dict[str, Any]) -> None:
        super().__init__()
        self._path, self._wanted = store / SCHEDULE, wanted

    def add_job(self, job: Job) -> None:
        """Adds the job and keeps when it is due."""
        super().add_job(job)
        self._keep(job)

    def update_job(self, job: Job) -> None:
        """Changes the job and keeps when it is due."""
        super().update_job(job)
        self._keep(job)

    def _keep(self, job: Job) -> None:
        due = job.next_run_time.astimezone(UTC).isoformat()
        replace(self._path, integrity.sealed({"schema": SCHEMA, "due": due, **self._wanted}))


def stored(store: Path) -> dict[str, Any] | None:
    """Returns the fields of the stored schedule; None: there is none.

    Raises:
        DamageError: a byte of it was changed, or an older version wrote it.
    """
    if (store / OLDER).exists():
        raise DamageError(
            f"{store / OLDER}: the schedule of an older version, which holds code; it is not opened.\n"
            "Delete it and start `twin retrain` with --every, --cron or --on-drift again"
        )
    path = store / SCHEDULE
    data = integrity.read_optional(path)
    if data is None:
        return None
    fields = integrity.unsealed(data, SCHEMA, TYPES)
    if fields is None:
        raise DamageError(f"{path}: damaged (it was changed); delete it: the schedule begins anew")
    return fields


def fault(store: Path) -> str | None:
    """Returns how the stored schedule is damaged; None: it is whole, or absent."""
    try:
        stored(store)
    except DamageError as error:
        return str(error)
    return None


def scheduled(store: str, scenario: str, dataset: str | None) -> retrain.RetrainResult | None:
    """Retrains when the schedule is due; None while another retraining is under way.

    A failure is reported by `scheduled_retraining.follow` and does not end the schedule.
    """
    with suppress(LockedError):
        return retrain.retrain(
            Path(store), prepare.load(scenario), dataset=dataset, cause={"cause": "schedule"}
        )
    return None


def watched(store: str, scenario: str, dataset: str | None) -> retrain.RetrainResult | None:
    """Retrains if there is a new drift; None otherwise."""
    with suppress(LockedError):  # under way elsewhere: the next check tells if a drift remains
        return on_drift(Path(store), prepare.load(scenario), dataset=dataset)
    return None


def on_drift(
    store: Path, scenario: prepare.Scenario, *, dataset: str | None = None, **options: Any
) -> retrain.RetrainResult | None:
    """Retrains if the newest run of the scenario shows a drift that was not acknowledged; else returns None.

    `options` are those of `retrain.retrain`.
    """
    found = drift.due(store, scenario.name)
    if found is None:
        return None
    cause = {"cause": "drift", **found.to_json()}
    done = retrain.retrain(store, scenario, dataset=dataset, cause=cause, **options)
    drift.acknowledge(store, scenario.name, found)
    return done
