"""Decisions and orders posted to an address, each until it arrives, in order, over restarts.

Each is one POST of JSON as in the stream, with `RUN/NUMBER` as `Idempotency-Key`: after a crash of the
service the last one may come twice. A status of 2xx is an arrival, whatever the body; a redirect is not
followed. A status by which the receiver will never take this event (400, 409, 410, 413, 415, 422) is a
refusal; after any other failure the event is posted again, later and later. A slow or dead receiver holds
nothing up: what does not fit into memory waits in the log (`service.session.undelivered`).
"""

import hmac
import http.client
import socket
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import orjson

from ingest.core.terminal import clipped
from ingest.parsing.http_page import HttpAddress
from service.api.log_lines import LOGGER

POSTED = frozenset({"decided", "order_given", "order_closed", "mode_changed"})
QUEUED = 1_000
"""Events in memory; more wait in the log."""
PATIENCE_S = 10.0
"""Seconds for a connection and for each wait; twice that for a whole request."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Seconds between two tries: doubled each time."""
FINAL = frozenset({400, 409, 410, 413, 415, 422})
"""Statuses after which an event is not posted again."""
Json = dict[str, Any]
Place = tuple[str, int]


class Backlog(Protocol):
    """What a receiver has not got yet (`service.session.undelivered.Undelivered`)."""

    place: Place

    def settle(self, place: Place) -> None:
        """Notes that everything up to an event is settled."""

    def entries(self) -> Iterator[tuple[Place, Json]]:
        """Yields what is not settled, in order."""


