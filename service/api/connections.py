"""Connections that a service holds: how many, from whom, and for how long one may keep it waiting.

A client that sends nothing, or slowly, or does not read what it is sent, is ended after a time (`Patience`).
There are at most `total` connections, fewer than the files that this process may open, and at most
`per_client` of one address. Beyond that a new connection takes the place of the one that has kept the service
waiting longest, of the same client if that has too many: so idle connections never lock anybody out. Where
all are at work, the new one is answered 503.
"""

import errno
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api.log_lines import LOGGER

MOST = 2_000
"""Connections at once, where the limit of open files allows for them."""
RESERVED_FILES = 160
"""Files that the service needs besides connections: log, store, sources, and connections about to close."""
FEWEST = 16
CLOSING = 64
"""Connections that may wait to be closed before others are accepted."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a client gets: to send the head of a request (with it the TLS handshake), its body, the
    next request, and to read what waits for it."""

    head: float = 10.0
    body: float = 60.0
    idle: float = 30.0
    unread: float = 30.0


@dataclass(eq=False, slots=True)
class Connection:
    """An open connection; `phase` is what the service waits for: `head`, `body`, `idle` or, at work, ""."""

    sock: socket.socket
    client: str
    since_s: float
    phase: str = "head"
    unread_since_s: float | None = None
    protocol: "LimitedProtocol | None" = None
    ending: bool = False

    @property
    def waits_since_s(self) -> float | None:
        """Time since which the service waits for its client, to send or to read; None: it is at work."""
        sends = self.since_s if self.phase else None
        return self.unread_since_s if sends is None else sends

    def end(self) -> None:
        """Ends it at once, whatever waits to be sent."""
        self.ending = True
        transport = None if self.protocol is None else self.protocol.transport
        if transport is not None:
            transport.abort()
            return
        with suppress(OSError):  # in its TLS handshake: the event loop closes what has ended
            self.sock.shutdown(socket.SHUT_RDWR)


