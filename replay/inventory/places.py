"""Where copies of a store lie: a folder, or a prefix of a bucket.

A place holds files by their names in the store, and a manifest that says what the copy is. The manifest is
replaced only by a backup that read the one before, so that of two backups at once one is told. A copy may
come from anywhere: what lies in a place is a regular file or refused, and is read in pieces.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import Protocol

from ingest.core import durable, integrity
from ingest.core.durable import Lock
from ingest.core.errors import DamageError, StorageError, UsageError
from ingest.core.integrity import IrregularFileError
from ingest.core.terminal import SENTENCE, clipped, shown
from replay.inventory import copy_manifest
from replay.inventory.copy_manifest import DERIVED, MAX_DEPTH, NAME, is_passed_over

PIECE_BYTES = 1 << 20
"""Bytes of a file that are in memory at a time."""


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

    def manifest(self) -> bytes | None:
        """Returns the manifest, None where there is none; nothing is changed.

        Raises:
            UsageError, StorageError, DamageError: the place cannot be read.
        """

    def begin(self) -> bytes | None:
        """Returns the manifest, None for an empty place; to be called before anything is written.

        Raises:
            UsageError: the place holds something else, or cannot be used. LockedError: another backup writes.
        """

    def held(self) -> Iterator[tuple[str, Held]]:
        """Yields every file but the manifest, in any order, with its name; hidden ones, locks and what is
        derived are passed over.

        Raises:
            DamageError: a link, a FIFO or a device lies there.
        """

    def pieces(self, name: str, size_bytes: int) -> Iterator[bytes]:
        """Yields the bytes of a file of this size, some at a time.

        Raises:
            DamageError: it is not there, is no regular file, or has another size.
        """

    def write(self, name: str, data: bytes) -> str:
        """Writes a file, in place of other bytes, durable on return; returns its tag."""

    def replace_manifest(self, data: bytes) -> None:
        """Replaces the manifest.

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

    def manifest(self) -> bytes | None:
        """Returns the manifest, if it is there."""
        try:
            return integrity.read_regular(self.root / NAME, copy_manifest.MAX_BYTES)
        except (FileNotFoundError, ValueError):  # ValueError: no file can have such a name
            return None

    def begin(self) -> bytes | None:
        """Locks the folder, which must be empty or a copy, and returns its manifest."""
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{self.title} is a file; name a folder")
        if self.root.is_dir() and self.manifest() is None:
            found = sorted(path.name for path in self.root.iterdir() if path.name != ".lock")
            if found:
                raise UsageError(
                    f"{self.title} is no copy that `twin backup` made, and not empty: it has "
                    f"{shown(found[0])}; name another folder"
                )
        durable.make_directory(self.root)
        self._lock = Lock(self.root / ".lock")
        return self.manifest()

    def held(self) -> Iterator[tuple[str, Held]]:
        """Yields sizes and no tags: bytes are compared where that is cheap."""
        folders = [""]
        while folders:
            above = folders.pop()
            for name, status in self._entries(above):
                if stat.S_ISDIR(status.st_mode):
                    if name.count("/") + 1 >= MAX_DEPTH:
                        raise DamageError(
                            f"{self.title}/{clipped(name, SENTENCE)}: a copy has no folders so deep"
                        )
                    folders.append(name)
                elif stat.S_ISREG(status.st_mode):
                    yield name, Held(status.st_size, "")
                else:
                    raise DamageError(
                        f"{self.title}/{clipped(name, SENTENCE)}: {_kind(status)}, and a copy has regular "
                        "files only; take it away, then run the command again"
                    )

    def pieces(self, name: str, size_bytes: int) -> Iterator[bytes]:
        """Yields the bytes of a file of this size."""
        try:
            with integrity.open_regular(self.root / name) as stream:
                if os.fstat(stream.fileno()).st_size != size_bytes:
                    raise IrregularFileError(f"not the {size_bytes:,} bytes that the copy lists")
                yield from iter(lambda: stream.read(PIECE_BYTES), b"")
        except (IrregularFileError, OSError) as error:
            raise unusable(self, name, error) from None

    def write(self, name: str, data: bytes) -> str:
        """Writes a file unless it has these bytes."""
        path = self.root / name
        if not (path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data):
            durable.replace(path, data)
        return tag_of(data)

    def replace_manifest(self, data: bytes) -> None:
        """Replaces the manifest."""
        durable.replace(self.root / NAME, data)

    def remove(self, name: str) -> None:
        """Takes a file away for good, and its folder if that is empty then: no run is one without files."""
        path = self.root / name
        durable.remove(path)
        if path.parent != self.root and not any(path.parent.iterdir()):
            durable.remove_tree(path.parent)

    def end(self) -> None:
        """Lets others in."""
        if self._lock is not None:
            self._lock.release()

    def _entries(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yields name and status of what lies in a folder of the copy and may belong to it."""
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}".removeprefix("/")
                    status = entry.stat(follow_symlinks=False)
                    derived = not folder and entry.name in DERIVED and not stat.S_ISLNK(status.st_mode)
                    if not derived and not is_passed_over(entry.name) and name != NAME:
                        yield name, status
        except OSError as error:
            raise StorageError(
                f"{self.title}/{clipped(folder, SENTENCE)}: cannot be listed ({error.strerror}); mend the "
                "disk or its rights, then run the command again"
            ) from error


def unusable(place: BackupPlace, name: str, problem: Exception) -> DamageError:
    """Returns the error on a file of a copy that cannot be taken."""
    if isinstance(problem, FileNotFoundError):
        what = "missing from the copy"
    elif isinstance(problem, OSError):
        what = f"cannot be read ({problem.strerror})"
    else:
        what = str(problem)
    return DamageError(f"{place.title}/{clipped(name, SENTENCE)}: {what}; take an older copy")


def _kind(status: os.stat_result) -> str:
    """What something is that is neither a regular file nor a folder, in words."""
    kinds = ((stat.S_ISLNK, "a link"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((words for test, words in kinds if test(status.st_mode)), "a device")


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
            if not is_passed_over(entry.name):
                yield from files(entry)


def place_of(text: str) -> BackupPlace:
    """Returns the place that a user names: `s3://bucket/prefix`, else a folder.

    Raises:
        UsageError: the bucket cannot be named so, or the extra `s3` is missing.
    """
    if "://" not in text and "\0" not in text:
        return Folder(Path(text))
    if not text.startswith("s3://"):
        raise UsageError(f"{shown(text)}: a copy lies in a folder or at s3://BUCKET/PREFIX")
    from replay.inventory.bucket import Bucket

    return Bucket.at(text)
