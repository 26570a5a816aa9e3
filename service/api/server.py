"""Runs the application with uvicorn until SIGINT or SIGTERM, then ends in order."""

import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from ingest.core.errors import UsageError
from ingest.core.terminal import shown
from service.api.connections import Connections, Listener, limited, room
from service.api.log_lines import once_a_minute
from service.local_token import is_loopback

GRACE_S = 5
"""Seconds that open requests get at the end."""


BACKLOG = 1_024
"""Connections that may wait to be accepted."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Host and port to listen at; with a certificate and its key, over TLS.

    `proxies`: addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    """

    host: str = "127.0.0.1"
    port: int = 8712
    certificate: Path | None = None
    key: Path | None = None
    proxies: tuple[str, ...] = ()

    @property
    def loopback(self) -> bool:
        """True if only this machine can come in."""
        return is_loopback(self.host)


class _Server(uvicorn.Server):
    """uvicorn that ends its streams when it is told to end, does not raise the signal again, and ends
    connections that keep it waiting."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    async def on_tick(self, counter: int) -> bool:
        """Looks at the connections every second; called ten times a second."""
        if counter % 10 == 0:
            self._connections.sweep()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes the signals while the server runs."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begins the end at a signal; a second Ctrl-C does not wait for open requests."""
        super().handle_exit(sig, frame)
        self.end()

    def end(self) -> None:
        """Begins the end: streams are closed, so that their connections do not hold it up."""
        self.should_exit = True
        app = self.config.app
        if isinstance(app, FastAPI):
            app.state.hub.close_soon()


def bound(address: ListenAddress) -> Listener:
    """Returns a listening socket.

    Raises:
        UsageError: the address is taken or is none of this machine, or a proxy is no address.
    """
    connections = Connections(*room(), proxies=[_network(proxy) for proxy in address.proxies])
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named: without it an answer waits 40 ms for an ACK.
    listener = Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.connections = connections
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen at {address.host} port {address.port}: {why}; choose another"
        ) from error
    return listener


def _network(proxy: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(proxy, strict=False)
    except ValueError:
        raise UsageError(f"--proxy {shown(proxy)}: an IP address or a network such as 10.0.0.0/24") from None


def run(app: FastAPI, address: ListenAddress, listener: Listener, ready: Callable[[str], None]) -> None:
    """Serves until a signal comes or the session ends; `ready` is called with the address when all is set.

    Raises:
        UsageError: certificate or key cannot be read.
    """
    secure = address.certificate is not None
    connections = listener.connections
    app.state.metrics.connections = connections
    app.state.hub.most = max(1, connections.total // 4)  # streams never wait: others need room beside them
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_keep_alive=math.ceil(connections.patience.idle),
        timeout_graceful_shutdown=GRACE_S, server_header=False, ssl_certfile=address.certificate,
        ssl_keyfile=address.key, http=limited(connections), ws="none", backlog=BACKLOG,
        proxy_headers=bool(address.proxies), forwarded_allow_ips=list(address.proxies),
    )  # fmt: skip
    try:
        config.load()
    except OSError as error:  # of the certificate: `ssl.SSLError` is one, too
        raise UsageError(f"TLS: {address.certificate} or {address.key} cannot be used ({error})") from error
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    server = _Server(config, connections)
    app.state.session.on_end.append(server.end)
    with once_a_minute(), server.capture_signals():  # a signal just after the line of `ready` counts, too
        ready(f"{'https' if secure else 'http'}://{shown}:{port}")
        server.run(sockets=[listener])
