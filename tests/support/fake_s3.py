"""An S3 server in this process that can be made to lie: odd keys, endless listings, untrue lengths.

It knows what this project asks: GET, PUT with conditions, DELETE, and listings (version 2). Signatures are
not checked.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKFAKEKEY", "AWS_SECRET_ACCESS_KEY": "FAKESECRETVALUE", "AWS_REGION": "us-east-1",
}  # fmt: skip


class FakeS3:
    """Objects by key. `lengths` are stated in place of true ones; `page` answers a listing in its own way."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lengths: dict[str, int] = {}
        self.page: Callable[[str, str], tuple[list[str], str]] | None = None
        self.address = ""

    def url(self, prefix: str = "twin") -> str:
        """Address of a store."""
        return f"s3://bucket/{prefix}"

    def listed(self, prefix: str, after: str) -> tuple[list[str], str]:
        """Keys of the page behind a key, and the token of the next; empty: there is none."""
        if self.page is not None:
            return self.page(prefix, after)
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        return keys[:PAGE], keys[PAGE - 1] if len(keys) > PAGE else ""

    def size(self, key: str) -> int:
        """Size as it is stated."""
        return self.lengths.get(key, len(self.objects.get(key, b"")))


def tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


@contextmanager
def serving() -> Iterator[FakeS3]:
    """A server on the loopback address."""
    fake = FakeS3()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

        def answer(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True
            if length is not None:
                self.close_connection = True

        def asked(self) -> tuple[str, dict[str, list[str]]]:
            parts = urlsplit(self.path)
            return unquote(parts.path).removeprefix("/bucket").removeprefix("/"), parse_qs(parts.query, True)

        def do_GET(self) -> None:
            key, query = self.asked()
            if "list-type" in query:
                self.list(query)
            elif key not in fake.objects:
                self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            else:
                data, at = fake.objects[key], "Sat, 28 Nov 2026 10:00:00 GMT"
                self.answer(200, data, fake.lengths.get(key), ETag=tag(data), Last_Modified=at)

        def list(self, query: dict[str, list[str]]) -> None:
            first = {name: values[0] for name, values in query.items()}
            after = first.get("continuation-token", first.get("start-after", ""))
            keys, token = fake.listed(first.get("prefix", ""), after)
            shown = quote if first.get("encoding-type") == "url" else escape
            rows = "".join(
                f"<Contents><Key>{shown(key)}</Key><LastModified>2026-11-28T10:00:00.000Z</LastModified>"
                f"<Size>{fake.size(key)}</Size><ETag>{escape(tag(fake.objects.get(key, b'')))}</ETag>"
                "</Contents>"
                for key in keys
            )
            more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
            body = f"<ListBucketResult><IsTruncated>{str(bool(token)).lower()}</IsTruncated>{rows}{more}"
            self.answer(200, f"{body}</ListBucketResult>".encode(), Content_Type="application/xml")

        def do_PUT(self) -> None:
            key, _ = self.asked()
            data = self.rfile.read(int(self.headers["Content-Length"]))
            there = fake.objects.get(key)
            wanted = self.headers.get("If-Match")
            if (self.headers.get("If-None-Match") == "*" and there is not None) or (
                wanted is not None and (there is None or wanted != tag(there))
            ):
                self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            else:
                fake.objects[key] = data
                self.answer(200, ETag=tag(data))

        def do_POST(self) -> None:  # of a removal of many
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(200, b"<DeleteResult></DeleteResult>")

        def do_DELETE(self) -> None:
            fake.objects.pop(self.asked()[0], None)
            self.answer(204)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    fake.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
