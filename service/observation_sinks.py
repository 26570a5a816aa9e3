"""Where the hook's observations go: a service over HTTP, or lines of JSON in a file.

Imports nothing heavy: it is part of the training process.
"""

import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core.durable import AppendOnlyFile, make_directory
from ingest.core.errors import TwinError
from service import local_token
from service.spool import Spool

Json = dict[str, Any]
PATIENCE_S = 5.0
"""Seconds after which a request counts as failed."""
REFUSED = range(400, 500)


@dataclass(frozen=True, slots=True)
class PlanChange:
    """An order of the service: go to `plan` (JSON as in the log) at the next step boundary; None: stop, and
    give all GPUs back, which only one of several jobs is ordered."""

    number: int
    plan: Json | None
    reason: str


def _order(answer: Any) -> PlanChange | None:
    """Returns the order of an answer; None: there is none.

    Raises:
        ValueError: the answer is not one of a service.
    """
    if not isinstance(answer, dict) or "order" not in answer:
        raise ValueError("the answer holds no order: is this the address of a service?")
    order = answer["order"]
    if order is None:
        return None
    number, plan, reason = (order.get(name) if isinstance(order, dict) else None for name in _ORDER)
    if type(number) is not int or not (plan is None or isinstance(plan, dict)) or not isinstance(reason, str):
        raise ValueError("the order of the answer has no number, plan and reason")
    return PlanChange(number, plan, reason)


_ORDER = ("number", "plan", "reason")


class FileSink:
    """Lines of JSON in a new file of a folder."""

    def __init__(self, folder: Path) -> None:
        make_directory(folder)
        self._file = AppendOnlyFile(folder / f"hook-{time.time_ns()}-{os.getpid()}.ndjson")
        self._broken = ""

    def send(self, body: bytes) -> tuple[bool, bool, str]:
        """Returns (arrived, lost, error)."""
        if not self._broken:
            try:
                self._file.append(body)
                return True, False, ""
            except TwinError as error:  # the file may end in half a line: nothing more goes into it
                self._broken = str(error)
        return False, True, self._broken


class HttpSink:
    """Requests to the service; batches that do not arrive go into the spool.

    Without a `token` it looks for that of this machine (`local_token`), and again when that is refused: the
    service may have begun later than the job.
    """

    def __init__(self, address: str, token: str, spool: Spool | None) -> None:
        self._address, in_address = local_token.split(address)
        self._given, self.spool = token or in_address, spool
        self._token = self._given or local_token.find(self._address)

    def send(self, body: bytes) -> tuple[bool, bool, str]:
        """Returns (arrived, lost, error); what is kept in the spool is neither."""
        key = uuid.uuid4().hex
        if self.spool is not None and len(self.spool):  # in order: behind what waits already
            self.spool.add(key, body)
            return False, False, ""
        error = self._post(key, body)
        if error is None:
            return True, False, ""
        if error[1] or self.spool is None:
            return False, True, error[0]
        self.spool.add(key, body)
        return False, False, error[0]

    def send_kept(self) -> None:
        """Sends what waits, the oldest first, until one does not arrive."""
        while self.spool is not None and (first := self.spool.first()) is not None:
            name, key, body = first
            error = self._post(key, body)
            if error is not None and not error[1]:
                return
            if error is not None:
                self.spool.dropped += body.count(b"\n")
            self.spool.done(name)

    def order(self, job: str) -> PlanChange | None:
        """Asks for the order that waits for this job."""
        query = urllib.parse.urlencode({"job": job})
        return _order(json.loads(self._answer(f"/v1/order?{query}")))

    def _post(self, key: str, body: bytes) -> tuple[str, bool] | None:
        """Returns None where the batch arrived, else the error, and True if sending again is of no use."""
        head = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        try:
            self._answer("/v1/observations", body, head)
            return None
        except urllib.error.HTTPError as error:
            final = error.code in REFUSED and error.code not in (401, 403, 408, 429)
            return f"HTTP {error.code}: {error.reason}", final
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}", False

    def _answer(self, path: str, body: bytes | None = None, head: Mapping[str, str] | None = None) -> bytes:
        """Returns the body of an answer; a token that was looked up and is refused is looked up again."""
        while True:
            bearer = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            asked = urllib.request.Request(self._address + path, body, {**bearer, **(head or {})})
            try:
                with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                    found: bytes = answer.read()
                    return found
            except urllib.error.HTTPError as error:
                token = self._token if self._given else local_token.find(self._address)
                if error.code != 401 or token == self._token:
                    raise
                self._token = token
