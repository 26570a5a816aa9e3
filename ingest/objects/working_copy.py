"""Working copies: the folder in which commands work on a store that lies in a bucket.

It holds what was read from the bucket, each file in the form of a store on a disk, and the mark `bucket.json`
with the address. Nothing in it is the only copy of an event, a measurement or a checkpoint that was
acknowledged: it may be deleted at any time.
"""

import hashlib
import os
from pathlib import Path

from ingest.core import integrity
from ingest.core.durable import Disk, make_directory, replace
from ingest.core.errors import DamageError, UsageError
from ingest.objects.client import parts_of

MARK = "bucket.json"
SCHEMA = "twin.bucket/1"


class UnsyncedDisk(Disk):
    """The disk without waiting for it: files of a working copy are made again from the bucket."""

    def fsync(self, fd: int) -> None:
        """Waits for nothing."""

    def fsync_file(self, path: Path) -> None:
        """Waits for nothing."""

    def fsync_directory(self, path: Path) -> None:
        """Waits for nothing."""


CACHE = UnsyncedDisk()
"""Where files of working copies are written: of its own, so that a dry run reads as any other."""


def folder_of(url: str) -> Path:
    """Returns the folder of the working copy of `s3://BUCKET/PREFIX`; it need not exist.

    It lies in XDG_CACHE_HOME (else ~/.cache). Stores of different servers have different folders.

    Raises:
        UsageError: no bucket is named.
    """
    bucket, prefix = parts_of(url)
    place = "\n".join((os.environ.get("AWS_ENDPOINT_URL", ""), bucket, prefix))
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "twin" / "buckets" / f"{bucket}-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def marked(url: str) -> Path:
    """Returns the folder of the working copy, made and marked where it is not there."""
    bucket, prefix = parts_of(url)
    folder = folder_of(url)
    if bucket_of(folder) is None:
        make_directory(folder, disk=CACHE)
        address = f"s3://{bucket}/{prefix}".rstrip("/")
        replace(folder / MARK, integrity.sealed({"schema": SCHEMA, "url": address}), disk=CACHE)
    return folder


def bucket_of(store: Path) -> str | None:
    """Returns the address of the bucket of a store; None: it lies on a disk.

    Raises:
        DamageError: the mark is not what was written.
    """
    data = integrity.read_optional(store / MARK)
    if data is None:
        return None
    fields = integrity.unsealed(data, SCHEMA, {"url": str})
    if fields is None:
        raise DamageError(f"{store / MARK}: its bytes are not those that were written; delete {store}")
    return str(fields["url"])


def refuse(store: Path, what: str) -> None:
    """Checks that a store lies on a disk, for work that a bucket cannot keep.

    Raises:
        UsageError: it lies in a bucket; `what` is not done there.
    """
    if (url := bucket_of(store)) is not None:
        raise UsageError(
            f"{url}: {what} works on a store on a disk only; `twin sync {url} DIR` makes one from the bucket"
        )
