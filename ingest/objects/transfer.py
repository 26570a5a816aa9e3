"""Listings and objects of a server that may say anything: bounded before they are in memory.

A server can state that an object has 200 GiB, list one name for ever, or answer with pages that hold nothing.
Each ends with a message.
"""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from ingest.core.errors import DamageError, StorageError
from ingest.core.terminal import clipped
from ingest.objects import plain_listing
from ingest.objects.client import asked

MAX_OBJECTS = 2_000_000
"""Objects of one listing."""
LISTING_S = 90.0
"""Seconds for which a listing may bring nothing: longer than all tries of one request."""
MAX_KEY = 4_096
"""Letters of a name; S3 allows 1,024."""


def listing(title: str, client: Any, under: str | None = None) -> Iterator[dict[str, Any]]:
    """Yields the objects below a folder as `obstore` describes them, each once.

    Raises:
        UsageError: access is refused. StorageError: the server cannot be asked, or its listing has no end.
    """
    from obstore.exceptions import InvalidPathError

    seen: set[str] = set()
    with asked(title, "listed"):
        try:
            for page in _Pages(title, client, under):
                yield from _checked(title, page, seen)
        except InvalidPathError:  # a key that `obstore` does not take hides all of its page
            before, seen = seen, set()
            for row in _checked(title, plain_listing.rows(title, client, under), seen):
                if row["path"] not in before:
                    yield row


def _checked(title: str, rows: Iterable[dict[str, Any]], seen: set[str]) -> Iterator[dict[str, Any]]:
    """Yields rows of a listing and adds their names to `seen`.

    Raises:
        StorageError: the listing has no end.
    """
    for row in rows:
        name = row["path"]
        if name in seen:
            raise _endless(title, f"{clipped(name)} is listed twice")
        if len(name) > MAX_KEY:
            raise _endless(title, f"a name has {len(name):,} letters")
        if len(seen) == MAX_OBJECTS:
            raise _endless(title, f"more than {MAX_OBJECTS:,} objects are listed")
        seen.add(name)
        yield row


def collected(title: str, found: Any, max_bytes: int) -> bytes:
    """Returns the bytes of an object that was asked for; `found` is the answer of `obstore.get`.

    Raises:
        DamageError: it has more than `max_bytes`; nothing of it was read.
    """
    size = found.meta["size"]
    if size > max_bytes:
        raise DamageError(
            f"{clipped(title, 200)}: has {size:,} bytes, and an object of its kind at most {max_bytes:,}; "
            "take it away, or restore an older version of the object"
        )
    return bytes(found.bytes())


def stream(title: str, found: Any, size_bytes: int) -> Iterator[bytes]:
    """Yields the bytes of an object that has to have this size, some at a time.

    Raises:
        DamageError: it has another size.
    """
    if (size := found.meta["size"]) != size_bytes:
        raise DamageError(
            f"{clipped(title, 200)}: {size:,} bytes, not the {size_bytes:,} that the copy lists; take an "
            "older copy"
        )
    for piece in found.stream():
        yield bytes(piece)


def _endless(title: str, problem: str) -> StorageError:
    return StorageError(
        f"{clipped(title, 200)} cannot be listed: {problem}; is AWS_ENDPOINT_URL that of an S3 server?"
    )


class _Pages:
    """Pages of a listing, asked for in a thread: a server that answers with empty pages holds up no more."""

    def __init__(self, title: str, client: Any, under: str | None) -> None:
        self._title = title
        self._arrived: queue.Queue[list[dict[str, Any]] | BaseException | None] = queue.Queue(4)
        self._left = threading.Event()
        threading.Thread(target=self._ask, args=(client, under), daemon=True).start()

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        try:
            while (page := self._arrived.get(timeout=LISTING_S)) is not None:
                if isinstance(page, BaseException):
                    raise page
                yield page
        except queue.Empty:
            raise _endless(self._title, f"for {LISTING_S:g} s the answers held nothing") from None
        finally:
            self._left.set()

    def _ask(self, client: Any, under: str | None) -> None:
        import obstore

        try:
            for page in obstore.list(client, under, chunk_size=1000):
                self._put(page)
                if self._left.is_set():
                    return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the pages are taken
            self._put(error)

    def _put(self, page: Any) -> None:
        while not self._left.is_set():
            try:
                self._arrived.put(page, timeout=1.0)
            except queue.Full:
                continue
            return
