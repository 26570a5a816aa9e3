"""Server-sent events: every client has a bounded queue, and one that does not keep up is let go."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.session.inbox import OverloadedError

Json = dict[str, Any]
QUEUED = 256
"""Events that may wait for a client."""
RECENT = 1_000
"""Events that a client that comes back with `Last-Event-ID` may still get."""
BEAT_S = 15.0
"""Seconds after which a comment keeps a silent connection open."""
CHECK_S = 1.0
"""Seconds after which it is looked again whether a client may still listen."""
CLIENTS = 2_000
"""Clients that may listen at once, where the listener allows for them."""


class Hub:
    """Passes events on to the clients of one event loop."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=RECENT)
        self._queues: set[asyncio.Queue[bytes | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.most, self._places = CLIENTS, 0
        self.dropped = 0
        """Clients that were let go because they were too slow."""

    @property
    def clients(self) -> int:
        """Clients that listen now."""
        return len(self._queues)

    def take_place(self) -> None:
        """Takes one of the places for clients, which `EventStream` gives back.

        Raises:
            OverloadedError: all are taken.
        """
        if self._places >= self.most:
            raise OverloadedError(f"{self.most} clients listen already; try again later")
        self._places += 1

    def give_place_back(self) -> None:
        """Ends what `take_place` began."""
        self._places -= 1

    def attach(self) -> None:
        """Takes the running event loop as that of the clients."""
        self._loop = asyncio.get_running_loop()

    def publish(self, events: list[Json]) -> None:
        """Passes events on; may be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed() and not self._closed:
            loop.call_soon_threadsafe(self._spread, events)

    def close(self) -> None:
        """Ends every stream; called in the event loop."""
        self._closed = True
        for waiting in tuple(self._queues):
            self._end(waiting)

    def close_soon(self) -> None:
        """Ends every stream; may be called from a signal handler."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    async def events(
        self, after: int | None, allowed: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[bytes]:
        """Yields events for one client, those after number `after` that are still at hand first, until it is
        `allowed` no more."""
        waiting: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED)
        missed = [] if after is None else [text for seq, text in self._recent if seq > after]
        self._queues.add(waiting)
        try:
            yield b"retry: 2000\n\n"
            for text in missed:
                yield text
            loop = asyncio.get_running_loop()
            sent_s = loop.time()
            while not self._closed or not waiting.empty():
                try:
                    text_ = await asyncio.wait_for(waiting.get(), min(BEAT_S, CHECK_S))
                except TimeoutError:
                    text_ = b""
                if text_ is None or not allowed():
                    return
                if text_ or loop.time() - sent_s >= BEAT_S:
                    sent_s = loop.time()
                    yield text_ or b": beat\n\n"
        finally:
            self._queues.discard(waiting)

    def _spread(self, events: list[Json]) -> None:
        for event in events:
            text = b"id: %d\nevent: %s\ndata: %s\n\n" % (
                event["seq"], event["event"].encode(), orjson.dumps(event),
            )  # fmt: skip
            self._recent.append((event["seq"], text))
            for waiting in tuple(self._queues):
                try:
                    waiting.put_nowait(text)
                except asyncio.QueueFull:
                    self.dropped += 1
                    self._end(waiting)

    def _end(self, waiting: "asyncio.Queue[bytes | None]") -> None:
        """Lets a client go: what waits for it is dropped."""
        self._queues.discard(waiting)
        while not waiting.empty():
            waiting.get_nowait()
        waiting.put_nowait(None)


class EventStream(StreamingResponse):
    """The answer to a client that has a place in the hub."""

    def __init__(self, hub: Hub, events: AsyncIterator[bytes], **more: Any) -> None:
        super().__init__(events, **more)
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events, and gives the place back however that ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.give_place_back()
