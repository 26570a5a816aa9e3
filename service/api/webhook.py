"""Decisions and orders posted to an address, from a bounded queue, tried again until they arrive.

Each is one POST of JSON as in the stream, with its number as `Idempotency-Key`. An answer of 2xx is an
arrival; 4xx other than 408 and 429 is a refusal, which is not tried again. A slow or dead receiver holds
nothing up: what does not fit into the queue is dropped, the oldest first, and counted.
"""

import hmac
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from typing import Any

import orjson

from ingest.core.errors import UsageError

POSTED = frozenset({"decided", "order_given", "order_closed", "mode_changed"})
QUEUED = 1_000
"""Events that may wait for the receiver."""
PATIENCE_S = 10.0
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Seconds between two tries: doubled each time."""
AGAIN = (408, 429)
Json = dict[str, Any]


class Webhook:
    """Posts events in a thread of its own; `secret` signs bodies (HMAC-SHA256, header `X-Twin-Signature`).

    Raises:
        UsageError: the address is none of HTTP.
    """

    def __init__(self, url: str, secret: str = "", *, first_wait_s: float = FIRST_WAIT_S) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(f"--webhook {url}: an address that begins with http:// or https:// is needed")
        self._url, self._secret, self._first_wait_s = url, secret.encode(), first_wait_s
        self._queue: deque[Json] = deque()
        self._stop, self._wake = threading.Event(), threading.Event()
        self.arrived = self.dropped = self.refused = 0
        self.problem = ""
        """Reason of the last try that failed; empty after one that did not."""
        self._thread = threading.Thread(target=self._work, name="twin-webhook", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Events that have not arrived yet."""
        return len(self._queue)

    def publish(self, events: list[Json]) -> None:
        """Adds events; never waits."""
        self._queue.extend(event for event in events if event["event"] in POSTED)
        while len(self._queue) > QUEUED:
            self._queue.popleft()
            self.dropped += 1
        self._wake.set()

    def close(self) -> None:
        """Ends the thread after the try under way; what waits is in the log, not sent."""
        self._stop.set()
        self._wake.set()
        self._thread.join(PATIENCE_S)

    def _work(self) -> None:
        wait_s = self._first_wait_s
        while not self._stop.is_set():
            if not self._queue:
                self._wake.wait()
                self._wake.clear()
                continue
            event = self._queue[0]
            if self._settled(event):
                wait_s = self._first_wait_s
                if self._queue and self._queue[0] is event:  # it may have been dropped meanwhile
                    self._queue.popleft()
                continue
            self._stop.wait(wait_s)
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    def _settled(self, event: Json) -> bool:
        """Posts an event; True if it arrived or was refused for good."""
        try:
            with urllib.request.urlopen(self._request(event), timeout=PATIENCE_S) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            self.problem = f"HTTP {error.code}"
            final = 400 <= error.code < 500 and error.code not in AGAIN
            self.refused += final
            return final
        except (OSError, ValueError) as error:
            self.problem = f"{type(error).__name__}: {error}"
            return False
        self.arrived, self.problem = self.arrived + 1, ""
        return True

    def _request(self, event: Json) -> urllib.request.Request:
        body = orjson.dumps(event)
        head = {"Content-Type": "application/json", "Idempotency-Key": str(event["seq"])}
        if self._secret:
            head["X-Twin-Signature"] = "sha256=" + hmac.new(self._secret, body, "sha256").hexdigest()
        return urllib.request.Request(self._url, data=body, headers=head)
