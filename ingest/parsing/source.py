"""One source of rows: a file, or a member of an archive that is read in place."""

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from ingest.core.errors import InputError
from ingest.core.file_kinds import refuse_special
from ingest.parsing import text_encoding

SMALL_BYTES = 16 * 1024**2
"""Sources up to this size are held in memory while they are read."""
HEAD_BYTES = 16 * 1024
"""Bytes of a file by which a reader recognises it."""
BOM = b"\xef\xbb\xbf"
"""The byte order mark that some programs write before UTF-8."""
_CHUNK = 1 << 20
_PIECE = re.compile(r"@[0-9]+-([0-9]+)$")


@dataclass(frozen=True, slots=True)
class Source:
    """One file to read. `name` is its path inside the data set; members read `archive.tar.gz/member`."""

    name: str
    sha256: str
    size_bytes: int
    head: bytes
    shown: str
    """Name for the user: the path given, and the member."""
    opener: Callable[[], BinaryIO] = field(repr=False, compare=False)
    local: Path | None = None
    """Path of the content, if it is a file of its own."""
    archive_bytes: int | None = None
    """Size of the archive that it is in: what is decoded is measured by what lies on the disk."""

    @property
    def disk_bytes(self) -> int:
        """Bytes that the content takes on the disk, at most."""
        return self.size_bytes if self.archive_bytes is None else min(self.size_bytes, self.archive_bytes)

    @property
    def path(self) -> PurePosixPath:
        """The name as a path, of a piece that of its file; readers take hosts and directions from it."""
        return PurePosixPath(file_of(self.name))

    @property
    def small(self) -> bool:
        """True if the source may be read whole into memory."""
        return self.size_bytes <= SMALL_BYTES

    def open(self) -> BinaryIO:
        """A fresh binary stream over the content; text in UTF-8, its lines ended by line feeds."""
        return self.opener()

    def seekable(self) -> BinaryIO:
        """A stream that can be read in any order.

        Raises:
            InputError: it lies in an archive and is too large to be held in memory.
        """
        return self.local.open("rb") if self.local is not None else io.BytesIO(self.data())

    def data(self) -> bytes:
        """The whole content.

        Raises:
            InputError: it is larger than a document may be.
        """
        if not self.small:
            limit = SMALL_BYTES // 1024**2
            raise InputError(f"{self.shown}: larger than {limit} MiB, too large for one document; split it")
        with self.open() as stream:
            return stream.read()


def piece_name(file: str, start: int, end: int) -> str:
    """The name of the bytes `start` to `end` of a file that is followed while it grows."""
    return f"{file}@{start}-{end}"


def piece_end(name: str) -> int | None:
    """Returns the end of a piece of that name in bytes; None for a whole file."""
    found = _PIECE.search(name)
    return int(found[1]) if found else None


def file_of(name: str) -> str:
    """The file that a name is a piece of, or is."""
    return _PIECE.sub("", name)


def from_bytes(name: str, shown: str, data: bytes) -> Source:
    """A source whose content is at hand. Empty files are keyed by their name: they have nothing in common."""
    digest, size = hashlib.sha256(data or b"empty:" + name.encode()).hexdigest(), len(data)
    data = text_encoding.plain(data, text_encoding.of(data[:HEAD_BYTES]))
    return Source(name, digest, size, data[:HEAD_BYTES], shown, lambda: io.BytesIO(data))


def from_stream(
    name: str, shown: str, identity: tuple[str, int], head: bytes, opener: Callable[[], BinaryIO],
    local: Path | None = None,
) -> Source:  # fmt: skip
    """A source too large for memory: its SHA-256 and length, its first bytes, and how it is opened."""
    translated = text_encoding.of(head)
    if translated is None:
        return Source(name, *identity, head, shown, opener, local)
    head = text_encoding.plain(head, translated)
    return Source(name, *identity, head, shown, lambda: text_encoding.stream(opener(), translated), local)


def from_file(path: Path, name: str) -> Source:
    """A loose file; hashed once, kept in memory when small.

    Raises:
        InputError: it cannot be read.
    """
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    try:
        expected = refuse_special(path).st_size
        if expected <= SMALL_BYTES:
            with open(path, "rb", buffering=0) as raw:  # noqa: PTH123  # thousands of small files: 10 us each
                data = raw.read(expected + 1) or b""
            if len(data) == expected:  # else it changes while it is read
                return from_bytes(name, str(path), data)
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            stream.seek(0)
            digest, size = digest_of(stream)
    except OSError as error:
        raise unreadable(path, error) from error

    def opened() -> BinaryIO:
        return cast(BinaryIO, _Bounded(path.open("rb"), size))

    return from_stream(name, str(path), (digest, size), head, opened, path)


def unreadable(path: Path, error: OSError) -> InputError:
    """The error for a file that the system does not let us read."""
    return InputError(f"{path}: cannot be read ({error.strerror}); check the file and its rights")


def digest_of(stream: BinaryIO) -> tuple[str, int]:
    """SHA-256 and length of what is left of the stream."""
    hasher, size = hashlib.sha256(), 0
    while chunk := stream.read(_CHUNK):
        hasher.update(chunk)
        size += len(chunk)
    return hasher.hexdigest(), size


class _Bounded(io.RawIOBase):
    """The first `size` bytes of a file, so that what is read is what was hashed even while it grows."""

    def __init__(self, stream: BinaryIO, size: int):
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self._stream.read(min(len(view), self._left))
        view[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()
