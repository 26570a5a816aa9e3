"""Who follows a schedule of retrainings is told what comes, what came and what failed, and can end it."""

import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from threading import Timer

import pytest

from ingest.core.durable import Lock
from ingest.core.errors import LockedError, NotFoundError
from replay.training import schedule, scheduled_retraining
from replay.training.scheduled_retraining import follow
from tests.support.toys import CALLED, FOUND, RUNNING, without_lake

SECOND = schedule.every("1s")
LONG = schedule.every("6h")


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    without_lake(monkeypatch)
    CALLED.clear()
    RUNNING.set()
    handler = signal.getsignal(signal.SIGINT)
    yield
    RUNNING.set()
    signal.signal(signal.SIGINT, handler)


class Earlier(datetime):
    """Stands for `datetime` inside the scheduler."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) - timedelta(days=2)


def press_when(monkeypatch: pytest.MonkeyPatch, ready: Callable[[], object]) -> None:
    """Somebody presses Ctrl-C as soon as `ready` says so."""

    class Pressed:
        def wait(self) -> None:
            end = time.monotonic() + 30
            while not ready() and time.monotonic() < end:
                time.sleep(0.002)
            raise KeyboardInterrupt

    monkeypatch.setattr(scheduled_retraining, "Event", Pressed)


def test_the_next_time_is_reported_and_kept_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    press_when(monkeypatch, lambda: True)
    for _ in range(2):  # the second follower keeps the time of the first
        with pytest.raises(KeyboardInterrupt):
            follow(tmp_path, LONG, scenario="tri-7b", task="tests.support.toys:task", tell=reported.append)
    assert len(reported) == 2 and reported[0] == reported[1]
    assert reported[0].startswith("next: 20") and reported[0].endswith("UTC; Ctrl-C ends it") and CALLED == []


def test_what_was_missed_is_made_up_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as two_days_ago:
        for module in ("schedulers.base", "triggers.interval"):
            two_days_ago.setattr(f"apscheduler.{module}.datetime", Earlier)
        schedule.scheduler(
            tmp_path, schedule.every("6h"), scenario="tri-7b", task="tests.support.toys:task"
        ).shutdown()
    reported: list[str] = []
    press_when(monkeypatch, lambda: len(reported) > 2)
    with pytest.raises(KeyboardInterrupt):
        follow(tmp_path, LONG, scenario="tri-7b", task="tests.support.toys:task", tell=reported.append)
    assert (
        reported[0].startswith("missed, so now: ") and reported[-1].startswith("next: ") and len(CALLED) == 1
    )


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("refused", "failed: no lake: run `twin ingest`"),
        ("broken", "ZeroDivisionError"),
        ("task", "nothing to do: no new drift, or another retraining is under way"),
    ],
)
def test_results_are_reported_and_the_schedule_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, task: str, words: str
) -> None:
    reported: list[str] = []
    press_when(monkeypatch, lambda: sum(words in text for text in reported) > 1)
    with pytest.raises(KeyboardInterrupt):
        follow(tmp_path, SECOND, scenario="tri-7b", task=f"tests.support.toys:{task}", tell=reported.append)
    assert ("Traceback" in "".join(reported)) == (task == "broken")  # a mistake of ours has to be found


def test_the_verdict_of_a_retraining_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    press_when(monkeypatch, lambda: shown)
    with pytest.raises(KeyboardInterrupt):
        follow(tmp_path, SECOND, scenario="tri-7b", task="tests.support.toys:retrained", show=shown.append)
    assert shown[0] == FOUND


def test_one_that_takes_longer_than_the_interval_is_let_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    RUNNING.clear()

    def left_out() -> bool:
        if not any("left out" in text for text in reported):
            return False
        Timer(0.05, RUNNING.set).start()  # it ends after Ctrl-C
        return True

    press_when(monkeypatch, left_out)
    with pytest.raises(KeyboardInterrupt):
        follow(tmp_path, SECOND, scenario="tri-7b", task="tests.support.toys:task", tell=reported.append)
    assert len(CALLED) == 1 and RUNNING.is_set()
    assert "ends when what is under way is done; Ctrl-C again ends it now" in reported
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # the second Ctrl-C


def test_a_watch_for_drift_looks_at_once(tmp_path: Path) -> None:
    made = schedule.scheduler(tmp_path, LONG, scenario="tri-7b", task=schedule.WATCHED)
    assert made.get_job(schedule.JOB).next_run_time < datetime.now(UTC)
    made.shutdown()


def test_mistakes_are_reported_before_the_first_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        follow(tmp_path, LONG, scenario="nowhere")
    monkeypatch.undo()
    with pytest.raises(NotFoundError, match="twin ingest"):
        follow(tmp_path, LONG, scenario="tri-7b")


def test_a_schedule_is_followed_by_one_process(tmp_path: Path) -> None:
    with Lock(tmp_path / scheduled_retraining.LOCK), pytest.raises(LockedError, match="followed already"):
        follow(tmp_path, LONG, scenario="tri-7b")