class Webhook:
    """Posts events in a thread of its own; `secret` signs bodies (HMAC-SHA256, header `X-Twin-Signature`).

    Raises:
        UsageError: the address is none of HTTP.
    """

    def __init__(self, url: str, secret: str = "", *, first_wait_s: float = FIRST_WAIT_S) -> None:
        HttpAddress(url, "--webhook")
        self._url, self._secret, self._first_wait_s = url, secret.encode(), first_wait_s
        self._backlog: Backlog
        self._queue: deque[tuple[Place, Json]] = deque()
        self._in_log = 0
        """Events that wait in the log behind those of the queue; may be too many, never too few."""
        self._lock = threading.Lock()
        self._stop, self._wake = threading.Event(), threading.Event()
        self.arrived = self.refused = self.failed = 0
        self.problem = ""
        """Reason of the last try that failed; empty after one that did not."""
        self._thread = threading.Thread(target=self._work, name="twin-webhook", daemon=True)

    def start(self, backlog: Backlog) -> None:
        """Begins to post, with what has not arrived of the log."""
        self._backlog = backlog
        self._in_log += 1  # to look into it at once
        self._wake.set()
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Events that have not arrived yet."""
        return len(self._queue) + self._in_log

    def to_json(self) -> Json:
        """Returns its state for a page."""
        return {
            "waiting": self.waiting,
            "delivered": self.arrived,
            "refused": self.refused,
            "failed": self.failed,
            "problem": self.problem,
        }

    def publish(self, run: str, events: list[Json]) -> None:
        """Adds events of a run that are durable; never waits for the receiver."""
        with self._lock:
            for event in events:
                if event["event"] not in POSTED:
                    continue
                if self._in_log or len(self._queue) >= QUEUED:
                    self._in_log += 1
                else:
                    self._queue.append(((run, event["seq"]), event))
        self._wake.set()

    def close(self) -> None:
        """Ends the thread after the try under way; what waits is posted after the next start."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE_S)

    def _work(self) -> None:
        wait_s = self._first_wait_s
        while not self._stop.is_set():
            try:
                settled = self._step()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next events are to be posted
                self._fail(f"{type(error).__name__}: {error}")
                settled = False
            if settled:
                wait_s = self._first_wait_s
                continue
            self._stop.wait(wait_s)
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    def _step(self) -> bool:
        """Waits for an event and posts it; False: it has to be posted again."""
        if not self._queue:
            if not self._in_log:
                self._wake.wait()
                self._wake.clear()
                return True
            self._load()
            return True
        place, event = self._queue[0]
        if not self._is_settled(place):  # what was read from the log may be published just after
            if not self._posted(place, event):
                return False
            self._backlog.settle(place)
        self._queue.popleft()
        return True

    def _is_settled(self, place: Place) -> bool:
        run, seq = self._backlog.place
        return place[0] == run and place[1] <= seq

    def _load(self) -> None:
        """Fills the queue from the log; events that come meanwhile are counted and found at the next look."""
        with self._lock:
            self._in_log = 1  # so that `publish` adds nothing to the queue
        found, more = list[tuple[Place, Json]](), 0
        for entry in self._backlog.entries():
            if len(found) < QUEUED:
                found.append(entry)
            else:
                more += 1
        with self._lock:
            self._queue.extend(found)
            self._in_log += more - 1

    def _posted(self, place: Place, event: Json) -> bool:
        """Posts an event; True if it arrived or was refused for good."""
        status = self._status(place, event)
        if 200 <= status < 300:
            self.arrived, self.problem = self.arrived + 1, ""
            return True
        self._fail(f"HTTP {status}" + (": a redirect is not followed" if 300 <= status < 400 else ""))
        self.refused += status in FINAL
        return status in FINAL

    def _fail(self, problem: str) -> None:
        self.failed, self.problem = self.failed + 1, clipped(problem, 200)
        LOGGER.warning("webhook: %s", f"{self.problem}; {self.waiting:,} events wait")

    def _status(self, place: Place, event: Json) -> int:
        """Posts an event and returns the status of the answer, the body of which is not read."""
        with _deadline(2 * PATIENCE_S) as opened:
            handlers = _NoRedirect(), _Http(opened), _Https(opened)
            try:
                with urllib.request.build_opener(*handlers).open(
                    self._request(place, event), timeout=PATIENCE_S
                ) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

    def _request(self, place: Place, event: Json) -> urllib.request.Request:
        run, seq = place
        body = orjson.dumps({"run": run, **event})
        head = {"Content-Type": "application/json", "Idempotency-Key": f"{run}/{seq}"}
        if self._secret:
            head["X-Twin-Signature"] = "sha256=" + hmac.new(self._secret, body, "sha256").hexdigest()
        return urllib.request.Request(self._url, data=body, headers=head)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: urllib makes a GET without a body of a POST that is redirected."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Returns no other request."""


class _Http(urllib.request.HTTPHandler):
    """Notes its connections in `opened`."""

    def __init__(self, opened: list[http.client.HTTPConnection]) -> None:
        super().__init__()
        self._opened = opened

    def http_open(self, req: urllib.request.Request) -> Any:
        """Opens a request."""
        return self.do_open(_noting(http.client.HTTPConnection, self._opened), req)


class _Https(urllib.request.HTTPSHandler):
    """The same over TLS."""

    def __init__(self, opened: list[http.client.HTTPConnection]) -> None:
        super().__init__()
        self._opened = opened

    def https_open(self, req: urllib.request.Request) -> Any:
        """Opens a request."""
        return self.do_open(_noting(http.client.HTTPSConnection, self._opened), req)


def _noting(kind: type[http.client.HTTPConnection], opened: list[http.client.HTTPConnection]) -> Any:
    """Returns what makes a connection that is noted."""

    def made(*args: Any, **more: Any) -> http.client.HTTPConnection:
        opened.append(kind(*args, **more))
        return opened[-1]

    return made


@contextmanager
def _deadline(seconds: float) -> Iterator[list[http.client.HTTPConnection]]:
    """Yields a list of connections that are ended after `seconds`: a time-out alone is one for each byte."""
    opened: list[http.client.HTTPConnection] = []

    def end() -> None:
        for connection in opened:
            with suppress(OSError, AttributeError):  # it may have ended by itself
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield opened
    finally:
        timer.cancel()
