"""A copy of a store in a bucket of an S3-compatible object store, by `obstore` (extra `s3`).

The manifest is written with conditions: `If-None-Match: *` where there is none, `If-Match` with the tag of
the one that was read. A server that ignores them would let two backups mix their files; it is found out and
refused. Access is described in `ingest/objects/client.py`.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

from ingest.core.errors import LockedError, StorageError, UsageError
from ingest.core.terminal import clipped, in_line
from ingest.objects.client import asked, client_of
from ingest.objects.transfer import collected, listing, stream
from replay.inventory import copy_manifest
from replay.inventory.copy_manifest import DERIVED, NAME, is_passed_over
from replay.inventory.places import Held, tag_of, unusable


class Bucket:
    """A prefix of a bucket; `client` is a store of `obstore`, `title` its name in messages."""

    def __init__(self, title: str, client: Any) -> None:
        self.title = title
        self._store = client
        self._tag: str | None = None  # of the manifest that was read or written last

    @classmethod
    def at(cls, url: str) -> Self:
        """Returns the place of `s3://BUCKET/PREFIX`; no request is made.

        Raises:
            UsageError: no bucket is named, the extra is missing, or there are no credentials.
        """
        return cls(clipped(url), client_of(url, "a copy in a bucket"))

    def manifest(self) -> bytes | None:
        """Returns the manifest, if it is there."""
        import obstore

        with self._asked("read"):
            try:
                found = obstore.get(self._store, NAME)
            except FileNotFoundError:
                return None
            self._tag = found.meta["e_tag"]
            return collected(f"{self.title}/{NAME}", found, copy_manifest.MAX_BYTES)

    def begin(self) -> bytes | None:
        """Returns the manifest; refuses other objects, and a server without conditional writes."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        data = self.manifest()
        if data is None:
            if strange := next((name for name, _ in self.held()), None):
                raise UsageError(
                    f"{self.title} is no copy that `twin backup` made, and not empty: it has "
                    f"{in_line(strange)}; name another prefix"
                )
            return None
        with self._asked("written"):
            try:
                obstore.put(self._store, NAME, data, mode="create")
            except AlreadyExistsError:
                return data
        raise UsageError(
            f"{self.title}: the server wrote over an object that had to be absent. It has no conditional "
            "writes (If-None-Match), without which two backups at once would mix; use another one"
        )

    def held(self) -> Iterator[tuple[str, Held]]:
        """Yields sizes and tags, by one listing."""
        for row in listing(self.title, self._store):
            name = row["path"]
            if name.split("/")[0] not in DERIVED and not any(map(is_passed_over, name.split("/"))):
                yield name, Held(row["size"], (row["e_tag"] or "").strip('"'))

    def pieces(self, name: str, size_bytes: int) -> Iterator[bytes]:
        """Yields the bytes of an object of this size."""
        import obstore

        with self._asked("read"):
            try:
                found = obstore.get(self._store, name)
            except FileNotFoundError as error:
                raise unusable(self, name, error) from None
            yield from stream(f"{self.title}/{name}", found, size_bytes)

    def write(self, name: str, data: bytes) -> str:
        """Writes an object in one request, of which S3 takes up to 5 GiB; parts, segments and weights are far
        smaller. The server's answer has to be the tag of these bytes, where it is their MD5."""
        import obstore

        with self._asked("written"):
            answer = obstore.put(self._store, name, data, use_multipart=False)
        tag = (answer["e_tag"] or "").strip('"')
        if len(tag) == len(tag_of(b"")) and tag != tag_of(data):
            raise StorageError(f"{self.title}/{name}: the server holds other bytes than were sent")
        return tag

    def replace_manifest(self, data: bytes) -> None:
        """Replaces the manifest that was read last."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        condition: Any = "create" if self._tag is None else {"e_tag": self._tag}
        with self._asked("written"):
            try:
                self._tag = obstore.put(self._store, NAME, data, mode=condition)["e_tag"]
            except (AlreadyExistsError, PreconditionError):
                raise LockedError(
                    f"{self.title}: another backup writes there; wait for it, then run this one again"
                ) from None

    def remove(self, name: str) -> None:
        """Takes an object away."""
        import obstore

        with self._asked("removed"):
            obstore.delete(self._store, name)

    def end(self) -> None:
        """Does nothing: there is no lock."""

    def _asked(self, what: str) -> AbstractContextManager[None]:
        return asked(self.title, what)
