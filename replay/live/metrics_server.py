"""The metrics of this process over HTTP, on the loopback address alone, in a thread of their own."""

import errno
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any

from ingest.core.errors import UsageError
from replay.live.exposition import CONTENT_TYPE, Metric, text

HOST, PATH = "127.0.0.1", "/metrics"
PATIENCE_S = 5.0
"""Seconds after which a connection that asks nothing is closed."""
Collect = Callable[[], Iterable[Metric]]


@contextmanager
def serving(port: int, collect: Collect) -> Iterator[str]:
    """Answers `GET /metrics` with what `collect` returns while the body runs; yields the address.

    `collect` is called in the threads of the server. Port 0: any that is free.

    Raises:
        UsageError: the port is taken, or may not be used.
    """
    server = _bound(port, collect)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = True, False

    def __init__(self, port: int, collect: Collect) -> None:
        self.collect = collect
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        """Binds without asking a name server for this machine's name, as the base class does."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Lets a client go that has hung up; anything else is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE_S
    server_version, sys_version = "twin", ""

    def do_GET(self) -> None:
        """Answers a scrape."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, explain=f"only {PATH} is here")
            return
        assert isinstance(self.server, _Server)
        body = text(self.server.collect()).encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Says nothing: standard error belongs to the run."""


def _bound(port: int, collect: Collect) -> _Server:
    try:
        return _Server(port, collect)
    except (OSError, OverflowError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "another process uses it" if taken else getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"--metrics-port {port}: {why}; choose another port, or 0 for any that is free"
        ) from error
