"""The only module that opens files for writing: a file is there whole and on the disk, or not at all.

`put` commits a new file: temporary file, write, fsync, `link` to its name, unlink, fsync of the directory.
`link` fails where the name is taken, so nothing is ever overwritten (`rename` would do so silently).
`replace` swaps a derived file or a pointer atomically, and refuses the name of anything but a file.
Both hold on a local POSIX file system (ext4, XFS). `write_output` takes any path that a user names: a device,
FIFO or terminal there is opened and written.

Every system call goes through a `Disk`, which tests replace by one that fails, crashes or forgets.
"""

import errno
import fcntl
import hashlib
import io
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from ingest.core.errors import ExistsError, LockedError, StorageError

TEMPORARY = re.compile(r"\.[^/]+\.([0-9]+)-[0-9]+\.tmp")
"""Names of files that are being written: no reader's pattern matches them, recovery may delete them."""

READER_WAIT_S = 10
"""How long `write_output` waits until a program opens the other end of a FIFO."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_IN_PLACE = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OWN_DESCRIPTOR = re.compile(r"/(?:dev|proc/(?:self|thread-self|[0-9]+))/fd/([0-9]+)")
_MAX_LINKS = 40
"""Links to follow to one file, as Linux does."""
_counter = count()


class Disk:
    """The system calls of a commit, one method each."""

    def create(self, path: Path) -> int:
        """Open a new file for writing and return its descriptor; fails where the name is taken."""
        return os.open(path, _CREATE, 0o666)

    def open_in_place(self, path: Path) -> int:
        """Open a device, FIFO or terminal for writing and return its descriptor; never makes a file."""
        own = _own_descriptor(path)
        return os.open(path, _IN_PLACE) if own is None else os.dup(own)

    def write(self, fd: int, data: memoryview) -> int:
        """Write some of `data`, at least one byte, and return how many."""
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        """Wait until the file's bytes are on the disk."""
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Give the descriptor back."""
        os.close(fd)

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name; fails where that name is taken."""
        target.hardlink_to(source)

    def rename(self, source: Path, target: Path) -> None:
        """Give the file another name, replacing what had it."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Take a name away."""
        path.unlink()

    def rmdir(self, path: Path) -> None:
        """Take an empty directory away."""
        path.rmdir()

    def mkdir(self, path: Path) -> None:
        """Make one directory."""
        path.mkdir()

    def fsync_file(self, path: Path) -> None:
        """Wait until the bytes of a file that is there already are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def fsync_directory(self, path: Path) -> None:
        """Wait until the directory's names are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: Path) -> int:
        """Open a file to lock it, made if it is not there, and return its descriptor; -1: nothing to hold."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)

    def sign(self, fd: int) -> None:
        """Write this process into a lock that it holds."""
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)

    def send(self, request: Callable[[], object]) -> None:
        """Carry out a request that stores something elsewhere."""
        request()

    def foretell(self, *changes: tuple[Path, str]) -> None:
        """Long work begins that makes these paths (each with what it will be) and reads them again.

        Nothing happens here; the disk of a dry run notes the changes and ends the work.
        """


class PrivateDisk(Disk):
    """Makes files that nobody but their owner can read: secrets."""

    def create(self, path: Path) -> int:
        """Open a new file for writing, with mode 0600 from its first byte on."""
        return os.open(path, _CREATE, 0o600)


DISK = Disk()
PRIVATE = PrivateDisk()


@dataclass(frozen=True, slots=True)
class Stored:
    """A committed file: where it is, how large, and the SHA-256 of what was written to it."""

    path: Path
    size_bytes: int
    sha256: str


def put(path: Path, data: bytes, *, disk: Disk = DISK, idempotent: bool = False) -> Stored:
    """Commit `data` as the new file `path`; when this returns, a power cut does not take it away.

    Missing parent directories are made. With `idempotent` a file that holds exactly `data` already is fine.

    Raises:
        ExistsError: `path` exists (with other bytes, if `idempotent`). Nothing was changed.
        StorageError: the disk refused; `path` does not exist, or whole but perhaps not yet durable.
    """

    def write(stream: BinaryIO) -> None:
        stream.write(data)

    try:
        return put_file(path, write, disk=disk)
    except ExistsError:
        if not (idempotent and path.is_file() and path.read_bytes() == data):
            raise
    with _Reported(path):
        disk.fsync_directory(path.parent)
    return Stored(path, len(data), hashlib.sha256(data).hexdigest())


def put_file(path: Path, writer: Callable[[BinaryIO], object], *, disk: Disk = DISK) -> Stored:
    """Commit what `writer` writes to the binary stream it is given (not seekable); otherwise like `put`."""
    make_directory(path.parent, disk=disk)
    with _Reported(path):
        if path.exists():  # said early, before a large file is written in vain; `link` decides
            raise FileExistsError(path)
        temporary, stored = _write_temporary(path, writer, disk)
        try:
            disk.link(temporary, path)
        finally:
            disk.unlink(temporary)
        disk.fsync_directory(path.parent)
    return stored


def replace(path: Path, data: bytes, *, disk: Disk = DISK) -> Stored:
    """Make `data` the content of `path`, atomically: readers see the old file or the new one.

    For what can be derived again (caches) and for pointers, never for the record itself. A link there is
    replaced, not followed: a store from elsewhere must not choose what is overwritten.

    Raises:
        StorageError: the disk refused, or a directory, device, FIFO or socket has the name; the old content
            stands, or the new one does, never a mixture.
    """
    make_directory(path.parent, disk=disk)
    with _Reported(path):
        if (mode := _mode(path)) is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise StorageError(f"{path}: not a regular file, so it is not replaced; take it away")
        temporary, stored = _write_temporary(path, lambda stream: stream.write(data), disk)
        try:
            disk.rename(temporary, path)
        except OSError:
            disk.unlink(temporary)
            raise
        disk.fsync_directory(path.parent)
    return stored


def write_output(path: Path, data: bytes, *, disk: Disk = DISK) -> Stored:
    """Write `data` to what a user names: a file is replaced atomically (behind links, the one they lead to),
    a device, FIFO or terminal is opened and written. A FIFO is given `READER_WAIT_S` to find its reader.

    Raises:
        StorageError: it cannot be written; a file has its old content then.
    """
    with _Reported(path):
        in_place = _written_in_place(path)
        if in_place:
            _write_in_place(path, data, disk)
    if not in_place:
        replace(Path(os.path.realpath(path)), data, disk=disk)
    return Stored(path, len(data), hashlib.sha256(data).hexdigest())


def written_in_place(path: Path) -> bool:
    """True if `write_output` opens what is there and writes it: a device, a FIFO, a terminal.

    Raises:
        StorageError: it is a disk (a block device) or a socket, or cannot be looked at.
    """
    with _Reported(path):
        return _written_in_place(path)


def replace_all(folder: Path, files: Mapping[str, bytes], *, force: bool, disk: Disk = DISK) -> None:
    """Writes files of these names below a folder, with `force` in place of older ones.

    Raises:
        ExistsError: one of them is there, without `force`; nothing was written. StorageError: the disk
        refused.
    """
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        raise ExistsError(
            f"{folder / there[0]}: is there already; give another --out, or --force to replace it"
        )
    for below in {(folder / name).parent for name in files}:
        if below.is_dir():
            sweep(below, disk=disk)
    for name, data in files.items():
        replace(folder / name, data, disk=disk)


def make_directory(path: Path, *, disk: Disk = DISK) -> None:
    """Make `path` and its missing parents, each durable in its parent.

    Raises:
        StorageError: the disk refused, or a file is in the way.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        with _Reported(directory):
            try:
                disk.mkdir(directory)
            except FileExistsError:  # another process was faster, or a file is in the way
                if not directory.is_dir():
                    raise NotADirectoryError(f"{directory} is a file") from None
            disk.fsync_directory(directory.parent)


