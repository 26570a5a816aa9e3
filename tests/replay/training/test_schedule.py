"""The schedule under a clock that does what clocks do: what is due runs once, never two at a time."""

import json
import pickle
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from ingest.core import integrity
from ingest.core.errors import DamageError, LockedError, UsageError
from replay.training import schedule
from tests.support.toys import CALLED, RUNNING

START = datetime(2025, 3, 30, 0, 0, tzinfo=UTC)  # Europe's clocks go forward an hour later
HOUR = timedelta(hours=1)
TASK = "tests.support.toys:task"


class Clock(datetime):
    """Stands for `datetime` inside the scheduler: `now` is what the test says."""

    time = START
    fromtimestamp = staticmethod(datetime.fromtimestamp)  # type: ignore[assignment]

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return Clock.time.astimezone(tz)


class Service:
    """A scheduler of a store, woken whenever the clock has moved."""

    def __init__(self, store: Path, trigger: BaseTrigger) -> None:
        self.store, self.trigger = store, trigger
        self.made = self.start()

    def start(self) -> BackgroundScheduler:
        made = schedule.scheduler(self.store, self.trigger, scenario="tri-7b", task=TASK)
        made.resume()
        return made

    def at(self, moment: datetime) -> int:
        """The clock shows `moment`; how often the task has been called by then."""
        Clock.time = moment
        self.made.wakeup()
        waiting(lambda: self.due > Clock.time)
        return len(CALLED)

    @property
    def due(self) -> datetime:
        return datetime.fromtimestamp(self.made.get_job(schedule.JOB).next_run_time.timestamp(), UTC)

    def restart(self, moment: datetime) -> int:
        """The process is gone without a farewell; another one starts at `moment`."""
        self.made.pause()
        Clock.time = moment
        self.made = self.start()
        return self.at(moment)

    def stop(self) -> None:
        RUNNING.set()
        self.made.shutdown()


def waiting(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    assert condition()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in ("schedulers.base", "executors.base", "triggers.interval"):
        monkeypatch.setattr(f"apscheduler.{module}.datetime", Clock)
    Clock.time = START
    CALLED.clear()
    RUNNING.set()
    yield
    RUNNING.set()


def done() -> int:
    """How often the task has been called, once what was submitted has begun."""
    time.sleep(0.03)
    return len(CALLED)


@pytest.mark.parametrize("text", ["90s", "30m", "1h", "6h", "1d", "3d"])
def test_nothing_happens_before_it_is_due_and_once_when_it_is(tmp_path: Path, text: str) -> None:
    service = Service(tmp_path, schedule.every(text))
    length = service.trigger.interval  # type: ignore[attr-defined]
    assert service.due == START + length
    service.made.wakeup()
    assert done() == 0
    service.at(START + length)
    waiting(lambda: len(CALLED) == 1)
    service.at(START + 1.5 * length)
    assert done() == 1
    service.at(START + 2 * length)
    waiting(lambda: len(CALLED) == 2)
    service.stop()


@pytest.mark.parametrize("missed", [1, 2, 8, 100])
def test_missed_times_are_one_run(tmp_path: Path, missed: int) -> None:
    service = Service(tmp_path, schedule.every("1h"))
    service.at(START + missed * HOUR + HOUR / 2)
    waiting(lambda: len(CALLED) == 1)
    assert done() == 1 and service.due == START + (missed + 1) * HOUR
    service.stop()


@pytest.mark.parametrize("late", [timedelta(0), timedelta(minutes=5), timedelta(days=3)])
def test_a_restart_while_due_runs_once(tmp_path: Path, late: timedelta) -> None:
    service = Service(tmp_path, schedule.every("6h"))
    service.restart(START + 6 * HOUR + late)
    waiting(lambda: len(CALLED) == 1)
    assert done() == 1
    service.restart(Clock.time + HOUR / 60)
    assert done() == 1
    service.stop()


@pytest.mark.parametrize("restarts", [1, 3])
def test_restarts_before_it_is_due_do_not_put_it_off(tmp_path: Path, restarts: int) -> None:
    service = Service(tmp_path, schedule.every("6h"))
    for n in range(restarts):
        service.restart(START + (n + 1) * HOUR)
    assert done() == 0 and service.due == START + 6 * HOUR
    service.at(START + 6 * HOUR)
    waiting(lambda: len(CALLED) == 1)
    service.stop()


@pytest.mark.parametrize("before_it_is_due", [True, False])
def test_a_clock_that_jumps_forward_an_hour_runs_once(tmp_path: Path, before_it_is_due: bool) -> None:
    service = Service(tmp_path, schedule.every("2h"))
    service.at(START + (HOUR / 2 if before_it_is_due else 1.5 * HOUR))
    service.at(Clock.time + HOUR)
    assert done() == (0 if before_it_is_due else 1)
    service.at(START + 2.6 * HOUR)
    waiting(lambda: len(CALLED) == 1)
    assert done() == 1
    service.stop()


@pytest.mark.parametrize("minutes", [1, 59])
def test_a_clock_that_jumps_back_an_hour_runs_nothing_twice(tmp_path: Path, minutes: int) -> None:
    service = Service(tmp_path, schedule.every("2h"))
    service.at(START + 2 * HOUR + timedelta(minutes=minutes))
    waiting(lambda: len(CALLED) == 1)
    service.at(Clock.time - HOUR)
    service.at(START + 2 * HOUR + timedelta(minutes=minutes))
    assert done() == 1 and service.due == START + 4 * HOUR
    service.stop()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])
