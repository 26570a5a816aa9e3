"""The webhook: events arrive in order whatever the receiver does, and over restarts; it holds nothing up."""

import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ingest.core.errors import UsageError
from service.api import webhook
from service.api.webhook import POSTED, Webhook
from service.session.undelivered import Undelivered
from tests.support.serving import observe, toy_session


class Receiver:
    """Remembers what was posted and answers with the next of `codes`, then 200."""

    def __init__(self) -> None:
        self.codes: list[int | bytes] = []
        """Statuses, or what is sent instead of an answer, one a request."""
        self.asked: list[str] = []
        self.got: list[dict[str, Any]] = []
        self.signed: list[tuple[bytes, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(f"GET {self.path}")
                self.send_response(200)
                self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append(self.headers["Idempotency-Key"])
                code = outer.codes.pop(0) if outer.codes else 200
                if isinstance(code, bytes):
                    self.wfile.write(code)
                    self.close_connection = True
                    return
                if 200 <= code < 300:
                    outer.got.append(json.loads(body))
                    outer.signed.append((body, self.headers["X-Twin-Signature"]))
                self.send_response(code)
                self.send_header("Location", "/moved")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.server.shutdown()
    one.server.server_close()


def events(*numbers: int) -> list[dict[str, Any]]:
    return [{"event": "decided", "seq": number} for number in numbers]


class Log:
    """A log of one run in memory, and how far its receiver is."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.log, self.place, self.broken = list(entries), ("r", -1), 0

    def settle(self, place: tuple[str, int]) -> None:
        self.place = place

    def entries(self) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
        if self.broken:
            self.broken -= 1
            raise RuntimeError("broken")
        for entry in tuple(self.log):
            if entry["seq"] > self.place[1] and entry["event"] == "decided":
                yield ("r", entry["seq"]), entry


def begun(url: str, *entries: dict[str, Any], secret: str = "") -> tuple[Webhook, Log]:
    hook, log = Webhook(url, secret, first_wait_s=0.01), Log(*entries)
    hook.start(log)
    return hook, log


def published(hook: Webhook, log: Log, entries: list[dict[str, Any]]) -> None:
    log.log += entries
    hook.publish("r", entries)


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_events_arrive_in_order_after_failures_and_are_signed(receiver: Receiver) -> None:
    receiver.codes = [503, 429]
    hook, log = begun(receiver.url, secret="secret")
    published(hook, log, [*events(1, 2), {"event": "link_observed", "seq": 3}, *events(4)])
    until(lambda: hook.arrived == 3)
    hook.close()
    assert [event["seq"] for event in receiver.got] == [1, 2, 4] and receiver.got[0]["run"] == "r"
    body, signature = receiver.signed[0]
    assert signature == "sha256=" + hmac.new(b"secret", body, "sha256").hexdigest()
    assert (hook.waiting, hook.problem, hook.failed) == (0, "", 2)
    assert receiver.asked == ["r/1", "r/1", "r/1", "r/2", "r/4"]


GARBAGE = (
    b"HTTP/1.1 503 no\r\nContent-Length: 100\r\n\r\nshort", b"nonsense\r\n\r\n", b"", b"HTTP/1.1 2",
    b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200, b"\x00" * 100_000,
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\nTransfer-Encoding: " + b"y" * 70_000 + b"\r\n\r\n",
    b"HTTP/1.1 999 strange\r\n\r\n", b"HTTP/1.1 103 early\r\n\r\n", b"HTTP/1.1 301 moved\r\nLocation: http://[x\r\n\r\n",
)  # fmt: skip


@pytest.mark.parametrize("sent", GARBAGE, ids=range(len(GARBAGE)))
def test_the_thread_survives_every_answer(receiver: Receiver, sent: bytes) -> None:
    receiver.codes = [sent, 200]
    hook, log = begun(receiver.url)
    published(hook, log, events(1, 2))
    until(lambda: hook.arrived == 2)
    hook.close()
    assert receiver.asked == ["r/1", "r/1", "r/2"] and hook.failed == 1


def test_a_status_of_success_is_an_arrival_whatever_the_body(receiver: Receiver) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"
    receiver.codes = [cut, 204, 201, b"HTTP/1.1 202 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
    hook, log = begun(receiver.url)
    published(hook, log, events(1, 2, 3, 4))
    until(lambda: hook.arrived == 4)
    hook.close()
    assert receiver.asked == ["r/1", "r/2", "r/3", "r/4"]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308, 304, 300])
def test_no_redirect_is_followed_or_counts_as_an_arrival(receiver: Receiver, code: int) -> None:
    receiver.codes = [code]
    hook, log = begun(receiver.url)
    published(hook, log, events(1))
    until(lambda: hook.arrived == 1)
    hook.close()
    assert receiver.asked == ["r/1", "r/1"]


def test_what_can_never_arrive_is_not_tried_again_and_a_wrong_setting_is(receiver: Receiver) -> None:
    receiver.codes = [422, 401, 404, 200]
    hook, log = begun(receiver.url)
    published(hook, log, events(1, 2))
    until(lambda: hook.arrived == 1)
    hook.close()
    assert (hook.refused, receiver.asked) == (1, ["r/1", "r/2", "r/2", "r/2"])


def test_without_a_receiver_nothing_waits_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    monkeypatch.setattr(webhook, "QUEUED", 5)
    receiver.codes = [503] * 6
    hook, log = begun(receiver.url)
    began = time.monotonic()
    for number in range(40):
        published(hook, log, events(number))
        time.sleep(0.002)
    assert time.monotonic() - began < 2
    assert hook.waiting and hook.to_json()["problem"] == "HTTP 503"
    until(lambda: hook.arrived == 40 and not hook.waiting)
    hook.close()
    assert [event["seq"] for event in receiver.got] == [*range(40)]


def test_what_has_not_arrived_is_posted_after_a_restart(receiver: Receiver) -> None:
    receiver.codes = [200, *[500] * 1000]
    hook, log = begun(receiver.url, *events(0, 1, 2))
    until(lambda: hook.failed)
    hook.close()
    receiver.codes = []
    hook = Webhook(receiver.url, first_wait_s=0.01)
    hook.start(log)
    published(hook, log, events(3))
    until(lambda: log.place == ("r", 3))
    hook.close()
    assert [event["seq"] for event in receiver.got] == [0, 1, 2, 3]


def test_a_log_that_cannot_be_read_is_read_again(receiver: Receiver) -> None:
    hook, log = Webhook(receiver.url, first_wait_s=0.01), Log(*events(0))
    log.broken = 3
    hook.start(log)
    until(lambda: hook.arrived == 1)
    hook.close()
    assert hook.failed == 3


def test_a_receiver_that_drips_its_answer_is_given_up(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "PATIENCE_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        hook, log = begun(f"http://127.0.0.1:{server.getsockname()[1]}/")
        published(hook, log, events(1))
        peer, _ = server.accept()
        with peer:
            end = time.monotonic() + 5
            while not hook.failed and time.monotonic() < end:
                with suppress(OSError):
                    peer.send(b"H")
                time.sleep(0.1)
        assert hook.failed
        hook.close()


@pytest.mark.parametrize(
    "url",
    ["ftp://example.org/", "http://[x", "http://", "http://:80/", "http://h:99999/", "http://h:x/", "", "h",
     "http://a b/", "http://user:secret@h/", "http://h/\n", "https://é/"],
)  # fmt: skip
def test_an_address_that_is_none_is_a_mistake(url: str) -> None:
    with pytest.raises(UsageError, match="--webhook") as raised:
        Webhook(url)
    assert "secret" not in str(raised.value)


def test_the_log_says_what_is_left_also_of_runs_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = toy_session(tmp_path, monkeypatch)
    left = lambda: Undelivered(tmp_path, "http://r/", session.header, POSTED, lambda: session.run_id)  # noqa: E731
    before = left()
    assert list(before.entries()) == []  # a new receiver gets what comes from now on
    seen: list[tuple[str, dict[str, Any]]] = []
    session.listeners.append(
        lambda entries: seen.extend((session.state.run, one) for one in entries if one["event"] in POSTED)
    )
    session.change_mode("active", "test").result(20)
    order = session.published.order
    assert order is not None
    first = session.run_id
    answer = {"kind": "plan", "job": "", "epoch_ns": time.time_ns(), "order": order["number"],
              "state": "applied", "pause_s": 0.1}  # fmt: skip
    observe(session, "k", [answer])
    session.renew("test").result(20)
    session.decide().result(20)
    session.change_mode("shadow", "test").result(20)
    session.close()
    assert session.run_id != first
    found = list(left().entries())
    assert found == [((run, entry["seq"]), entry) for run, entry in seen] and len(found) > 3
    place, _ = found[2]
    left().settle(place)
    assert list(left().entries()) == found[3:]
    other = Undelivered(tmp_path, "http://other/", session.header, POSTED, lambda: session.run_id)
    assert list(other.entries()) == []
    names = [path for path in (tmp_path / "service").iterdir() if path.stat().st_mode & 0o077]
    assert names == []


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"run": "gone", "seq": 3}', '{"run": 5, "seq": "x"}', "\udcff"]
)
def test_a_place_that_cannot_be_used_is_the_present_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    session = toy_session(tmp_path, monkeypatch)
    session.close()
    left = Undelivered(tmp_path, "http://r/", session.header, POSTED, lambda: session.run_id)
    (file,) = (tmp_path / "service").glob("webhook-*.json")
    file.write_bytes(damage.encode(errors="surrogateescape"))
    left = Undelivered(tmp_path, "http://r/", session.header, POSTED, lambda: session.run_id)
    assert {place[0] for place, _ in left.entries()} <= {session.run_id}
