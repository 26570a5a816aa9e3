"""A wrong clock of the service's machine is noticed, and the run goes on by itself when it is right again."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from replay.audit.audit import audit
from replay.log.run_log import RunReader
from replay.store import run_index
from service.api.app import ApiSettings, make_app
from service.session import clock_watch
from service.session.clock import LiveClock
from service.session.clock_watch import ClockWatch
from service.session.reported_time import ReportedTime
from service.session.session import Session
from tests.support.serving import links, observe, toy_session

RIGHT_NS = time.time_ns
S, HOUR, DAY = 10**9, 3600 * 10**9, 86_400 * 10**9
Start = Callable[[], Session]


class WallClock:
    """The clock of this machine, which a test sets; `RIGHT_NS` stays the true time."""

    ahead_ns = 0

    def __call__(self) -> int:
        return RIGHT_NS() + self.ahead_ns


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock()
    monkeypatch.setattr("service.session.clock.time.time_ns", clock)
    return clock


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wall: WallClock) -> Iterator[Start]:
    begun: list[Session] = []

    def one(**settings: Any) -> Session:
        if begun:
            begun[-1].close()
        begun.append(toy_session(tmp_path, monkeypatch, **settings))
        return begun[-1]

    yield one
    begun[-1].close()
    for run in run_index.all_ids(tmp_path):
        assert audit(tmp_path, run).ok, run


def push(session: Session, at_ns: int | None = None) -> int:
    """Sends a sample of every link at the true time; returns how many are accepted."""
    at_ns = RIGHT_NS() if at_ns is None else at_ns
    accepted: int = observe(session, f"k{at_ns}", links(at_ns=at_ns))["accepted"]
    return accepted


def ready(session: Session) -> tuple[int, str]:
    """Status and text of `/ready`, which says by itself what it is."""
    answer = TestClient(make_app(session, ApiSettings()), base_url="http://127.0.0.1").get("/ready")
    return answer.status_code, answer.text


def until(condition: Callable[[], Any], seconds: float = 15.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "in vain"
        time.sleep(0.05)


def types(session: Session) -> list[str]:
    store = session.store
    runs = [RunReader(run_index.folder(store, run)).events() for run in run_index.all_ids(store)]
    return [event.type for events in runs for event in events]


@pytest.mark.parametrize("wrong_ns", [30 * DAY, -30 * DAY, 3650 * DAY])
def test_one_start_with_a_wrong_clock_refuses_nothing(start: Start, wall: WallClock, wrong_ns: int) -> None:
    assert push(start()) == 6
    wall.ahead_ns = wrong_ns
    session = start()
    until(lambda: ready(session)[0] == 503)
    assert "the clock of this machine is " in ready(session)[1]
    assert push(session) == 6 and push(session) == 6  # the clock is wrong, the clients' clocks are right
    assert session.decide().result(20)["made"]
    assert abs(session.now_epoch_ns() - RIGHT_NS()) < 60 * S
    session.renew("test").result(20)
    assert push(session) == 6
    assert ready(session)[0] == 503
    wall.ahead_ns = 0
    until(lambda: ready(session)[0] == 200)
    assert push(session) == 6
    assert [kind for kind in types(session) if kind.startswith("clock")] == ["clock_jumped", "clock_settled"]
    again = start()
    assert ready(again)[0] == 200 and push(again) == 6


@pytest.mark.parametrize("wrong_ns", [30 * DAY, 20 * HOUR, -30 * DAY, -2 * HOUR])
@pytest.mark.parametrize("by_clients", [True, False])
def test_a_store_that_began_with_a_wrong_clock_goes_on_when_it_is_right(
    start: Start, wall: WallClock, wrong_ns: int, by_clients: bool
) -> None:
    wall.ahead_ns = wrong_ns
    session = start()
    job = {"kind": "submit", "id": "waits", "gpus": 1, "estimate_s": 60}
    session.change_jobs([job]).result(20)
    if by_clients:  # of the same machine, with the same clock
        assert push(session, wall()) == 6
    session = start()
    session.renew("test").result(20)
    wall.ahead_ns = 0
    session = start()
    assert push(session) == 6  # the first batch is not lost
    until(lambda: ready(session)[0] == 200)
    assert abs(session.now_epoch_ns() - RIGHT_NS()) < S
    assert push(session) == 6 and session.decide().result(20)["made"]
    now = RIGHT_NS()
    assert session.jobs.open["waits"].submitted_ns <= now
    changes = [{"kind": "start", "id": "waits", "gpus": {"d0": 1}}, {"kind": "end", "id": "waits"}]
    assert session.change_jobs(changes).result(20)["accepted"] == 2
    again = start()
    assert again.run_id == session.run_id and ready(again)[0] == 200 and push(again) == 6


@pytest.mark.parametrize("wrong_ns", [30 * DAY, -30 * DAY, 2 * HOUR, -2 * HOUR])
def test_a_clock_that_is_set_while_the_service_runs(start: Start, wall: WallClock, wrong_ns: int) -> None:
    session = start()
    push(session)
    wall.ahead_ns = wrong_ns
    until(lambda: ready(session)[0] == 503)
    assert push(session) == 6 and abs(session.now_epoch_ns() - RIGHT_NS()) < S
    wall.ahead_ns = 0
    until(lambda: ready(session)[0] == 200)
    assert push(session) == 6
    assert [kind for kind in types(session) if kind.startswith("clock")] == ["clock_jumped", "clock_settled"]


@pytest.mark.parametrize("wrong_ns", [30 * DAY, -30 * DAY, 2 * HOUR, -2 * HOUR])
def test_a_wrong_clock_that_is_set_right_while_the_service_runs(
    start: Start, wall: WallClock, wrong_ns: int
) -> None:
    wall.ahead_ns = wrong_ns
    session = start()
    push(session, wall())
    wall.ahead_ns = 0
    until(lambda: ready(session)[0] == 503)
    assert push(session) == 6  # a client agrees: the run takes this time
    until(lambda: ready(session)[0] == 200)
    assert abs(session.now_epoch_ns() - RIGHT_NS()) < S and push(session) == 6


@pytest.mark.parametrize("wrong_ns", [30 * DAY, -30 * DAY, -2 * HOUR])
def test_clients_that_all_contradict_turn_ready(start: Start, wall: WallClock, wrong_ns: int) -> None:
    wall.ahead_ns = wrong_ns
    session = start()
    assert ready(session)[0] == 200  # nothing is known yet
    for _ in range(4):
        assert push(session) == 0
    assert ready(session)[0] == 503 and "client test is " in ready(session)[1]
    wall.ahead_ns = 0
    push(session)
    until(lambda: ready(session)[0] == 200)
    assert push(session) == 6


def test_one_client_with_a_wrong_clock_is_its_own_affair(start: Start) -> None:
    session = start()
    push(session)
    for k in range(5):
        batch = session.reader.batch(f"w{k}", "wrong", links(at_ns=RIGHT_NS() + 30 * DAY))
        assert session.observe(batch).result(20)["accepted"] == 0
        assert ready(session)[0] == 200
    assert push(session) == 6


def test_odd_times_are_no_clock(start: Start) -> None:
    session = start()
    for k, at_ns in enumerate([0, 1, 2**63 - 1, 5, 10**18, 0, 0, 0, 2**63 - 1, 2**63 - 1, 2**63 - 1]):
        observe(session, f"o{k}", links(at_ns=at_ns))
    assert ready(session)[0] in (200, 503)
    assert push(session) == 6
    until(lambda: ready(session)[0] == 200)


def test_a_service_that_was_down_for_long_goes_on(start: Start, wall: WallClock) -> None:
    push(start())
    wall.ahead_ns = 3 * HOUR
    session = start()
    assert ready(session)[0] == 200 and push(session, wall()) == 6  # hours need no word
    wall.ahead_ns = 10 * DAY
    session = start()
    assert push(session, wall()) == 6  # days need a client
    until(lambda: ready(session)[0] == 200)


def test_nobody_has_to_be_asked_where_nobody_reports(
    start: Start, wall: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_watch, "WAIT_ALONE_S", 0.3)
    start()
    wall.ahead_ns = 10 * DAY
    session = start()
    until(lambda: ready(session)[0] == 200)
    assert push(session, wall()) == 6


def test_an_order_that_waits_is_withdrawn_and_given_anew(start: Start, wall: WallClock) -> None:
    session = start()
    push(session)
    session.change_mode("active", "test").result(20)
    assert session.published.only.order is not None
    wall.ahead_ns = -30 * DAY
    until(lambda: ready(session)[0] == 503)
    run = session.run_id
    assert push(session, wall()) == 6 and ready(session)[0] == 200 and session.run_id != run
    until(lambda: session.published.only.order is not None and session.published.only.order["number"] > 0)


class Clocks:
    """A wall clock and a steady clock that a test sets."""

    wall_ns = 1_000 * DAY
    steady_ns = 7 * HOUR

    def pass_s(self, seconds: float) -> None:
        self.wall_ns += round(seconds * S)
        self.steady_ns += round(seconds * S)


def watch(clocks: Clocks, newest_ns: int | None = None) -> tuple[LiveClock, ClockWatch]:
    clock = LiveClock(clocks.wall_ns, wall=lambda: clocks.wall_ns, steady=lambda: clocks.steady_ns)
    watched = ClockWatch(lambda: newest_ns)
    assert not list(watched.facts(clock, None))
    return clock, watched


def test_time_goes_on_by_the_steady_clock() -> None:
    clocks = Clocks()
    clock, watched = watch(clocks)
    clocks.pass_s(10)
    assert clock.now_ns() == 10 * S
    clocks.wall_ns += 5 * S  # a little is followed, forward at once and backward by standing still
    assert not list(watched.facts(clock, None)) and clock.now_ns() == 15 * S
    clocks.wall_ns -= 5 * S
    assert not list(watched.facts(clock, None)) and clock.now_ns() == 15 * S
    clocks.pass_s(4)
    assert clock.now_ns() == 15 * S
    clocks.pass_s(4)
    assert clock.now_ns() == 18 * S and not watched.problem


def test_a_client_that_contradicts_keeps_the_time_of_the_run() -> None:
    clocks = Clocks()
    clock, watched = watch(clocks, newest_ns=clocks.wall_ns)
    clocks.wall_ns += 30 * DAY
    assert [fact.type for fact in watched.facts(clock, None)] == ["clock_jumped"]
    for k in range(100):
        clocks.pass_s(60)
        report = ReportedTime("", str(k), clocks.wall_ns - 30 * DAY)
        assert not list(watched.facts(clock, report)) and watched.problem
    clocks.pass_s(clock_watch.WAIT_S - 1)
    assert not list(watched.facts(clock, None))
    clocks.pass_s(2)
    assert [fact.type for fact in watched.facts(clock, None)] == ["clock_settled", "renewal_requested"]


def test_a_clock_that_is_set_again_and_again_is_one_event_each() -> None:
    clocks = Clocks()
    clock, watched = watch(clocks)
    kinds = []
    for ahead_ns in (DAY, 2 * DAY, -DAY, -3 * DAY):
        clocks.wall_ns += ahead_ns
        kinds += [fact.type for _ in range(3) for fact in watched.facts(clock, None)]
    assert kinds == ["clock_jumped"] * 2 + ["clock_jumped"] * 2
    assert clock.now_ns() == 0
