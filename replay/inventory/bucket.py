"""A copy of a store in a bucket of an S3-compatible object store, by `obstore` (extra `s3`).

The mark is written with conditions: `If-None-Match: *` where there is none, `If-Match` with the tag of the
one that was read. A server that ignores them would let two backups mix their files; it is found out and
refused.
Access comes from the environment, as for other S3 clients: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_REGION, AWS_ENDPOINT_URL (a plain http one is allowed).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Self
from urllib.parse import urlsplit

from ingest.core import extras
from ingest.core.errors import LockedError, StorageError, UsageError
from ingest.core.terminal import clipped, in_line
from replay.inventory.places import MARK, Held, tag_of

TIMEOUT_S, RETRIES, RETRYING_S = 30, 4, 60


class Bucket:
    """A prefix of a bucket; `client` is a store of `obstore`, `title` its name in messages."""

    def __init__(self, title: str, client: Any) -> None:
        self.title = title
        self._store = client
        self._tag: str | None = None  # of the mark that was read or written last

    @classmethod
    def at(cls, url: str) -> Self:
        """Returns the place of `s3://BUCKET/PREFIX`; no request is made.

        Raises:
            UsageError: no bucket is named, or the extra is missing.
        """
        parts = urlsplit(url)
        if not parts.netloc:
            raise UsageError(f"{clipped(url)}: write s3://BUCKET/PREFIX")
        return cls(clipped(url), _client(parts.netloc, parts.path.strip("/")))

    def marked(self) -> bytes | None:
        """Returns the mark, if it is there."""
        import obstore

        with self._asked("read"):
            try:
                found = obstore.get(self._store, MARK)
            except FileNotFoundError:
                return None
            self._tag = found.meta["e_tag"]
            return bytes(found.bytes())

    def begin(self) -> bytes | None:
        """Returns the mark; refuses a prefix with other objects, and a server without conditional writes."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        data = self.marked()
        if data is None:
            if strange := next(iter(self.held()), None):
                raise UsageError(
                    f"{self.title} is no copy that `twin backup` made, and not empty: it has "
                    f"{in_line(strange)}; name another prefix"
                )
            return None
        with self._asked("written"):
            try:
                obstore.put(self._store, MARK, data, mode="create")
            except AlreadyExistsError:
                return data
        raise UsageError(
            f"{self.title}: the server wrote over an object that had to be absent. It has no conditional "
            "writes (If-None-Match), without which two backups at once would mix; use another one"
        )

    def held(self) -> dict[str, Held]:
        """Sizes and tags, by one listing."""
        import obstore

        with self._asked("listed"):
            rows = [row for rows in obstore.list(self._store) for row in rows]
        held = {row["path"]: Held(row["size"], (row["e_tag"] or "").strip('"')) for row in rows}
        return {name: one for name, one in held.items() if name != MARK}

    def read(self, name: str) -> bytes:
        """Returns the bytes of an object."""
        import obstore

        with self._asked("read"):
            return bytes(obstore.get(self._store, name).bytes())

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

    def mark(self, data: bytes) -> None:
        """Replaces the mark that was read last."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        condition: Any = "create" if self._tag is None else {"e_tag": self._tag}
        with self._asked("written"):
            try:
                self._tag = obstore.put(self._store, MARK, data, mode=condition)["e_tag"]
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

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """Turns what the client raises into errors of ours."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise UsageError(
                f"{self.title} cannot be {what}: access is refused. Set AWS_ACCESS_KEY_ID and "
                f"AWS_SECRET_ACCESS_KEY to keys with the right to it ({_first_line(error)})"
            ) from error
        except (BaseError, OSError) as error:
            raise StorageError(
                f"{self.title} cannot be {what}: {_first_line(error)}; is AWS_ENDPOINT_URL right, and is the "
                "bucket there?"
            ) from error


def _client(bucket: str, prefix: str) -> Any:
    """Returns the client of a bucket; no request is made."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise extras.missing("s3", "a copy in a bucket") from error
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    settings: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if not os.environ.get("AWS_REGION"):
        settings["region"] = "us-east-1"
    make: Callable[..., Any] = S3Store
    return make(
        bucket,
        prefix=prefix or None,
        client_options={"allow_http": bool(endpoint), "timeout": timedelta(seconds=TIMEOUT_S)},
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRYING_S)},
        **settings,
    )


def _first_line(error: BaseException) -> str:
    return clipped(in_line(str(error).partition("\n")[0]), 200)
