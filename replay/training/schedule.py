"""Persistent schedule of retrainings, which survives restarts and never runs two at a time.

The database has no checksums. So the job is stored with its digest, its due time is compared with the one in
the column beside it, and SQLite checks its own structure before the schedule is read.
"""

import hashlib
import re
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy import LargeBinary, TypeDecorator
from sqlalchemy.exc import SQLAlchemyError

from ingest.core import integrity
from ingest.core.durable import make_directory
from ingest.core.errors import DamageError, LockedError, UsageError
from replay.training import drift, retrain
from twin.scenario import prepare

SCHEDULE = "schedule.sqlite"
JOB = "retrain"
SCHEDULED = "replay.schedule:scheduled"
WATCHED = "replay.schedule:watched"
"""Addresses of the tasks as `schedule.sqlite` stores them: fixed; `replay/schedule.py` lies there."""
SEAL, UNSEALED = b"twin.job/1", b"\x80"
"""First bytes of a stored job: with a digest, and of older versions."""
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
    """Returns a paused scheduler with one job, stored in `SCHEDULE` of the store.

    Missed times coalesce into one run, however late; `max_instances` 1 and the lock of `retrain.retrain` keep
    two from running at a time. A restart with the same trigger and scenario keeps the due time.

    Raises:
        DamageError: the stored schedule is not what was written.
    """
    make_directory(store)
    if (problem := fault(store)) is not None:
        raise DamageError(problem)
    jobs = SQLAlchemyJobStore(url=f"sqlite:///{store.resolve() / SCHEDULE}")
    jobs.jobs_t.c.job_state.type = SealedState()
    made = BackgroundScheduler(
        jobstores={"default": jobs},
        executors={"default": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone="UTC",
        daemon=True,
    )
    made.start(paused=True)
    arguments = [str(store.resolve()), scenario, dataset]
    try:
        stored, due = made.get_jobs(), jobs.get_next_run_time()
    except (SQLAlchemyError, DamageError) as error:
        made.shutdown()
        raise DamageError(_damaged(store, str(error))) from error
    if [(job.id, job.next_run_time) for job in stored] not in ([], [(JOB, due)]):
        made.shutdown()
        raise DamageError(_damaged(store, "the job is not the one that was stored"))
    known = made.get_job(JOB)
    same = known is not None and (str(known.trigger), known.func_ref) == (str(trigger), task)
    if known is None or not same or list(known.args) != arguments or task == WATCHED:
        first = {"next_run_time": datetime.now(UTC)} if task == WATCHED else {}  # drift is checked at once
        made.add_job(task, trigger, arguments, id=JOB, name="retraining", replace_existing=True, **first)
    return made


class SealedState(TypeDecorator[bytes]):
    """A stored job after its digest; jobs of older versions have none."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: object) -> bytes | None:
        """Returns the job as it is stored."""
        return None if value is None else SEAL + hashlib.sha256(value).digest() + value

    def process_result_value(self, value: bytes | None, dialect: object) -> bytes | None:
        """Returns the job as it was; raises DamageError if a byte of it was changed."""
        if value is None or value.startswith(UNSEALED):
            return value
        digest, state = value[len(SEAL) :][:32], value[len(SEAL) + 32 :]
        if not value.startswith(SEAL) or hashlib.sha256(state).digest() != digest:
            raise DamageError("the stored job was changed")
        return state


def fault(store: Path) -> str | None:
    """Returns how the file of the schedule is damaged, as SQLite sees it; None: it is not, or is not there."""
    path = store / SCHEDULE
    try:
        if integrity.read_optional(path) is None:
            return None
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except (sqlite3.Error, DamageError) as error:
        return _damaged(store, str(error))
    return None if found == ("ok",) else _damaged(store, str(found[0]))


def _damaged(store: Path, problem: str) -> str:
    return f"{store / SCHEDULE}: damaged ({problem}); delete it: the schedule begins anew"


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
