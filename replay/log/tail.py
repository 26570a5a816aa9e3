"""The active tail of a run: an append-only file of framed events that are not in a segment yet.

A commit of few events costs one wait for the disk here, and four as a segment. When there are enough events,
a segment takes them all and the tail goes. A frame is

    frame FIRST ROWS BYTES STREAM LINK CHECK\n
    one canonical line an event           the lines that the digest of the run is taken over
    one wall-clock text an event          each on a line, outside the digest

The head has 190 bytes: 20, 10 and 12 digits, twice 64 and once 8 hexadecimal digits. STREAM is the digest of
the run through this frame. LINK is the SHA-256 over the link before it (of the first frame: the hash of the
last manifest), the head up to LINK, and the body; CHECK is the CRC-32 of the head up to CHECK. So a changed
byte, a missing frame and one of another run are found.

An append that did not end leaves a beginning of a frame, or zeros at the end of the file (a power cut). Both
are left-overs of a crash. Anything else that is no frame is damage, since a frame may have been acknowledged.
"""

import hashlib
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ingest.core.durable import DISK, AppendOnlyFile, Disk
from replay.log import segment
from replay.log.running_digests import Row
from replay.log.segment import FileDamageError

NAME = re.compile(r"([0-9]{20})\.tail")
"""Names of tails: the number of the first event."""
HEAD_BYTES = 190
_HEAD = re.compile(
    rb"(frame ([0-9]{20}) ([0-9]{10}) ([0-9]{12}) ([0-9a-f]{64}) )([0-9a-f]{64}) ([0-9a-f]{8})\n"
)
_LINE = re.compile(
    r'\{"job":("(?:[^"\\]|\\.)*"),"payload":(.*),"seq":([0-9]+),"sim_ns":([0-9]+)'
    r',"type":"([^"\\]*)","version":([0-9]+)\}'
)


def tail_name(first_seq: int) -> str:
    """Returns the name of the tail whose first event is `first_seq`."""
    return f"{first_seq:020d}.tail"


@dataclass(frozen=True, slots=True)
class Tail:
    """The whole frames of a tail: their events, their bytes, and the digest of the run through them."""

    name: str
    rows: tuple[Row, ...]
    frames: bytes
    """As they are in the file: a copy of the run has them, whatever becomes of the file meanwhile."""
    stream: str

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole frames."""
        return len(self.frames)

    @property
    def table(self) -> pa.Table:
        """The events in the columns of `segment.SCHEMA`."""
        return segment.table_of(self.rows)


class TailWriter:
    """Appends frames to a new tail; `previous` is the hash of the last manifest.

    Raises:
        ExistsError: there is a file of this name.
        StorageError: the disk refused.
    """

    def __init__(self, run_dir: Path, first_seq: int, previous: str, *, disk: Disk = DISK) -> None:
        self.name, self._link = tail_name(first_seq), previous
        self._file = AppendOnlyFile(run_dir / self.name, disk=disk)

    def append(self, first_seq: int, count: int, lines: bytes, walls: bytes, stream: str) -> None:
        """Adds `count` events as one frame, durable on return; `stream` is the run's digest through them.

        Raises:
            StorageError: the disk refused; the writer must not go on.
        """
        body = lines + walls
        start = b"frame %020d %010d %012d %b " % (first_seq, count, len(body), stream.encode())
        # Each link covers the link before it, as manifests do, so a frame cannot be removed or come from
        # another run. The CRC covers the head alone: it tells a cut head from a changed one before BYTES is
        # trusted.
        self._link = _linked(self._link, start, body)
        head = start + self._link.encode()
        self._file.append(b"%b %08x\n%b" % (head, zlib.crc32(head), body))

    def close(self) -> None:
        """Gives the file's descriptor back; a second call does nothing."""
        self._file.close()


def read_tail(path: Path, first_seq: int, previous: str) -> Tail:
    """Reads the whole frames of a tail, every link checked; what an append left behind them is passed over.

    Raises:
        DamageError: something in it is neither a frame nor left by a crash, or is of another run.
        FileNotFoundError: there is no such file.
    """
    data = segment.read_file(path)
    rows: list[Row] = []
    at, link, stream = 0, previous, ""
    while at < len(data):
        found = _HEAD.fullmatch(data, at, at + HEAD_BYTES)
        if found is None or int(found[7], 16) != zlib.crc32(data[at : found.start(7) - 1]):
            if _unfinished(data, at):
                break
            raise FileDamageError(path, f"byte {at}: not the head of a frame; the file was changed")
        body_at, first, count = found.end(), int(found[2]), int(found[3])
        body = data[body_at : body_at + int(found[4])]
        if len(body) < int(found[4]):
            break
        if found[6].decode() != _linked(link, found[1], body):
            if data.endswith(b"\0"):
                break
            raise FileDamageError(path, f"byte {at}: a frame that does not follow from what is before it")
        rows += _rows(path, body, first, count, expected=first_seq + len(rows))
        at, link, stream = body_at + len(body), found[6].decode(), found[5].decode()
    return Tail(path.name, tuple(rows), data[:at], stream)


def _linked(link: str, start: bytes, body: bytes) -> str:
    return hashlib.sha256(link.encode() + start + body).hexdigest()


def _unfinished(data: bytes, at: int) -> bool:
    """True if the rest is the beginning of a head, or ends in zeros."""
    return len(data) - at < HEAD_BYTES or data.endswith(b"\0")


def _rows(path: Path, body: bytes, first: int, count: int, *, expected: int) -> list[Row]:
    """Returns the events of one frame, whose link has been checked: a fault here was written on purpose."""
    try:
        texts = body.decode().split("\n")
        found = [_LINE.fullmatch(text) for text in texts[:count]]
        rows = [_row(match, wall) for match, wall in zip(found, texts[count:-1], strict=True) if match]
    except ValueError:
        rows = []
    if first != expected or len(rows) != count or [row[0] for row in rows] != [*range(first, first + count)]:
        raise FileDamageError(path, f"does not hold the events {expected} to {expected + count - 1}")
    return rows


def _row(found: re.Match[str], wall: str) -> Row:
    job, payload, seq, sim_ns, kind, version = found.groups()
    return int(seq), int(sim_ns), kind, int(version), json.loads(job), payload, wall
