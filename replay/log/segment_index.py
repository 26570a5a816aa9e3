"""The index of a run's directory: its chain of manifests, and the files that hold the events now.

While a run is written, every manifest has its data file beside it. Compaction moves the manifests unchanged
into one record and the events into merged files. So the chain, its head and every digest of the stream stay
the same: a head kept before proves the compacted run, wall-clock figures included.
"""

import hashlib
import json
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replay.log import segment
from replay.log.events import canonical
from replay.log.segment import GENESIS, FileDamageError, Piece, SegmentManifest
from replay.log.tail import Tail

RECORD = "compacted.json"
"""The file that makes a compaction effective; without it merged files are left-overs."""
MERGED = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")
"""Names of merged files: first and last sequence number."""
SCHEMA_NAME = "twin.compacted/1"


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """The chain as written, the data files that hold its events now, and the events not in a segment yet."""

    chain: tuple[SegmentManifest, ...]
    pieces: tuple[Piece, ...]
    compacted: bool = False
    tail: Tail | None = None

    @property
    def final(self) -> bool:
        """True if the run ended."""
        return bool(self.chain) and self.chain[-1].final

    @property
    def sealed(self) -> int:
        """Number of events in segments."""
        return self.chain[-1].last_seq + 1 if self.chain else 0

    @property
    def end(self) -> int:
        """Number of committed events."""
        return self.sealed + (len(self.tail.rows) if self.tail else 0)

    @property
    def stream(self) -> str:
        """Digest of the run through its last committed event; empty if there is none."""
        if self.tail:
            return self.tail.stream
        return self.chain[-1].stream if self.chain else ""

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that hold the events."""
        return sum(piece.size_bytes for piece in self.pieces) + (self.tail.size_bytes if self.tail else 0)

    @property
    def head(self) -> str:
        """SHA-256 of the last manifest: the chain head."""
        return self.chain[-1].hash if self.chain else GENESIS


def of_chain(chain: Sequence[SegmentManifest], tail: Tail | None = None) -> SegmentIndex:
    """Returns the index of a run that was not compacted."""
    return SegmentIndex(tuple(chain), tuple(manifest.piece for manifest in chain), tail=tail)


def merged(first_seq: int, last_seq: int, data: bytes) -> Piece:
    """Returns the piece of a merged file with these bytes."""
    name = f"{first_seq:020d}-{last_seq:020d}.parquet"
    return Piece(name, first_seq, last_seq, len(data), hashlib.sha256(data).hexdigest(), RECORD)


def record(contents: SegmentIndex) -> bytes:
    """Returns the only bytes that the record of this index may hold; `check` is the SHA-256 of the rest."""
    fields = {
        "schema": SCHEMA_NAME,
        "manifests": [manifest.fields() for manifest in contents.chain],
        "pieces": [[p.first_seq, p.last_seq, p.size_bytes, p.sha256] for p in contents.pieces],
    }
    check = hashlib.sha256(canonical(fields).encode()).hexdigest()
    return canonical({**fields, "check": check}).encode() + b"\n"


def read_record(run_dir: Path) -> SegmentIndex | None:
    """Reads the index of a compacted run, the chain checked link by link; None: it was not compacted.

    Raises:
        DamageError: the record is not exactly what a compaction writes.
    """
    path = run_dir / RECORD
    try:
        data = segment.read_file(path)
    except FileNotFoundError:
        return None
    try:
        contents = _parsed(json.loads(data))
        sound = contents is not None and _linked(contents) and record(contents) == data
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise FileDamageError(path, "not a record that a compaction wrote; the file was changed")
    return contents


def _parsed(fields: Any) -> SegmentIndex | None:
    chain = [SegmentManifest.of_fields(entry) for entry in fields["manifests"]]
    pieces = [
        Piece(f"{first:020d}-{last:020d}.parquet", first, last, size, digest, RECORD)
        for first, last, size, digest in fields["pieces"]
    ]
    whole = tuple(manifest for manifest in chain if manifest is not None)
    return SegmentIndex(whole, tuple(pieces), compacted=True) if len(whole) == len(chain) else None


def _linked(contents: SegmentIndex) -> bool:
    """True if the chain is complete and ended, and the pieces hold its events without a gap."""
    next_seq, previous = 0, GENESIS
    for manifest in contents.chain:
        if manifest.first_seq != next_seq or manifest.previous != previous:
            return False
        next_seq, previous = manifest.last_seq + 1, manifest.hash
    ends = [-1, *(piece.last_seq for piece in contents.pieces)]
    starts = [piece.first_seq for piece in contents.pieces]
    finals = [manifest.final for manifest in contents.chain]
    return (
        finals == [False] * (len(finals) - 1) + [True]
        and starts == [end + 1 for end in ends[:-1]]
        and ends == sorted(set(ends))
        and ends[-1] == next_seq - 1
    )


def check_size(run_dir: Path, piece: Piece) -> None:
    """Compares the size of a data file without reading it.

    Raises:
        DamageError: it is missing, no regular file, or of another length.
    """
    path = run_dir / piece.data_name
    try:
        status = path.lstat()
    except OSError as error:
        raise FileDamageError(
            path, f"missing, though its manifest {piece.voucher} is there ({error.strerror})"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise FileDamageError(path, "not a regular file")
    if status.st_size != piece.size_bytes:
        raise FileDamageError(path, f"{status.st_size} bytes, its manifest says {piece.size_bytes}")
