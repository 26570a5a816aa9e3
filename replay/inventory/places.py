"""Where copies of a store lie: a folder, or a prefix of a bucket.

A place holds files by their names in the store, and a mark that says what the copy is. The mark is replaced
only by who read the one before, so that of two backups at once one is told.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Protocol

from ingest.core import durable
from ingest.core.durable import Lock
from ingest.core.errors import UsageError
from ingest.core.terminal import clipped, shown

MARK = "backup.json"


@dataclass(frozen=True, slots=True)
class Held:
    """A file of a place: its size, and a tag that changes with its bytes; "" where there is none."""

    size_bytes: int
    tag: str


class BackupPlace(Protocol):
    """Files by name, such as `runs/RUN/00000000000000000000.json`."""

    @property
    def title(self) -> str:
        """Name for messages."""

    def marked(self) -> bytes | None:
        """Returns the mark, None where there is none; nothing is changed.

        Raises:
            UsageError, StorageError: the place cannot be read.
        """

    def begin(self) -> bytes | None:
        """Returns the mark, None for an empty place; to be called before anything is written.

        Raises:
            UsageError: the place holds something else, or cannot be used. LockedError: another backup writes.
        """

    def held(self) -> dict[str, Held]:
        """Returns every file but the mark."""

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file."""

    def write(self, name: str, data: bytes) -> str:
        """Writes a file, in place of other bytes, durable on return; returns its tag."""

    def mark(self, data: bytes) -> None:
        """Replaces the mark.

        Raises:
            LockedError: another backup replaced it meanwhile.
        """

    def remove(self, name: str) -> None:
        """Takes a file away for good."""

    def end(self) -> None:
        """Lets others in."""


class Folder:
    """A copy in a folder. Tags are the MD5 of the bytes, as those of buckets are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: Lock | None = None

    @property
    def title(self) -> str:
        """Path of the folder."""
        return clipped(str(self.root))

    def marked(self) -> bytes | None:
        """Returns the mark, if it is there."""
        mark = self.root / MARK
        return mark.read_bytes() if mark.is_file() else None

    def begin(self) -> bytes | None:
        """Locks the folder, which must be empty or a copy, and returns its mark."""
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.title} is a file; name a folder")
        if self.root.is_dir() and self.marked() is None:
            found = sorted(path.name for path in self.root.iterdir() if path.name != ".lock")
            if found:
                raise UsageError(
                    f"{self.title} is no copy that `twin backup` made, and not empty: it has "
                    f"{shown(found[0])}; name another folder"
                )
        durable.make_directory(self.root)
        self._lock = Lock(self.root / ".lock")
        return self.marked()

    def held(self) -> dict[str, Held]:
        """Sizes and no tags: bytes are compared where that is cheap."""
        found = {str(path.relative_to(self.root)): path for path in files(self.root)}
        return {name: Held(path.stat().st_size, "") for name, path in found.items() if name != MARK}

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file."""
        return (self.root / name).read_bytes()

    def write(self, name: str, data: bytes) -> str:
        """Writes a file unless it has these bytes."""
        path = self.root / name
        if not (path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data):
            durable.replace(path, data)
        return tag_of(data)

    def mark(self, data: bytes) -> None:
        """Replaces the mark."""
        durable.replace(self.root / MARK, data)

    def remove(self, name: str) -> None:
        """Takes a file away for good."""
        durable.remove(self.root / name)

    def end(self) -> None:
        """Lets others in."""
        if self._lock is not None:
            self._lock.release()


def tag_of(data: bytes) -> str:
    """Returns the MD5 of `data`, which S3 gives an object that was written at once; not for security."""
    return md5(data, usedforsecurity=False).hexdigest()


def files(root: Path) -> Iterator[Path]:
    """Yields the files under `root`, itself where it is one, by name; hidden ones and locks are left out,
    links are never followed."""
    if root.is_file() and not root.is_symlink():
        yield root
    elif root.is_dir() and not root.is_symlink():
        for entry in sorted(root.iterdir()):
            if not passing(entry):
                yield from files(entry)


def passing(path: Path) -> bool:
    """True for hidden files and locks, which no copy has."""
    return path.name.startswith(".") or path.name.endswith("lock")


def place_of(text: str) -> BackupPlace:
    """Returns the place that a user names: `s3://bucket/prefix`, else a folder.

    Raises:
        UsageError: the bucket cannot be named so, or the extra `s3` is missing.
    """
    if "://" not in text:
        return Folder(Path(text))
    if not text.startswith("s3://"):
        raise UsageError(f"{shown(text)}: a copy lies in a folder or at s3://BUCKET/PREFIX")
    from replay.inventory.bucket import Bucket

    return Bucket.at(text)