def remove(path: Path, *, disk: Disk = DISK) -> None:
    """Delete one file for good; the name does not come back after a power cut."""
    with _Reported(path):
        disk.unlink(path)
        disk.fsync_directory(path.parent)


def drop(path: Path, *, disk: Disk = DISK) -> None:
    """Delete a file that nothing needs, if it is there; after a power cut it may be there again."""
    with _Reported(path), suppress(FileNotFoundError):
        disk.unlink(path)


def sweep(directory: Path, *, disk: Disk = DISK) -> tuple[str, ...]:
    """Delete the temporary files that killed processes left in a directory and return their names."""
    left = tuple(sorted(path.name for path in directory.iterdir() if abandoned(path)))
    if left:
        remove_all(directory, left, disk=disk)
    return left


def abandoned(path: Path) -> bool:
    """True for the name of a temporary file whose process has ended."""
    match = TEMPORARY.fullmatch(path.name)
    return match is not None and not _alive(int(match[1]))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def remove_all(directory: Path, names: Iterable[str], *, disk: Disk = DISK) -> None:
    """Delete files of one directory for good; they may go in any order."""
    with _Reported(directory):
        for name in names:
            disk.unlink(directory / name)
        disk.fsync_directory(directory)


def remove_tree(directory: Path, *, disk: Disk = DISK) -> None:
    """Delete a directory and what is in it for good, in any order; links are deleted, never followed."""
    with _Reported(directory):
        for folder, inner, files in os.walk(directory, topdown=False):
            for name in files:
                disk.unlink(Path(folder, name))
            for name in inner:
                path = Path(folder, name)
                (disk.unlink if path.is_symlink() else disk.rmdir)(path)
        disk.rmdir(directory)
        disk.fsync_directory(directory.parent)


