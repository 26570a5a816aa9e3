"""A folder for temporary files that nobody reads later; what a killed process leaves, the next deletes."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

PREFIX = ".scratch-"


class Scratch:
    """A new folder in `parent`, deleted on `close`; its lock tells it from the left-overs deleted here.

    Without `parent` it lies where the system keeps temporary files.

    Attributes:
        path: the folder; None if `parent` is missing or cannot be written.
    """

    path: Path | None = None

    def __init__(self, parent: Path | None = None):
        self._lock = -1
        with suppress(OSError):  # a read-only store has no scratch folder
            folder = Path(tempfile.gettempdir()) if parent is None else parent.absolute()
            _sweep(folder)
            while self.path is None:
                made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
                self._lock = _locked(made)
                if self._lock >= 0:
                    self.path = made

    def close(self) -> None:
        """Delete the folder and what is in it."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self.path = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def left(parent: Path) -> list[Path]:
    """Returns the folders here whose process has ended; the next `Scratch` deletes them."""
    found = []
    for path in sorted(parent.iterdir()):
        if path.name.startswith(PREFIX) and (lock := _locked(path)) >= 0:
            os.close(lock)
            found.append(path)
    return found


def _sweep(parent: Path) -> None:
    """Delete the folders here whose process has ended."""
    for path in parent.iterdir():
        if path.name.startswith(PREFIX):
            lock = _locked(path)
            if lock >= 0:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _locked(path: Path) -> int:
    """A descriptor that holds the lock of a folder; -1: another process holds it, or has just deleted it."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), path.lstat()):
            return lock
    except OSError:
        pass
    os.close(lock)
    return -1