@pytest.mark.parametrize("day", [datetime(2025, 3, 29, tzinfo=UTC), datetime(2025, 10, 25, tzinfo=UTC)])
def test_summer_time_neither_skips_nor_repeats(
    tmp_path: Path, zone: str, day: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        Clock.time = day
        service = Service(tmp_path, schedule.cron("30 2 * * *"))
        for hour in range(72):
            service.at(day + hour * HOUR + timedelta(minutes=31))
        waiting(lambda: len(CALLED) == 3)
        assert done() == 3
        service.stop()
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


@pytest.mark.parametrize("times", [1, 5])
def test_a_slow_one_is_not_joined_by_the_next(tmp_path: Path, times: int) -> None:
    RUNNING.clear()
    service = Service(tmp_path, schedule.every("1h"))
    for n in range(times + 1):
        service.at(START + (n + 1) * HOUR)
    assert done() == 1
    RUNNING.set()
    waiting(lambda: not service.made._executors["default"]._instances.get(schedule.JOB))
    service.at(START + (times + 2) * HOUR)
    waiting(lambda: len(CALLED) == 2)
    service.stop()


def test_a_watch_for_drift_replaces_a_schedule_and_back(tmp_path: Path) -> None:
    Service(tmp_path, schedule.every(schedule.CHECK_INTERVAL)).stop()
    made = schedule.scheduler(
        tmp_path, schedule.every(schedule.CHECK_INTERVAL), scenario="tri-7b", task=schedule.WATCHED
    )
    (job,) = made.get_jobs()
    assert job.func_ref == schedule.WATCHED
    made.shutdown()


def test_a_stored_schedule_keeps_its_due_time_and_holds_no_code(tmp_path: Path) -> None:
    trigger = schedule.every("6h")
    old = schedule.scheduler(tmp_path, trigger, scenario="tri-7b")
    due = old.get_job(schedule.JOB).next_run_time
    old.shutdown()
    assert {path.name for path in tmp_path.iterdir()} == {schedule.SCHEDULE}
    fields = json.loads((tmp_path / schedule.SCHEDULE).read_bytes())
    assert fields["trigger"] == "interval[6:00:00]" and fields["scenario"] == "tri-7b"
    Clock.time = START + HOUR
    made = schedule.scheduler(tmp_path, schedule.every("6h"), scenario="tri-7b")
    assert made.get_job(schedule.JOB).next_run_time == due
    made.shutdown()
    other = schedule.scheduler(tmp_path, schedule.every("5h"), scenario="tri-7b")
    assert other.get_job(schedule.JOB).next_run_time == START + 6 * HOUR, "another trigger begins anew"
    other.shutdown()


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickled_schedule_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    state = pickle.dumps(Evil(tmp_path / "hit"))
    with closing(sqlite3.connect(tmp_path / schedule.OLDER)) as connection:
        connection.execute("CREATE TABLE apscheduler_jobs (id TEXT, next_run_time REAL, job_state BLOB)")
        connection.execute("INSERT INTO apscheduler_jobs VALUES (?, 0, ?)", (schedule.JOB, state))
        connection.commit()
    with pytest.raises(DamageError, match=r"Delete it and start `twin retrain`"):
        schedule.scheduler(tmp_path, schedule.every("6h"), scenario="tri-7b")
    assert not (tmp_path / "hit").exists()
    assert "older version" in str(schedule.fault(tmp_path))


def test_a_stored_task_or_name_is_never_resolved(tmp_path: Path) -> None:
    lie = {"trigger": "interval[6:00:00]", "task": "os:abort", "scenario": "tri-7b", "dataset": None}
    due = (START + HOUR).isoformat()
    data = integrity.sealed({"schema": schedule.SCHEMA, "due": due, **lie})
    (tmp_path / schedule.SCHEDULE).write_bytes(data)
    made = schedule.scheduler(tmp_path, schedule.every("6h"), scenario="tri-7b")
    job = made.get_job(schedule.JOB)
    assert job.func is schedule.scheduled and job.next_run_time == START + 6 * HOUR
    made.shutdown()


@pytest.mark.parametrize("held", [False, True])
def test_what_the_schedule_calls_retrains_unless_somebody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    causes = []

    def retrain(store: Path, scenario: Any, *, dataset: Any, cause: Any) -> None:
        causes.append((scenario.name, dataset, cause))
        if held:
            raise LockedError("somebody retrains")

    monkeypatch.setattr(schedule.retrain, "retrain", retrain)
    schedule.scheduled(str(tmp_path), "tri-7b", "mine")
    assert causes == [("tri-7b", "mine", {"cause": "schedule"})]


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("0", "sun"),
        ("7", "sun"),
        ("1-5", "mon tue wed thu fri"),
        ("6,0", "sun sat"),
        ("5-7", "sun fri sat"),
        ("*/3", "sun wed sat"),
        ("mon,wed-thu", "mon wed thu"),
        ("*", "sun mon tue wed thu fri sat"),
    ],
)
def test_weekdays_are_those_of_crontab(field: str, days: str) -> None:
    trigger, now, found = schedule.cron(f"0 3 * * {field}"), datetime(2026, 11, 15, tzinfo=UTC), set()
    while now < datetime(2026, 11, 22, tzinfo=UTC):  # a week from a Sunday on
        due = trigger.get_next_fire_time(None, now)
        found |= {due.strftime("%a").lower()} if due < datetime(2026, 11, 22, tzinfo=UTC) else set()
        now = due + timedelta(minutes=1)
    assert found == set(days.split())


@pytest.mark.parametrize("field", ["8", "5-1", "1-9"])
def test_a_weekday_that_crontab_lacks_is_an_error(field: str) -> None:
    with pytest.raises(UsageError, match="no crontab line"):
        schedule.cron(f"0 3 * * {field}")


def test_a_flipped_bit_in_the_stored_schedule_changes_nothing_or_is_named(tmp_path: Path) -> None:
    service = Service(tmp_path, schedule.every("6h"))
    path, due = tmp_path / schedule.SCHEDULE, service.due
    service.stop()
    Clock.time = START + 2 * HOUR
    whole, chance = path.read_bytes(), random.Random(3)
    named = 0
    places = [chance.randrange(8 * len(whole)) for _ in range(80)]
    for place in places:
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            again = Service(tmp_path, schedule.every("6h"))
        except DamageError as error:
            assert str(path) in str(error) and "delete it" in str(error)
            named += 1
            continue
        assert again.due == due
        again.stop()
    assert named > 40
    path.unlink()
    anew = Service(tmp_path, schedule.every("6h"))
    assert anew.due == START + 8 * HOUR
    anew.stop()
