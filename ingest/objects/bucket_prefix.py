"""Objects below a prefix of a bucket: listed, read, and written only where there is none.

A write has the condition `If-None-Match: *`. The server may carry out a request whose answer is lost, and the
client then asks again and hears that the object is there. So an object that is there is read, and counts as
written where it has the bytes of this request: bytes that no other writer sends, see `replay/log/batch.py`.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import md5
from typing import Any

from ingest.core.errors import ExistsError, StorageError, UsageError
from ingest.objects import transfer
from ingest.objects.client import asked, client_of

PROBE = "conditional-writes"
"""Object that shows that the server keeps what is there."""
AT_ONCE = 8
"""Objects that are read at a time."""
MAX_OBJECT_BYTES = 1 << 30
"""Bytes of an object that is read at once: far above those of a batch of events and of a part of the lake."""
MAX_TOGETHER_BYTES = 1 << 28
"""Bytes of objects that are read at a time, unless one has more."""
MD5_HEX = 32
PAGE = 1000
"""Objects of a listing, or of a removal, in one request."""
_NO_TAG = '"00000000000000000000000000000000"'


def tag_of(data: bytes) -> str:
    """Returns the MD5 of bytes: the tag that most servers give an object."""
    return md5(data, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object of a listing: size, tag (the MD5 of its bytes on most servers), time of its write (UTC)."""

    size_bytes: int
    tag: str
    modified: datetime


@dataclass(slots=True)
class RequestCounts:
    """Requests that were made, by kind; tries of one request that failed count once."""

    put: int = 0
    get: int = 0
    list: int = 0
    delete: int = 0

    @property
    def total(self) -> int:
        """All requests."""
        return self.put + self.get + self.list + self.delete

    def to_json(self) -> dict[str, int]:
        """Returns the counts by kind."""
        return {"put": self.put, "get": self.get, "list": self.list, "delete": self.delete}


@dataclass(slots=True)
class ObjectPrefix:
    """Objects below `title`, an address `s3://BUCKET/PREFIX`; `client` is a store of `obstore`."""

    title: str
    client: Any
    requests: RequestCounts = field(default_factory=RequestCounts)
    swaps: bool = False
    """True once the server was seen to keep its conditions, see `check_swaps`."""

    @classmethod
    def at(cls, url: str) -> "ObjectPrefix":
        """Returns the objects below `s3://BUCKET/PREFIX`; no request is made.

        Raises:
            UsageError: no bucket is named, the extra is missing, or there are no credentials.
        """
        return cls(url.rstrip("/"), client_of(url))

    def listed(self, under: str = "") -> dict[str, ListedObject]:
        """Returns every object below a folder (`runs/`), by name; a request for each 1,000 of them."""

        rows = transfer.listing(self._named(under), self.client, under.rstrip("/") or None)
        found = {
            row["path"]: ListedObject(row["size"], (row["e_tag"] or "").strip('"'), row["last_modified"])
            for row in rows
        }
        self.requests.list += max(1, -(-len(found) // PAGE))
        return found

    def read(self, name: str, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """Returns the bytes of an object.

        Raises:
            UsageError, StorageError: it is not there, or cannot be read. DamageError: it is larger.
        """
        import obstore

        self.requests.get += 1
        with asked(self._named(name), "read"):
            return transfer.collected(self._named(name), obstore.get(self.client, name), max_bytes)

    def read_all(self, sizes: Mapping[str, int]) -> Iterator[bytes]:
        """Yields the bytes of objects in the order of these names, each with its listed size, a few read at a
        time.

        Raises:
            DamageError: one is larger than listed, or than any object is.
        """
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for names in _groups(sizes):
                limits = [min(sizes[name], MAX_OBJECT_BYTES) for name in names]
                yield from pool.map(self.read, names, limits)

    def create(self, name: str, data: bytes) -> None:
        """Writes an object where there is none, in one request; durable on return.

        Raises:
            ExistsError: it is there, with other bytes.
            UsageError, StorageError: it cannot be written; it may be there all the same.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        self.requests.put += 1
        with asked(self._named(name), "written"):
            try:
                answer = obstore.put(self.client, name, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                answer = None
        if answer is None:
            if self.read(name) != data:
                raise ExistsError(f"{self._named(name)}: is there already, with other bytes")
            return
        self._check_tag(name, data, answer["e_tag"])

    def replace(self, name: str, data: bytes) -> None:
        """Writes an object in place of another; for pointers and records that can be derived again."""
        import obstore

        self.requests.put += 1
        with asked(self._named(name), "written"):
            answer = obstore.put(self.client, name, data, use_multipart=False)
        self._check_tag(name, data, answer["e_tag"])

    def check_conditional(self) -> None:
        """Checks that the server keeps an object that has to be absent: one request, two the first time.

        Raises:
            UsageError: it writes over it, or does not know the condition.
        """
        if not (self._refused("create") or self._refused("create")):
            raise self._unconditional("had to be absent", "If-None-Match")

    def check_swaps(self) -> None:
        """Checks, once, that the server keeps an object that was to be another one: three requests at most.

        Raises:
            UsageError: it writes over it, or does not know the condition.
        """
        if not self.swaps:
            self.check_conditional()
            if not self._refused({"e_tag": _NO_TAG}):
                raise self._unconditional("had to be another one", "If-Match")
            self.swaps = True

    def remove(self, names: Iterable[str]) -> None:
        """Takes objects away that nothing names; one that is gone already is no error."""
        import obstore

        if todo := list(names):
            self.requests.delete += -(-len(todo) // PAGE)
            with asked(self.title, "removed"):
                obstore.delete(self.client, todo)

    def _refused(self, condition: Any) -> bool:
        """True if the server does not write the probe under this condition."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

        self.requests.put += 1
        with asked(self._named(PROBE), "written"):
            try:
                obstore.put(self.client, PROBE, b"", mode=condition, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return True
            except (NotSupportedError, NotImplementedError) as error:
                raise self._unconditional("had to be absent", "If-None-Match, If-Match") from error
        return False

    def _unconditional(self, was: str, header: str) -> UsageError:
        return UsageError(
            f"{self.title}: the server wrote over an object that {was}, or does not know "
            f"the condition. It has no conditional writes ({header}), so two writers would "
            "overwrite each other unnoticed; use another server, or a store on a disk and `twin backup`"
        )

    def _check_tag(self, name: str, data: bytes, answered: str | None) -> None:
        tag = (answered or "").strip('"')
        if len(tag) == MD5_HEX and tag != tag_of(data):
            raise StorageError(f"{self._named(name)}: the server holds other bytes than were sent")

    def _named(self, name: str) -> str:
        return f"{self.title}/{name}".rstrip("/")


def _groups(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Yields names of objects that are in memory together."""
    group: list[str] = []
    total = 0
    for name, size in sizes.items():
        if group and (len(group) == 4 * AT_ONCE or total + size > MAX_TOGETHER_BYTES):
            yield group
            group, total = [], 0
        group.append(name)
        total += size
    if group:
        yield group


_open: dict[tuple[object, ...], ObjectPrefix] = {}


def connected(url: str) -> ObjectPrefix:
    """Returns the objects below `s3://BUCKET/PREFIX`, one client for all that this process asks there.

    A forked process has its own, since the threads of a client do not go with it.

    Raises:
        UsageError: as `ObjectPrefix.at`.
    """
    access = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    key = (os.getpid(), url, *(os.environ.get(name) for name in access))
    if key not in _open:
        _open[key] = ObjectPrefix.at(url)
    return _open[key]
