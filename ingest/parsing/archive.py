"""Archives and compressed files, read in place: checked whole first, never unpacked to disk.

The first pass walks the archive to its end. It refuses members that would escape, and contents out of all
proportion, and finds a cut archive before a single row is taken from it. Small archives are kept from that
pass; larger ones are walked again, member by member.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, BinaryIO, cast

from ingest.core.errors import InputError
from ingest.core.file_kinds import refuse_special
from ingest.parsing.source import (
    HEAD_BYTES,
    SMALL_BYTES,
    Source,
    digest_of,
    from_bytes,
    from_stream,
    unreadable,
)

KEPT_BYTES = 64 * 1024**2
"""Contents up to this size together are kept from the first pass."""
MAX_RATIO = 1000
"""Content over archive size from which on an archive is taken for a bomb..."""
RATIO_FLOOR_BYTES = 256 * 1024**2
"""...once its content is larger than this."""
MAX_MEMBERS = 1_000_000
SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip", ".gz", ".xz", ".bz2")
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError)
_CHUNK = 1 << 20

Skip = tuple[str, str]
"""A member that is left out, and why."""


@dataclass(frozen=True, slots=True)
class ArchiveIndex:
    """Content of a checked archive: the sources in order, and the members left out."""

    sources: Callable[[], Iterator[Source]]
    count: int
    skipped: tuple[Skip, ...]


def is_archive(path: PurePath) -> bool:
    """Returns True if the name is that of an archive or a compressed file."""
    return path.name.lower().endswith(SUFFIXES)


def contents(path: Path, name: str) -> ArchiveIndex:
    """Check the archive `path`, called `name` inside its data set, to its end.

    Raises:
        InputError: it is cut or damaged, a member's path escapes, or it expands out of all proportion.
    """
    stored_bytes = _size(path)
    limit = max(RATIO_FLOOR_BYTES, MAX_RATIO * stored_bytes)
    kept: dict[str, bytes] | None = {}
    skipped: list[Skip] = []
    count = total = 0
    with _reported(path):
        for member, stream, why_not in _walk(path):
            if why_not:
                skipped.append((member, why_not))
                continue
            data, size = _drain(path, stream, KEPT_BYTES - total if kept is not None else 0, limit - total)
            total, count = total + size, count + 1
            if count > MAX_MEMBERS:
                raise InputError(f"{path}: more than {MAX_MEMBERS} members; refused")
            if kept is not None and data is not None:
                kept[member] = data
            else:
                kept = None
    if kept is not None:
        held = kept
        return ArchiveIndex(
            lambda: (
                replace(from_bytes(*_names(path, name, m), d), archive_bytes=stored_bytes)
                for m, d in held.items()
            ),
            count,
            tuple(skipped),
        )
    return ArchiveIndex(
        lambda: (replace(member, archive_bytes=stored_bytes) for member in _members(path, name)),
        count,
        tuple(skipped),
    )


def _names(path: Path, name: str, member: str) -> tuple[str, str]:
    """Name inside the data set and name to show; a single compressed file goes by its own name."""
    if not member:
        return str(PurePosixPath(name).with_suffix("")), str(path)
    return f"{name}/{member}", f"{path}/{member}"


def _drain(path: Path, stream: IO[bytes], keep: int, limit: int) -> tuple[bytes | None, int]:
    """Read a member to its end; its content if it is at most `keep` bytes."""
    kept: list[bytes] | None = []
    size = 0
    while chunk := stream.read(_CHUNK):
        size += len(chunk)
        if size > limit:
            raise InputError(f"{path}: expands more than {MAX_RATIO}-fold; refused as a bomb")
        if kept is not None:
            kept = [*kept, chunk] if size <= keep else None
    return (b"".join(kept) if kept is not None else None), size


def _members(path: Path, name: str) -> Iterator[Source]:
    """The sources of a large archive: small members in memory, large ones opened again when read."""
    with _reported(path):
        for member, stream, why_not in _walk(path):
            if why_not:
                continue
            inside, shown = _names(path, name, member)
            head = stream.read(SMALL_BYTES + 1)
            if len(head) <= SMALL_BYTES:
                yield from_bytes(inside, shown, head)
            else:
                identity = digest_of(cast(BinaryIO, _Joined(head, stream)))
                yield from_stream(inside, shown, identity, head[:HEAD_BYTES], _opener(path, member))


def _opener(path: Path, member: str) -> Callable[[], BinaryIO]:
    """Opens one member of the archive again, by walking to it."""

    def opened() -> BinaryIO:
        walk = _walk(path)
        for found, stream, why_not in walk:
            if found == member and not why_not:
                return cast(BinaryIO, _Member(stream, walk))
        raise InputError(f"{path}: member {member} is gone; the archive changed while it was read")

    return opened


def _walk(path: Path) -> Iterator[tuple[str, IO[bytes], str | None]]:
    """Every file inside: its name (empty for a compressed single file), stream, or why it is left out."""
    lower = path.name.lower()
    if lower.endswith(".zip"):
        walk = _walk_zip(path)
    elif lower.endswith((".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")):
        walk = _walk_tar(path)
    else:
        walk = _walk_single(path)
    seen: dict[str, int] = {}
    for member, stream, why_not in walk:
        seen[member] = seen.get(member, 0) + 1  # tar allows a name twice; both are files of their own
        yield (member if seen[member] == 1 else f"{member}#{seen[member]}"), stream, why_not


def _walk_single(path: Path) -> Iterator[tuple[str, IO[bytes], str | None]]:
    with path.open("rb") as raw:
        yield "", _decompressed(raw), None


def _walk_tar(path: Path) -> Iterator[tuple[str, IO[bytes], str | None]]:
    with path.open("rb") as raw:
        plain = _Tail(_decompressed(raw))
        with tarfile.open(fileobj=cast(BinaryIO, plain), mode="r|") as tar:
            for info in tar:
                if info.isdir():
                    continue
                _refuse_escape(path, info.name)
                stream = tar.extractfile(info) if info.isreg() else None
                if stream is None:
                    yield info.name, io.BytesIO(), "a link or a device, not a file"
                elif not _hidden(info.name):
                    yield _clean(info.name), stream, None
        while plain.read(_CHUNK):  # to the end, where the compression keeps its checksum
            pass
        if plain.tail.strip(b"\0"):
            raise EOFError("no end-of-archive mark")


def _decompressed(raw: BinaryIO) -> IO[bytes]:
    """The stream behind the compression that the first bytes state; the file itself if they state none."""
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if magic.startswith(b"\xfd7zXZ\0"):
        return cast(IO[bytes], lzma.LZMAFile(raw))
    if magic.startswith(b"BZh"):
        return cast(IO[bytes], bz2.BZ2File(raw))
    return raw


def _walk_zip(path: Path) -> Iterator[tuple[str, IO[bytes], str | None]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            _refuse_escape(path, info.filename)
            if info.flag_bits & 1:
                yield info.filename, io.BytesIO(), "encrypted"
            elif not _hidden(info.filename):
                with archive.open(info) as stream:
                    yield _clean(info.filename), stream, None


def _refuse_escape(path: Path, member: str) -> None:
    parts = PurePosixPath(member.replace("\\", "/")).parts
    if ".." in parts or member.startswith(("/", "\\")) or (parts and ":" in parts[0]):
        raise InputError(f"{path}: member {member!r} points outside the archive; refused as hostile")


def _clean(member: str) -> str:
    return str(PurePosixPath(member.encode("utf-8", "surrogateescape").decode("utf-8", "replace")))


def _hidden(member: str) -> bool:
    """Resource forks and editor files, which are nobody's data."""
    parts = PurePosixPath(member).parts
    return any(part.startswith(".") and part != "." for part in parts) or "__MACOSX" in parts


def _size(path: Path) -> int:
    try:
        return refuse_special(path).st_size
    except OSError as error:
        raise unreadable(path, error) from error


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise InputError(
            f"{path}: the archive is cut or damaged ({error or type(error).__name__}); fetch it again"
        ) from error


class _Tail:
    """A stream that remembers its last bytes: a tar that was not cut ends in zeros."""

    def __init__(self, stream: IO[bytes]):
        self._stream, self.tail = stream, b"?"

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.tail = data[-512:] or self.tail
        return data


class _Joined:
    """A beginning that was read already, then the rest of the stream."""

    def __init__(self, head: bytes, rest: IO[bytes]):
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head, b""
        return head or self._rest.read(size)


class _Member(io.RawIOBase):
    """One member's stream that keeps its archive open until it is closed."""

    def __init__(self, stream: IO[bytes], walk: Iterator[object]):
        self._stream, self._walk = stream, walk

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self._stream.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._walk.close()  # type: ignore[attr-defined]
        super().close()
