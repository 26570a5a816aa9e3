"""Follows a schedule of retrainings in the foreground and reports due times, results and failures."""

import logging
import signal
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Lock
from typing import Any

from apscheduler import events
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from ingest.core import durable
from ingest.core.errors import LockedError, TwinError
from replay.training import schedule
from replay.training.retrain import RetrainResult
from twin.scenario import prepare

LOCK = "schedule.lock"
AT_ONCE = timedelta(seconds=2)
REPORTED = (
    events.EVENT_JOB_SUBMITTED
    | events.EVENT_JOB_MAX_INSTANCES
    | events.EVENT_JOB_EXECUTED
    | events.EVENT_JOB_ERROR
)


class ScheduleReporter:
    """Reports the events of the one job of a schedule; `show` is called with the results of retrainings."""

    def __init__(
        self,
        scheduler: BackgroundScheduler,
        tell: Callable[[str], object],
        show: Callable[[RetrainResult], object],
    ) -> None:
        self._scheduler, self._tell, self._show = scheduler, tell, show
        self._lock = Lock()
        self.under_way = 0  # -1: its end was reported before its start
        self.due = self._next()

    def __call__(self, event: Any) -> None:
        """Handles an event of the scheduler, from its own thread or the one that retrains."""
        with self._lock:
            if event.code == events.EVENT_JOB_SUBMITTED:
                self._began()
            elif event.code == events.EVENT_JOB_MAX_INSTANCES:
                self.due = self._next()
                self._tell("the one before is still under way: this one is left out")
            else:
                self._ended(event)

    def coming(self) -> str:
        """Returns when the next retraining is due, in words."""
        missed = self.due < datetime.now(UTC) - AT_ONCE
        return ("missed, so now: " if missed else "next: ") + _second(self.due)

    def _next(self) -> datetime:
        job = self._scheduler.get_job(schedule.JOB)
        return job.next_run_time if job else self.due  # a scheduler that shuts down has no jobs

    def _began(self) -> None:
        self.due = self._next()
        self.under_way += 1
        self._tell(f"{_second(datetime.now(UTC))}: begins" if self.under_way else self.coming())

    def _ended(self, event: Any) -> None:
        # No call of the scheduler here: at shutdown it waits for this thread.
        if event.code == events.EVENT_JOB_ERROR:
            self._tell(_failure(event.exception))
        elif event.retval is None:
            self._tell("nothing to do: no new drift, or another retraining is under way")
        else:
            self._show(event.retval)
        self.under_way -= 1
        if not self.under_way:
            self._tell(self.coming())


def follow(
    store: Path,
    trigger: BaseTrigger,
    *,
    scenario: str,
    dataset: str | None = None,
    task: str = schedule.SCHEDULED,
    tell: Callable[[str], object] = lambda text: None,
    show: Callable[[RetrainResult], object] = lambda result: None,
) -> None:
    """Retrains at the times of `trigger` until interrupted; a retraining under way is finished first.

    `scenario` is a name or the path of a YAML file. A second interrupt ends the process at once: the next
    retraining completes the one that was left.

    Raises:
        NotFoundError, UsageError: the scenario or its data set cannot be loaded.
        LockedError: another process follows a schedule of this store.
    """
    prepare.prepare(prepare.load(scenario), store, dataset=dataset)  # fails now instead of at the due time
    with _schedule_lock(store):
        durable.DISK.foretell((store / schedule.SCHEDULE, "times of retrainings, until Ctrl-C"))
        made = schedule.scheduler(store, trigger, scenario=scenario, dataset=dataset, task=task)
        logging.getLogger("apscheduler").addHandler(logging.NullHandler())  # the reporter shows failures
        reporter = ScheduleReporter(made, tell, show)
        made.add_listener(reporter, REPORTED)
        tell(f"{reporter.coming()}; Ctrl-C ends it")
        made.resume()
        try:
            Event().wait()
        finally:
            if reporter.under_way > 0:
                tell("ends when what is under way is done; Ctrl-C again ends it now")
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            made.shutdown()


def _schedule_lock(store: Path) -> durable.Lock:
    try:
        return durable.Lock(store / LOCK)
    except LockedError as error:
        raise LockedError(f"a schedule of this store is followed already: {error}") from error


def _second(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _failure(error: BaseException) -> str:
    """Returns a user's error in one line, any other with its traceback."""
    if isinstance(error, TwinError):
        return f"failed: {error}"
    return "failed: " + "".join(traceback.format_exception(error)).rstrip()