def move(source: Path, target: Path, *, disk: Disk = DISK) -> None:
    """Give a file or directory a place on the same disk that is free (the caller ensures it), for good."""
    with _Reported(source):
        disk.rename(source, target)
        disk.fsync_directory(target.parent)
        disk.fsync_directory(source.parent)


def open_to_read(path: Path) -> BinaryIO:
    """Opens a file for reading; follows no link, and waits for no FIFO."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    return os.fdopen(fd, "rb", buffering=0)


def settle(directory: Path, *, disk: Disk = DISK) -> None:
    """Make what is visible in `directory` now stay so after a power cut."""
    with _Reported(directory):
        disk.fsync_directory(directory)


def settle_file(path: Path, *, disk: Disk = DISK) -> None:
    """Make the bytes that `path` has now stay after a power cut."""
    with _Reported(path):
        disk.fsync_file(path)


class AppendOnlyFile:
    """A new file that grows by whole appends, each durable when `append` returns, one wait for the disk each.

    After an append that failed the file may end in a part of it: the caller stops, and readers of the format
    tell a part from the whole.

    Raises:
        ExistsError: `path` exists.
        StorageError: the disk refused.
    """

    def __init__(self, path: Path, *, disk: Disk = DISK) -> None:
        self._path, self._disk = path, disk
        self._named = False  # until the directory is synced, with the first append
        with _Reported(path):
            self._fd = disk.create(path)

    def append(self, data: bytes) -> None:
        """Add `data` at the end.

        Raises:
            StorageError: the disk refused.
        """
        with _Reported(self._path):
            rest = memoryview(data)
            while rest:
                with suppress(InterruptedError):  # by a signal: nothing was written
                    rest = rest[self._disk.write(self._fd, rest) :]
            self._disk.fsync(self._fd)
            if not self._named:
                self._disk.fsync_directory(self._path.parent)
                self._named = True

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


class Lock:
    """An exclusive `flock` on a file, held until `release` or the end of the process.

    Raises:
        LockedError: another process holds it.
        StorageError: the lock file cannot be made.
    """

    def __init__(self, path: Path):
        make_directory(path.parent)
        with _Reported(path):
            self._fd = DISK.lock(path)
            if self._fd < 0:
                return
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(self._fd, 20).decode("ascii", "replace").strip() or "unknown"
                os.close(self._fd)
                raise LockedError(
                    f"{path.parent}: another process (pid {holder}) is writing here; wait for it or stop it"
                ) from None
            DISK.sign(self._fd)

    def release(self) -> None:
        """Let the next writer in; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def locked(path: Path) -> bool:
    """True if a process holds the `Lock` on this file; changes nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class _Reported:
    """Turns an `OSError` into the error of ours that names the file and the way out."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, FileExistsError):
            raise ExistsError(
                f"{self.path}: exists already and is never overwritten; choose another name"
            ) from error
        if isinstance(error, OSError):
            why = error.strerror or str(error)
            what = (
                "give the name of a file"
                if isinstance(error, IsADirectoryError)
                else "free space or mend the disk and its rights, then run the command again"
            )
            raise StorageError(f"{self.path}: cannot be written ({why}); {what}") from error


