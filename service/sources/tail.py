"""Complete lines of a file that grows, across its rotation and across restarts of who reads.

Rotated files are looked for beside it, by the names of logrotate: `FILE.1`, `FILE-20261126`. The one that was
read last is known again by its inode and by the bytes around the position, so that both ways of rotation,
renaming and copying with truncation, lose nothing as long as the rotated file is there uncompressed.
"""

import os
import re
import stat
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ingest.core.errors import InputError

CHUNK_BYTES = 1 << 20
"""Most bytes of one chunk; a line that is longer is cut."""
LINES = 2_000
"""Most lines of one chunk."""
KNOWN_BYTES = 512
"""Bytes at the beginning and before the position by which a file is known again."""
QUIET_S = 2.0
"""A rotated file is left for the next one when nothing was written to it for so long."""
_ROTATED = re.compile(r"[.-]\d[\d.T_-]*")


class FilePosition(NamedTuple):
    """A place in a file: behind `offset` bytes, known again by a digest of bytes before it."""

    inode: int
    offset: int
    digest: str

    def text(self) -> str:
        """Returns the place as the key of a batch."""
        return f"{self.inode:x}:{self.offset:x}:{self.digest}"

    @classmethod
    def parsed(cls, text: str) -> "FilePosition | None":
        """Returns the place that `text` said; None where it said none."""
        found = re.fullmatch(r"([0-9a-f]+):([0-9a-f]+):([0-9a-f]{16})", text)
        return None if found is None else cls(int(found[1], 16), int(found[2], 16), found[3])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines without their ends, the first line of their file, and the place behind them."""

    lines: list[bytes]
    header: bytes
    at_start: bool  # `lines` begins with the header
    position: FilePosition


class FileTail:
    """Reads a file from `position` on; None: all that was written since `since_ns`, epoch, rotated or not."""

    def __init__(self, path: Path, position: FilePosition | None = None, since_ns: int = 0) -> None:
        self._path, self._position, self._since_ns = path, position, since_ns
        self._file: BinaryIO | None = None
        self._offset = 0
        self.lost = ""
        """Says what could not be found again; empty: every line was read."""

    def read(self) -> Chunk | None:
        """Returns the next complete lines; None: there are none now.

        Raises:
            InputError: the file is not there or cannot be read.
        """
        try:
            while True:
                if self._file is None:
                    self._open()
                assert self._file is not None
                if not self._same(self._file, self._position, os.fstat(self._file.fileno())):
                    self._drop()  # truncated, or written anew, in its place
                    continue
                found = self._lines(self._file)
                if found is not None or not self._moved_on(self._file):
                    return found
        except OSError as error:
            self._drop()
            raise InputError(f"{self._path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Closes the file."""
        self._drop()

    # -- which file

    def _open(self) -> None:
        """Opens the file of the position, or else the one that is followed."""
        wanted = self._position
        if wanted is not None:
            for path in self._candidates(wanted.inode):
                file = _opened(path)
                if self._same(file, wanted, os.fstat(file.fileno())):
                    self._file, self._offset = file, wanted.offset
                    return
                file.close()
            self._begin(self._path)
            self.lost = (
                f"{self._path}: the file that was read to byte {wanted.offset:,} is not there any more; "
                "lines behind that may be lost; begun again with the present file"
            )
            return
        since = [path for path in self._rotated() if path.stat().st_mtime_ns >= self._since_ns]
        self._begin(since[0] if since else self._path)

    def _begin(self, path: Path) -> None:
        self._drop()
        self._file, self._offset = _opened(path), 0
        self._position = FilePosition(os.fstat(self._file.fileno()).st_ino, 0, _digest(self._file, 0))

    def _candidates(self, inode: int) -> list[Path]:
        """Files that may be that of the position: of the same inode first, then the present one."""
        paths = [self._path, *self._rotated()]
        return sorted((path for path in paths if path.exists()), key=lambda path: path.stat().st_ino != inode)

    def _rotated(self) -> list[Path]:
        """Rotated files, the oldest first."""
        name = self._path.name
        found = [
            path for path in self._path.parent.iterdir()
            if path.name.startswith(name) and _ROTATED.fullmatch(path.name[len(name) :]) and path.is_file()
        ]  # fmt: skip
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    def _same(self, file: BinaryIO, position: FilePosition | None, now: os.stat_result) -> bool:
        if position is None:
            return True
        return now.st_size >= position.offset and _digest(file, position.offset) == position.digest

    def _moved_on(self, file: BinaryIO) -> bool:
        """True if another file has taken the place of this one, which is quiet: then that is open."""
        here = os.fstat(file.fileno())
        if self._path.exists() and os.path.samestat(self._path.stat(), here):
            return False
        if not _quiet(here) or not self._path.exists():
            return False
        following = self._after(here)
        self._begin(following)
        if following == self._path and self._after(here) != following:  # rotated while it was opened
            self._begin(self._after(here))
        return True

    def _after(self, here: os.stat_result) -> Path:
        """Returns the file that was written next."""
        later = (path for path in self._rotated() if path.stat().st_mtime_ns > here.st_mtime_ns)
        return next(later, self._path)

    def _drop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # -- lines

    def _lines(self, file: BinaryIO) -> Chunk | None:
        file.seek(self._offset)
        data = file.read(CHUNK_BYTES)
        end = data.rfind(b"\n") + 1
        if not end and (len(data) == CHUNK_BYTES or (data and self._ended(file))):
            end = len(data)  # too long a line, or the last one of a file that ends without a newline
        if not end:
            return None
        lines = data[:end].splitlines(keepends=True)
        if len(lines) > LINES:
            end = sum(map(len, lines[:LINES]))
        start, self._offset = self._offset, self._offset + end
        inode = os.fstat(file.fileno()).st_ino
        self._position = FilePosition(inode, self._offset, _digest(file, self._offset))
        file.seek(0)
        header = file.readline(CHUNK_BYTES).rstrip(b"\r\n")
        return Chunk([line.rstrip(b"\r\n") for line in lines[:LINES]], header, start == 0, self._position)

    def _ended(self, file: BinaryIO) -> bool:
        """True for a rotated file to which nothing is written any more."""
        here = os.fstat(file.fileno())
        rotated = self._path.exists() and not os.path.samestat(self._path.stat(), here)
        return rotated and _quiet(here)


def _quiet(file: os.stat_result) -> bool:
    """True if nothing was written for a while, or if one of the clocks is wrong."""
    return abs(time.time() - file.st_mtime) >= QUIET_S


def _opened(path: Path) -> BinaryIO:
    """Opens a regular file.

    Raises:
        InputError: it is a pipe, a device or a folder: such a thing has no beginning to go back to.
        OSError: it cannot be opened.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")  # of a pipe it would wait for a writer
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path}: no regular file; only such a file can be followed")
    return file


def _digest(file: BinaryIO, offset: int) -> str:
    """Digest of the first bytes of a file and of those before a place."""
    file.seek(0)
    known = sha256(file.read(min(KNOWN_BYTES, offset)))
    file.seek(max(0, offset - KNOWN_BYTES))
    known.update(file.read(min(KNOWN_BYTES, offset)))
    return known.hexdigest()[:16]
