"""The webhook: events arrive in order, once the receiver is there; a slow one holds nothing up."""

import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ingest.core.errors import UsageError
from service.api import webhook
from service.api.webhook import Webhook


class Receiver:
    """Remembers what was posted and answers with the next of `codes`, then 200."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.got: list[dict[str, Any]] = []
        self.signed: list[tuple[bytes, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = outer.codes.pop(0) if outer.codes else 200
                if code == 200:
                    outer.got.append(json.loads(body))
                    outer.signed.append((body, self.headers["X-Twin-Signature"]))
                self.send_response(code)
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


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_events_arrive_in_order_after_failures_and_are_signed(receiver: Receiver) -> None:
    receiver.codes = [503, 429]
    hook = Webhook(receiver.url, "secret", first_wait_s=0.01)
    hook.publish([*events(1, 2), {"event": "link_observed", "seq": 3}, *events(4)])
    until(lambda: hook.arrived == 3)
    hook.close()
    assert [event["seq"] for event in receiver.got] == [1, 2, 4]
    body, signature = receiver.signed[0]
    assert signature == "sha256=" + hmac.new(b"secret", body, "sha256").hexdigest()
    assert (hook.waiting, hook.dropped, hook.problem) == (0, 0, "")


def test_what_is_refused_is_not_tried_again(receiver: Receiver) -> None:
    receiver.codes = [422]
    hook = Webhook(receiver.url, first_wait_s=0.01)
    hook.publish(events(1, 2))
    until(lambda: hook.arrived == 1)
    hook.close()
    assert (hook.refused, [event["seq"] for event in receiver.got]) == (1, [2])


def test_without_a_receiver_the_oldest_are_dropped_and_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "QUEUED", 5)
    hook = Webhook("http://127.0.0.1:9/", first_wait_s=0.01)
    began = time.monotonic()
    hook.publish(events(*range(20)))
    assert time.monotonic() - began < 0.5
    assert (hook.waiting, hook.dropped) == (5, 15)
    until(lambda: hook.problem)
    hook.close()


def test_an_address_of_another_kind_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="http"):
        Webhook("ftp://example.org/")
