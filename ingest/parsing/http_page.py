"""One page over HTTP, bounded: in seconds, in bytes, and in where it may come from.

A redirect is not followed: who names an address decides what is asked, not the machine that answers. No
proxy of the environment is used, since exporters answer inside a site.
"""

import http.client
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256

from ingest.core.errors import InputError, UsageError

PATIENCE_S = 5.0
"""Seconds for a connection, and again for the whole page."""
PAGE_BYTES = 8 << 20
_AGENT = "twin"


class HttpAddress:
    """An address of HTTP that can be asked for its page.

    name: host, port and path, with eight digits of the digest of a query, which may hold a secret.

    Raises:
        UsageError: it is none of HTTP, or holds a password.
    """

    def __init__(self, url: str, option: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise UsageError(f"{option} {url}: {error}") from error
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in ("http", "https") or not self._host or not plain:
            raise UsageError(
                f"{option} {url}: an address that begins with http:// or https:// is needed, other letters "
                "than those of ASCII written as %XX"
            )
        if "@" in parts.netloc:
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
            raise UsageError(f"{option} {shown}: a user or password in an address is not taken")
        self.parts = parts
        asked = f"?{sha256(parts.query.encode()).hexdigest()[:8]}" if parts.query else ""
        self.name = f"{parts.netloc}{parts.path}{asked}"
        self.shown = f"{parts.scheme}://{self.name}"

    def page(self, accept: str) -> bytes:
        """Returns the page as it is now.

        Raises:
            InputError: it does not come whole within the bounds, or with another status than 200.
        """
        kind = http.client.HTTPSConnection if self.parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=PATIENCE_S)
        cut = threading.Event()
        try:
            connection.connect()
            with _ended_after(connection.sock, PATIENCE_S, cut):
                data = self._asked(connection, accept)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not cut.is_set():
                raise InputError(f"{self.shown}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()
        if cut.is_set():
            raise InputError(f"{self.shown}: the page was not complete after {PATIENCE_S:g} s")
        return data

    def _asked(self, connection: http.client.HTTPConnection, accept: str) -> bytes:
        target = (self.parts.path or "/") + (f"?{self.parts.query}" if self.parts.query else "")
        connection.request("GET", target, headers={"Accept": accept, "User-Agent": _AGENT})
        with connection.getresponse() as answer:
            return self._taken(answer)

    def _taken(self, answer: http.client.HTTPResponse) -> bytes:
        if 300 <= answer.status < 400:
            why = "a redirect, which is not followed; name the address that has the page"
            raise InputError(f"{self.shown}: answers {answer.status}, {why}")
        if answer.status != http.client.OK:
            raise InputError(f"{self.shown}: answers {answer.status} {answer.reason[:60]}")
        data = bytearray()
        while piece := answer.read1(1 << 16):
            data += piece
            if len(data) > PAGE_BYTES:
                raise InputError(f"{self.shown}: the page has more than {PAGE_BYTES >> 20} MiB")
        if answer.length:  # of what the header promised
            raise InputError(f"{self.shown}: the page ends {answer.length:,} bytes too early")
        return bytes(data)


@contextmanager
def _ended_after(sock: socket.socket, seconds: float, cut: threading.Event) -> Iterator[None]:
    """Ends a connection that still stands after `seconds`, however slowly something comes, and sets `cut`."""

    def end() -> None:
        cut.set()
        with suppress(OSError):  # it has ended by itself
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