class _Stream(io.RawIOBase):
    """A descriptor as a raw stream whose writes go through the disk; counts and hashes what is accepted."""

    def __init__(self, fd: int, disk: Disk):
        self._target, self._disk, self._open = fd, disk, True
        self.size, self.digest = 0, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        if not self._open:
            return len(view)
        done = self._disk.write(self._target, view) if len(view) else 0
        self.digest.update(view[:done])
        self.size += done
        return done

    def stop(self) -> None:
        """Swallow what a dying buffer still wants to write: its descriptor may be another file by then."""
        self._open = False


def _mode(path: Path) -> int | None:
    """File type and rights of what `path` leads to; None where nothing is."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _own_descriptor(path: Path) -> int | None:
    """Number of the open file of this process that `path` is a name of, as /dev/stdout is.

    To open that name again would start at the beginning of a redirected file, over what was printed.
    """
    name = os.path.abspath(path)  # noqa: PTH100  # `resolve` would follow the last link, to `pipe:[123]`
    for _ in range(_MAX_LINKS):
        match = _OWN_DESCRIPTOR.fullmatch(name)
        if match:
            others = name.startswith("/proc/") and name.split("/")[2].isdigit()
            return None if others and name.split("/")[2] != str(os.getpid()) else int(match[1])
        try:
            target = os.readlink(name)  # noqa: PTH115
        except OSError:
            return None
        name = os.path.normpath(os.path.join(os.path.dirname(name), target))  # noqa: PTH118, PTH120
    return None


def _written_in_place(path: Path) -> bool:
    if _own_descriptor(path) is not None:
        return True
    mode = _mode(path)
    if mode is None or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return False
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        kind = "a disk" if stat.S_ISBLK(mode) else "a socket"
        raise StorageError(f"{path}: {kind}, which is not written; give the name of a file")
    return True


def _write_in_place(path: Path, data: bytes, disk: Disk) -> None:
    fd = _opened_in_place(path, disk)
    try:
        rest = memoryview(data)
        while rest:
            with suppress(InterruptedError):
                rest = rest[disk.write(fd, rest) :]
    except BrokenPipeError:
        raise StorageError(f"{path}: its reader has gone before everything was written") from None
    finally:
        disk.close(fd)


def _opened_in_place(path: Path, disk: Disk) -> int:
    for stream in (sys.stdout, sys.stderr):  # what was printed before comes first
        if stream is not None:
            stream.flush()
    deadline = time.monotonic() + READER_WAIT_S
    while True:
        try:
            fd = disk.open_in_place(path)
            break
        except OSError as error:
            waits = error.errno == errno.ENXIO and stat.S_ISFIFO(_mode(path) or 0)
            if not waits:
                raise
            if time.monotonic() > deadline:
                raise StorageError(f"{path}: no program reads this FIFO; start its reader first") from None
        time.sleep(0.02)
    with suppress(OSError):  # the descriptors of a dry run are none
        os.set_blocking(fd, True)
    return fd


def _write_temporary(path: Path, writer: Callable[[BinaryIO], object], disk: Disk) -> tuple[Path, Stored]:
    """Write and fsync a temporary file beside `path`; on any failure it is taken away again."""
    temporary, fd = _create_temporary(path, disk)
    raw = _Stream(fd, disk)
    try:
        try:
            buffered = io.BufferedWriter(raw, 1 << 20)
            writer(cast(BinaryIO, buffered))
            if not buffered.closed:
                buffered.flush()
            disk.fsync(fd)
        finally:
            raw.stop()
            disk.close(fd)
    except BaseException:
        with suppress(OSError):  # the first error is the one to report; a left-over is swept by recovery
            disk.unlink(temporary)
        raise
    return temporary, Stored(path, raw.size, raw.digest.hexdigest())


def _create_temporary(path: Path, disk: Disk) -> tuple[Path, int]:
    """A new file beside `path` under a free name; left-overs of dead processes are stepped over."""
    while True:
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_counter)}.tmp")
        try:
            return temporary, disk.create(temporary)
        except FileExistsError:
            continue
