"""What is asked of a live run, one after the other, and the group commit before anything is answered."""

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

from ingest.core.errors import TwinError
from ingest.core.units import NS_PER_S
from service.session.clock import LiveClock
from service.session.reported_time import ReportedTime
from twin.core.facts import Fact

WAITING = 1_000
"""Requests that may wait; more are turned away."""
GROUP = 64
"""Most requests that one commit makes durable."""
LINGER_NS = NS_PER_S // 50
"""Longest time that a request waits for others to share its commit."""


class OverloadedError(TwinError):
    """More is asked than can be done; the same may be asked again later."""


class QuarantinedError(TwinError):
    """The message broke what it was to change: it was set aside, and nothing of it is in force."""


class StoppedError(TwinError):
    """The service is shutting down, or its log cannot be written now."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """`fact` makes what the world is to be given, or None; `answer` is called when that is durable.

    `reported` is what the request says about the time of its client.
    """

    fact: Callable[[int], Fact | None]
    answer: Callable[[], Any]
    reported: ReportedTime | None = None
    done: "Future[Any]" = field(default_factory=Future)


class Closed(Exception):  # noqa: N818 - a signal, not an error
    """The service ends; what was answered is durable."""


class Inbox:
    """Facts from outside, as a world takes them: those of requests, and a request of the clock each period.

    When nothing waits, or a group is complete, `commit` makes everything so far durable; then the requests of
    the group are answered. Answers and facts are made in the thread that iterates.
    """

    def __init__(self, period_ns: int) -> None:
        self.period_ns = period_ns
        self._queue: queue.Queue[Request | None] = queue.Queue(WAITING)
        self._group: list[Request] = []
        self._next: Request | None = None  # taken from the queue, not yet part of the group
        self._worked_on: Request | None = None
        self._closing, self._lock = Event(), Lock()

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return self._queue.qsize()

    def put(self, request: Request) -> "Future[Any]":
        """Adds a request and returns its answer to be.

        Raises:
            StoppedError: the service ends. OverloadedError: too many wait.
        """
        with self._lock:  # nothing comes in behind what `end` turns away
            if self._closing.is_set():
                raise StoppedError("the service is shutting down")
            try:
                self._queue.put_nowait(request)
            except queue.Full:
                raise OverloadedError(f"{WAITING} requests wait already; try again later") from None
        return request.done

    def close(self) -> None:
        """Ends the iteration after what waits already."""
        with self._lock:
            self._closing.set()
        self._queue.put(None)

    def closed(self, wait_s: float = 0.0) -> bool:
        """True after `close`; waits for it at most `wait_s`."""
        return self._closing.wait(wait_s)

    def facts(
        self, clock: LiveClock, last_period_ns: int, commit: Callable[[], None],
        watch: Callable[[ReportedTime | None], Iterator[Fact]] = lambda _: iter(()),
    ) -> Iterator[Fact]:  # fmt: skip
        """Yields facts in the order of time; `last_period_ns` is the time of the last periodic one.

        `watch` yields what is to be logged of the clock before a request that reports a time is taken. If
        that ends the run, the request is the first one of the next run.

        Raises:
            Closed: after `close`, when all is durable and answered.
        """
        opened_ns = 0
        while True:
            yield from watch(None)
            now_ns = clock.now_ns()
            if now_ns - last_period_ns >= self.period_ns:
                last_period_ns = now_ns
                yield Fact(now_ns, "decision_requested", {"by": "period", "client": ""})
            if self._group and (len(self._group) >= GROUP or time.monotonic_ns() - opened_ns > LINGER_NS):
                self._settle(commit)
            try:
                request = self._next or self._queue.get_nowait()
            except queue.Empty:
                self._settle(commit)
                try:
                    left_ns = last_period_ns + self.period_ns - clock.now_ns()
                    request = self._queue.get(timeout=max(0.0, min(left_ns / NS_PER_S, 1.0)))
                except queue.Empty:
                    continue
            if request is None:
                self._settle(commit)
                raise Closed
            self._next = request
            if request.reported is not None:
                yield from watch(request.reported)
            opened_ns = opened_ns if self._group else time.monotonic_ns()
            self._group.append(request)
            self._next = None
            try:
                fact = request.fact(clock.now_ns())
            except Exception as error:  # noqa: BLE001 - of the one request: nothing has changed yet
                self._group.remove(request)
                if request.done.set_running_or_notify_cancel():
                    request.done.set_exception(error)
                continue
            if fact is not None:
                self._worked_on = request
                yield fact
                self._worked_on = None

    def turn_away(self, error: TwinError) -> None:
        """Answers the request whose fact is worked on, if it is one of a request, with an error."""
        request, self._worked_on = self._worked_on, None
        if request is not None:
            self._group.remove(request)
            if request.done.set_running_or_notify_cancel():
                request.done.set_exception(error)

    def settle(self) -> None:
        """Answers the requests of the open group, whose facts are durable."""
        self._settle(lambda: None)

    def fail(self, why: str) -> None:
        """Turns away the requests of the open group and those that wait."""
        lost, self._group = self._group, []
        if self._next is not None:
            lost, self._next = [*lost, self._next], None
        while True:
            try:
                request = self._queue.get_nowait()
            except queue.Empty:
                break
            lost += [] if request is None else [request]
        for request in lost:
            if not request.done.done():
                request.done.set_exception(StoppedError(why))

    def end(self, why: str) -> None:
        """Turns away what waits and everything from now on."""
        with self._lock:
            self._closing.set()
        self.fail(why)

    def _settle(self, commit: Callable[[], None]) -> None:
        """Makes the events so far durable and answers the requests of the group."""
        commit()
        group, self._group = self._group, []
        for request in group:
            if request.done.set_running_or_notify_cancel():
                try:
                    request.done.set_result(request.answer())
                except Exception as error:  # noqa: BLE001 - of the one request: the others get their answers
                    request.done.set_exception(error)