class Connections:
    """The connections of one listener. `proxies` may have any number: their clients are others."""

    def __init__(
        self, total: int, per_client: int, *, patience: Patience | None = None,
        proxies: Iterable[Network] = (), clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.total, self.per_client = total, per_client
        self.patience = patience or Patience()
        self._proxies, self.clock = tuple(proxies), clock
        self._open: dict[tuple[Any, ...], Connection] = {}
        self.ended: Counter[str] = Counter()
        """Connections that were ended or refused, by reason."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def crowded(self) -> bool:
        """True while so many connections wait to be closed that no other is accepted."""
        return len(self._open) >= self.total + CLOSING

    def admit(self, sock: socket.socket, address: tuple[Any, ...]) -> bool:
        """Takes a new connection, in place of another where there are too many; False: there is no room."""
        client = client_of(str(address[0]))
        alive = [one for one in self._open.values() if not one.ending]
        own = [one for one in alive if one.client == client]
        crowd = own if len(own) >= self.per_client and not self._is_proxy(client) else alive
        if (crowd is own or len(alive) >= self.total) and not self._end_longest(crowd):
            self._note("refused", client)
            return False
        self._open[address] = Connection(sock, client, self.clock())
        return True

    def make_room(self) -> bool:
        """Ends the connection that has waited longest, where a file is needed; False: there is none."""
        return self._end_longest([one for one in self._open.values() if not one.ending])

    def at(self, address: tuple[Any, ...]) -> Connection | None:
        """Returns the connection of a peer."""
        return self._open.get(address)

    def forget(self, address: tuple[Any, ...]) -> None:
        """Takes a connection out that was closed."""
        self._open.pop(address, None)

    def sweep(self) -> None:
        """Ends what has kept the service waiting for too long; called every second."""
        now = self.clock()
        for address, one in tuple(self._open.items()):
            if one.sock.fileno() < 0:  # closed before its protocol knew it
                self.forget(address)
                continue
            unread = one.unread_since_s is not None and now - one.unread_since_s > self.patience.unread
            if unread or (one.phase and now - one.since_s > getattr(self.patience, one.phase)):
                self._end(one, "unread" if unread else one.phase)
            elif one.protocol is not None and one.protocol.transport.is_closing():
                one.unread_since_s = one.unread_since_s or now  # what is left to send has a time limit, too

    def _end_longest(self, crowd: list[Connection]) -> bool:
        """Ends the one that the service waits for longest; False: it waits for none."""
        waiting = [(since_s, one) for one in crowd if (since_s := one.waits_since_s) is not None]
        if waiting:
            self._end(min(waiting, key=lambda each: each[0])[1], "crowded out")
        return bool(waiting)

    def _is_proxy(self, client: str) -> bool:
        return is_in(client, self._proxies)

    def _end(self, one: Connection, reason: str) -> None:
        self._note(reason, one.client)
        one.end()

    def _note(self, reason: str, client: str) -> None:
        self.ended[reason] += 1
        if reason != "idle":  # which is no fault
            LOGGER.warning("connections: %s", f"{REASONS[reason]} (the last one from {client})")


REASONS = {
    "refused": "a new one was answered 503, since all are at work",
    "crowded out": "one that waited made room for another",
    "head": "one was ended that sent no request in time",
    "body": "one was ended that sent its body too slowly",
    "idle": "one was ended that was idle",
    "unread": "one was ended that did not read its answer",
}


class Listener(socket.socket):
    """A listening socket whose connections are counted from the moment that they are accepted."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        """Returns the next connection that there is room for.

        Raises:
            BlockingIOError: none waits, or others have to be closed first.
        """
        for _ in range(CLOSING):
            if self.connections.crowded:
                break
            try:
                sock, address = super().accept()
            except OSError as error:
                if error.errno in OUT_OF_FILES and self.connections.make_room():
                    break
                raise
            if self.connections.admit(sock, address):
                return sock, address
            with suppress(OSError):
                sock.setblocking(False)
                sock.send(BUSY)
            sock.close()
        raise BlockingIOError


class LimitedProtocol(H11Protocol):
    """HTTP of a connection, which says what the service waits for."""

    registry: Connections
    """That of the listener, set by a subclass (`limited`)."""
    _entry: Connection | None = None

    def connection_made(self, transport: Any) -> None:
        """Begins; the time for the first head runs since the connection was accepted."""
        super().connection_made(transport)
        self._address = transport.get_extra_info("peername")
        self._entry = self.registry.at(self._address) if self._address else None
        if self._entry is not None:
            self._entry.protocol = self
            if self._entry.ending:
                transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends."""
        if self._entry is not None:
            self.registry.forget(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes bytes."""
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Goes on with the next request."""
        super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        """Notes since when the client reads nothing."""
        super().pause_writing()
        if self._entry is not None:
            self._entry.unread_since_s = self.registry.clock()

    def resume_writing(self) -> None:
        """Goes on: the client has read."""
        super().resume_writing()
        if self._entry is not None:
            self._entry.unread_since_s = None

    def _follow(self) -> None:
        """Notes what is waited for now."""
        entry = self._entry
        if entry is None:
            return
        theirs = self.conn.their_state
        phase = "body" if theirs is h11.SEND_BODY else ""
        if theirs is h11.IDLE:
            phase = "head" if self.conn.trailing_data[0] or self.cycle is None else "idle"
        if phase != entry.phase:
            entry.phase, entry.since_s = phase, self.registry.clock()


def limited(connections: Connections) -> type[LimitedProtocol]:
    """Returns the protocol of a listener."""
    return type("LimitedProtocol", (LimitedProtocol,), {"registry": connections})


def room() -> tuple[int, int]:
    """Returns how many connections there may be, and of one client, below the limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST if soft == resource.RLIM_INFINITY else soft - RESERVED_FILES
    total = max(FEWEST, min(MOST, files))
    return total, total // 2


@lru_cache(maxsize=4096)
def client_of(address: str) -> str:
    """Returns what counts as one client: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found) if found.is_loopback else str(IPv6Network((found, 64), strict=False).network_address)


def is_in(address: str, networks: Iterable[Network]) -> bool:
    """Returns True if an address is in one of these networks."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)
