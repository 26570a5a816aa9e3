"""A dry run: the command runs, and the disk only notes what it would write.

All files are written through the one `Disk` of `ingest/core/durable.py`, which takes another class meanwhile.
What writes single files runs to its end; work that reads what it has written (a run, a training) foretells
that and ends there, after all that is checked before it begins. Caches that libraries keep are no part of it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ingest.core.durable import DISK, TEMPORARY, Disk

NO_DESCRIPTOR = 1 << 30
"""Numbers from here on are no descriptors of the process."""


class Change(NamedTuple):
    """A path that would change: how, and to what."""

    what: str
    path: str
    detail: str

    @property
    def line(self) -> str:
        """In words: `would write page.html (12,345 bytes)`."""
        return f"would {self.what} {self.path}{f' ({self.detail})' if self.detail else ''}"

    def to_json(self) -> dict[str, Any]:
        """Returns the fields of `--dry-run --json`."""
        return {"change": self.what, "path": self.path, "detail": self.detail or None}


class DryRunEnd(BaseException):
    """The command would go on with work on what it has written. No failure, so no `TwinError`."""


class NotingDisk(Disk):
    """The system calls of a commit, none of which changes anything; `changes` are those that would be."""

    changes: list[Change]
    sizes: dict[int, int]
    named: dict[Path, int]

    def create(self, path: Path) -> int:
        """Returns the number of a file that takes bytes and keeps none; no descriptor has it."""
        fd = NO_DESCRIPTOR + len(self.sizes)
        self.named[path], self.sizes[fd] = fd, 0
        return fd

    def open_in_place(self, path: Path) -> int:
        """Notes that something that is no file would be written; opens nothing."""
        self._note("write", path, "not a regular file: opened and written")
        return self.create(path)

    def write(self, fd: int, data: memoryview) -> int:
        """Counts the bytes."""
        self.sizes[fd] += len(data)
        return len(data)

    def close(self, fd: int) -> None:
        """Has nothing to give back."""

    def fsync(self, fd: int) -> None:
        """Waits for nothing."""

    def fsync_file(self, path: Path) -> None:
        """Waits for nothing."""

    def fsync_directory(self, path: Path) -> None:
        """Waits for nothing."""

    def link(self, source: Path, target: Path) -> None:
        """Notes a new file; fails where the name is taken, as the call does."""
        if target.exists():
            raise FileExistsError(target)
        self._note("write", target, f"{self._size(source):,} bytes")

    def rename(self, source: Path, target: Path) -> None:
        """Notes a file that is replaced, or one that is moved."""
        if source in self.named:
            self._note("replace" if target.exists() else "write", target, f"{self._size(source):,} bytes")
        else:
            self._note("move", source, f"to {target}")

    def unlink(self, path: Path) -> None:
        """Notes a file that goes."""
        if not TEMPORARY.fullmatch(path.name):
            self._note("remove", path, "")

    def rmdir(self, path: Path) -> None:
        """Leaves an empty folder."""

    def mkdir(self, path: Path) -> None:
        """Makes no folder: files are noted with theirs."""

    def lock(self, path: Path) -> int:
        """Opens the file as it is; where there is none, nobody holds it."""
        if not path.exists():
            return -1
        with path.open("rb") as held:
            return os.dup(held.fileno())

    def sign(self, fd: int) -> None:
        """Leaves the lock as it is."""

    def send(self, request: Callable[[], object]) -> None:
        """Sends nothing: the files that follow are noted."""

    def foretell(self, *changes: tuple[Path, str]) -> None:
        """Notes the changes and ends the command.

        Raises:
            DryRunEnd: always.
        """
        for path, what in changes:
            self._note("write", path, what)
        raise DryRunEnd

    def _size(self, temporary: Path) -> int:
        return self.sizes[self.named[temporary]]

    def _note(self, what: str, path: Path, detail: str) -> None:
        change = Change(what, str(path), detail)
        if change not in self.changes:
            self.changes.append(change)


@contextmanager
def noting() -> Iterator[list[Change]]:
    """Lets nothing be written in the body; the list that is yielded has what would have been.

    The disk keeps its identity, since functions hold it as a default argument, and changes its class.
    """
    changes: list[Change] = []
    vars(DISK).update(changes=changes, sizes={}, named={})
    DISK.__class__ = NotingDisk
    try:
        yield changes
    except DryRunEnd:
        return
    finally:
        DISK.__class__ = Disk
        vars(DISK).clear()
