"""Batches of telemetry that could not be sent yet, as files in a folder of bounded size.

One file a batch, named by its number and its idempotency key: the service knows a batch again that was sent
before, when only its answer was lost.
"""

import re
import stat
from pathlib import Path

from ingest.core import durable
from ingest.core.errors import StorageError

_NAME = re.compile(r"([0-9]{12})-([0-9a-f]{32})\.ndjson")


class Spool:
    """A queue of batches on disk; the oldest are dropped, and counted, when it would hold too much.

    Raises:
        StorageError: the folder cannot be made.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder, self._limit_bytes = folder, limit_bytes
        self.dropped = 0
        """Observations (lines) lost."""
        durable.make_directory(folder)
        durable.sweep(folder)
        names = sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
        self._sizes = dict[str, tuple[int, int]]()
        for name in names:
            if (body := _kept(folder / name, limit_bytes)) is not None:
                self._sizes[name] = _measured(body)
        self._next = max((int(name[:12]) for name in self._sizes), default=-1) + 1

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(size for size, _ in self._sizes.values())

    def add(self, key: str, body: bytes) -> None:
        """Keeps a batch behind the others; it is dropped where the disk is full or it is over the limit."""
        size = _measured(body)
        if len(body) > self._limit_bytes:
            self.dropped += size[1]
            return
        while self._sizes and self.size_bytes + len(body) > self._limit_bytes:
            self.dropped += self._sizes[oldest := min(self._sizes)][1]
            self.done(oldest)
        name = f"{self._next:012d}-{key}.ndjson"
        try:
            durable.put(self.folder / name, body)
        except StorageError:
            self.dropped += size[1]
            return
        self._next += 1
        self._sizes[name] = size

    def first(self) -> tuple[str, str, bytes] | None:
        """Returns name, key and body of the oldest batch; None where there is none."""
        while self._sizes:
            name = min(self._sizes)
            if (body := _kept(self.folder / name, self._limit_bytes)) is not None:
                return name, name[13:45], body
            self.dropped += self._sizes.pop(name)[1]  # somebody took it away, or the disk lost it
        return None

    def done(self, name: str) -> None:
        """Forgets a batch that has arrived."""
        self._sizes.pop(name, None)
        try:
            durable.drop(self.folder / name)
        except StorageError:  # it is sent again after a restart; its key makes that harmless
            return


def _kept(path: Path, limit_bytes: int) -> bytes | None:
    """Returns a batch; None: it cannot be read, or no spool has kept it: a pipe, a link, too large."""
    try:
        kind = path.lstat()
        if not stat.S_ISREG(kind.st_mode) or kind.st_size > limit_bytes:
            return None
        return path.read_bytes()
    except OSError:
        return None


def _measured(body: bytes) -> tuple[int, int]:
    """Returns bytes and observations of a batch."""
    return len(body), body.count(b"\n")
