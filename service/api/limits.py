"""Limits of requests: bytes of a body, of all bodies together, and requests a second of one client."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api import errors
from service.api.connections import client_of

ADDRESSES = 10_000
"""Addresses whose rates are kept; the one that asked longest ago is forgotten first."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Most bytes of a body, and of all bodies that are held at once; requests a second of one client in the
    long run, and at once."""

    body_bytes: int = 8 << 20
    held_bytes: int = 256 << 20
    per_s: float = 200.0
    burst: float = 400.0


class LimitRate:
    """Middleware: a token bucket for each address; over it the answer is 429."""

    def __init__(
        self, app: ASGIApp, limits: RequestLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._limits, self._clock = app, limits, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it."""
        if scope["type"] == "http" and not self._allowed(client_of((scope.get("client") or ("",))[0])):
            limit = f"more than {self._limits.per_s:g} requests a second"
            await errors.reply(429, "RateLimited", limit)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allowed(self, address: str) -> bool:
        now = self._clock()
        left, then = self._buckets.pop(address, (self._limits.burst, now))
        left = min(self._limits.burst, left + (now - then) * self._limits.per_s)
        self._buckets[address] = (max(0.0, left - 1), now)
        if len(self._buckets) > ADDRESSES:
            self._buckets.popitem(last=False)
        return left >= 1


class LimitBody:
    """Middleware: a body over the limit is answered with 413, by its stated length or when it is reached.

    Bodies of many requests together have a limit, too: over it the answer is 503.
    """

    def __init__(self, app: ASGIApp, limits: RequestLimits) -> None:
        self._app, self._most = app, limits.body_bytes
        self._most_held, self._held = limits.held_bytes, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stated = dict(scope["headers"]).get(b"content-length", b"0")
        if stated.isdigit() and int(stated) > self._most:
            await self._refuse(scope, receive, send)
            return
        body = bytearray()
        try:
            await self._with_body(body, scope, receive, send)
        finally:
            self._held -= len(body)

    async def _with_body(self, body: bytearray, scope: Scope, receive: Receive, send: Send) -> None:
        """Reads the body into `body`, then passes the request on."""
        more = scope["method"] not in ("GET", "HEAD")
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # the client has gone
            part = message.get("body", b"")
            body += part
            self._held += len(part)
            if len(body) > self._most:
                await self._refuse(scope, receive, send)
                return
            if self._held > self._most_held:
                busy = "other requests have too large bodies now"
                await errors.reply(503, "OverloadedError", busy)(scope, receive, send)
                return
            more = message.get("more_body", False)
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, again, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"the body has more than {self._most} bytes"
        await errors.reply(413, "TooLarge", message)(scope, receive, send)
