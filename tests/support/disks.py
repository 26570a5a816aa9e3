"""Disks that fail at a chosen call, and a disk that remembers what a power cut would leave."""

import errno
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from pathlib import Path

from ingest.core.durable import Disk


class Crash(BaseException):
    """The machine stopped: no handler of the program runs to any effect after this."""


NAMES = ("create", "link", "unlink", "mkdir")
SYNCS = ("fsync", "fsync_directory")
FAULTS: dict[str, tuple[tuple[str, ...], int]] = {
    "crash": ((*NAMES, "write", *SYNCS), 0),
    "error": ((*NAMES, "write", *SYNCS), errno.EIO),
    "no space": (("create", "link", "mkdir", "write"), errno.ENOSPC),
    "fsync error": (SYNCS, errno.EIO),
    "half then error": (("write",), errno.EIO),
    "short write": (("write",), 0),
    "interrupted": (("write",), errno.EINTR),
}
"""Ways to fail: the calls that can fail so, and what they raise."""


class FailingDisk(Disk):
    """Of the calls that can fail in one way, the k-th does; `calls` counts them."""

    def __init__(self, mode: str, at: int):
        self.mode, self.at, self.calls, self.dead = mode, at, 0, False

    def _hit(self, call: str) -> bool:
        if self.dead:
            raise Crash
        self.calls += call in FAULTS[self.mode][0]
        if self.calls != self.at or call not in FAULTS[self.mode][0]:
            return False
        if self.mode == "crash":
            self.dead = True
            raise Crash
        return True

    def _call(self, call: str) -> None:
        if self._hit(call):
            number = FAULTS[self.mode][1]
            raise OSError(number, os.strerror(number))

    def create(self, path: Path) -> int:
        self._call("create")
        return super().create(path)

    def write(self, fd: int, data: memoryview) -> int:
        half = data[: max(1, len(data) // 2)]
        if self.mode == "short write":
            return super().write(fd, half if self._hit("write") else data)
        try:
            self._call("write")
        except OSError:
            if self.mode == "half then error":
                super().write(fd, half)
            raise
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self._call("fsync")
        super().fsync(fd)

    def link(self, source: Path, target: Path) -> None:
        self._call("link")
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._call("unlink")
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self._call("mkdir")
        super().mkdir(path)

    def fsync_directory(self, path: Path) -> None:
        self._call("fsync_directory")
        super().fsync_directory(path)


State = dict[str, bytes]
"""What a power cut leaves: names in the run's directory and their bytes."""


@dataclass
class Inode:
    """A file's bytes that are surely on the disk, and those that may be."""

    synced: bytes = b""
    written: bytes = b""

    def outcomes(self) -> tuple[bytes, ...]:
        """What may be read back: none of the unsynced part, half of it, all of it, or zeros in its place."""
        new = self.written[len(self.synced) :]
        return tuple({self.synced + part for part in (b"", new[: len(new) // 2], new, bytes(len(new)))})


@dataclass
class Moment:
    """The disk between two calls: files, durable names, and the operations on names that may be lost."""

    inodes: dict[int, Inode]
    names: dict[str, int]
    pending: list[tuple[str, int | None]] = field(default_factory=list)

    def states(self) -> Iterator[State]:
        """Every directory that a power cut at this moment may leave."""
        for kept in chain.from_iterable(combinations(self.pending, n) for n in range(len(self.pending) + 1)):
            names = self._after(kept)
            files = sorted(set(names.values()))
            for contents in product(*(self.inodes[number].outcomes() for number in files)):
                by_inode = dict(zip(files, contents, strict=True))
                yield {name: by_inode[number] for name, number in sorted(names.items())}

    def sampled(self, most: int) -> Iterator[State]:
        """All states, or `most` of them where the lost operations could combine in too many ways."""
        if len(self.pending) <= 5:
            yield from self.states()
            return
        chance = random.Random(len(self.pending))
        for _ in range(most):
            kept = [operation for operation in self.pending if chance.random() < 0.5]
            yield from Moment(self.inodes, self._after(kept)).states()

    def _after(self, kept: Sequence[tuple[str, int | None]]) -> dict[str, int]:
        names = dict(self.names)
        for name, inode in kept:
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode
        return names


class RememberingDisk(Disk):
    """Works on a real directory and keeps, for every moment, what would survive a power cut.

    `omit` leaves one sync of every commit out: "data", "data name", "manifest", "manifest name", "tail" or
    "tail name".
    """

    def __init__(self, omit: str | None = None):
        self.omit = omit
        self.now = Moment({}, {})
        self.moments: list[tuple[int, Moment]] = []
        self.durable = -1
        self._by_fd: dict[int, int] = {}
        self._last = ""

    def hold(self, folder: Path) -> None:
        """The files of `folder` are on the disk for good before anything happens."""
        for number, path in enumerate(sorted(folder.iterdir())):
            data = path.read_bytes()
            self.now.inodes[number] = Inode(data, data)
            self.now.names[path.name] = number
        self._remember()

    def acknowledge(self, seq: int) -> None:
        self.durable = seq
        self._remember()

    def create(self, path: Path) -> int:
        fd = super().create(path)
        number = len(self.now.inodes)
        self.now.inodes[number] = Inode()
        self._by_fd[fd] = number
        kinds = {".parquet.": "data", ".tail": "tail"}
        self._last = next((kind for part, kind in kinds.items() if part in path.name), "manifest")
        self._name(path.name, number)
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        done = super().write(fd, data)
        self.now.inodes[self._by_fd[fd]].written += bytes(data[:done])
        self._remember()
        return done

    def fsync(self, fd: int) -> None:
        if self.omit != self._last:
            inode = self.now.inodes[self._by_fd[fd]]
            inode.synced = inode.written
        self._remember()

    def link(self, source: Path, target: Path) -> None:
        super().link(source, target)
        self._name(target.name, self._number(source.name))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._name(path.name, None)

    def fsync_directory(self, path: Path) -> None:
        if self.omit != f"{self._last} name":
            for name, number in self.now.pending:
                if number is None:
                    self.now.names.pop(name, None)
                else:
                    self.now.names[name] = number
            self.now.pending = []
        self._remember()

    def _number(self, name: str) -> int:
        return next(
            number for known, number in reversed(self.now.pending) if known == name and number is not None
        )

    def _name(self, name: str, number: int | None) -> None:
        self.now.pending.append((name, number))
        self._remember()

    def _remember(self) -> None:
        inodes = {number: Inode(inode.synced, inode.written) for number, inode in self.now.inodes.items()}
        self.moments.append((self.durable, Moment(inodes, dict(self.now.names), list(self.now.pending))))


def leave(state: State, folder: Path) -> Path:
    """Make a run's directory in `state`."""
    folder.mkdir(parents=True)
    for name, data in state.items():
        fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT, 0o666)
        os.write(fd, data)
        os.close(fd)
    return folder
