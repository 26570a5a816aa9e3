"""Server-sent events: every client has a bounded queue, and one that does not keep up is let go."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import orjson

Json = dict[str, Any]
QUEUED = 256
"""Events that may wait for a client."""
RECENT = 1_000
"""Events that a client that comes back with `Last-Event-ID` may still get."""
BEAT_S = 15.0
"""Seconds after which a comment keeps a silent connection open."""


class Hub:
    """Passes events on to the clients of one event loop."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=RECENT)
        self._queues: set[asyncio.Queue[bytes | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.dropped = 0
        """Clients that were let go because they were too slow."""

    @property
    def clients(self) -> int:
        """Clients that listen now."""
        return len(self._queues)

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

    async def events(self, after: int | None) -> AsyncIterator[bytes]:
        """Yields events for one client, those after number `after` that are still at hand first."""
        waiting: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED)
        missed = [] if after is None else [text for seq, text in self._recent if seq > after]
        self._queues.add(waiting)
        try:
            yield b"retry: 2000\n\n"
            for text in missed:
                yield text
            while not self._closed or not waiting.empty():
                try:
                    text_ = await asyncio.wait_for(waiting.get(), BEAT_S)
                except TimeoutError:
                    yield b": beat\n\n"
                    continue
                if text_ is None:
                    return
                yield text_
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
