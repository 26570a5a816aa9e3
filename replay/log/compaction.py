"""Compaction: merges the small segments of a finished run into few large files; its digests stay the same.

Order: the run is verified; merged files are written and read back against every digest of the chain; the
record that holds the chain and names these files makes them effective, in one step; then the old files are
removed. A crash before the record leaves the run as it was, one after it leaves files for recovery to remove.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from ingest.core.durable import DISK, Disk, Lock, put
from ingest.core.errors import DamageError, NotFoundError, UsageError
from ingest.objects import working_copy
from replay.log import recovery, segment, segment_index, verification
from replay.log.segment import Piece
from replay.log.segment_index import RECORD, SegmentIndex

PIECE_EVENTS = 100_000
"""Events in a merged file; one more segment may be in it."""


MANY_FILES = 16
"""Least number of data files of a run that `tidy` compacts."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """Data files and bytes of a run before and after."""

    files_before: int
    files: int
    bytes_before: int
    bytes: int

    def to_json(self) -> dict[str, int]:
        """Returns the figures of `twin compact --json`."""
        return asdict(self)


def compact(run_dir: Path, *, piece_events: int = PIECE_EVENTS, disk: Disk = DISK) -> Compaction:
    """Merges the segments of a finished run; one that is compacted, or would not gain, stays as it is.

    Raises:
        NotFoundError: there is no such run.
        UsageError: it is not finished.
        LockedError: another process writes to it.
        DamageError: it is not as it was written; it is left as it is.
        StorageError: the disk refused; the run stays readable, and a second call continues.
    """
    if not run_dir.is_dir():
        raise NotFoundError(f"{run_dir}: no such run; `twin runs` lists those that are there")
    working_copy.refuse(run_dir.absolute().parent.parent, "compaction")
    with Lock(run_dir / recovery.LOCK):
        recovery.sweep(run_dir, disk)
        before = recovery.walk(run_dir)
        if not before.final:
            raise UsageError(f"{run_dir}: is not finished; only a finished run is compacted")
        _refuse(run_dir, verification.verify(run_dir))
        if not before.compacted:
            disk.foretell((run_dir, f"few files in place of {len(before.pieces):,}"))
        after = before if before.compacted else _merge(run_dir, before, piece_events, disk)
        return Compaction(len(before.pieces), len(after.pieces), _size(before), _size(after))


def tidy(run_dir: Path) -> None:
    """Compacts a run that has just ended, if it has many files; in a bucket they stay as they are."""
    in_bucket = working_copy.bucket_of(run_dir.absolute().parent.parent) is not None
    if not in_bucket and len(recovery.walk(run_dir).pieces) >= MANY_FILES:
        compact(run_dir)


def _merge(run_dir: Path, before: SegmentIndex, piece_events: int, disk: Disk) -> SegmentIndex:
    groups = list(_groups(before.pieces, piece_events))
    if len(groups) == len(before.pieces):
        return before
    pieces = [_write(run_dir, group, disk) for group in groups]
    after = SegmentIndex(before.chain, tuple(pieces), compacted=True)
    _refuse(run_dir, verification.check_events(run_dir, after))
    put(run_dir / RECORD, segment_index.record(after), disk=disk)
    recovery.sweep(run_dir, disk)
    return after


def _groups(pieces: tuple[Piece, ...], piece_events: int) -> Iterator[list[Piece]]:
    """Yields neighbours that go into one file."""
    group: list[Piece] = []
    for piece in pieces:
        group.append(piece)
        if piece.last_seq - group[0].first_seq + 1 >= piece_events:
            yield group
            group = []
    if group:
        yield group


def _write(run_dir: Path, group: list[Piece], disk: Disk) -> Piece:
    table = pa.concat_tables([segment.read_rows(run_dir, piece) for piece in group]).combine_chunks()
    data = segment.encode_table(table)
    piece = segment_index.merged(group[0].first_seq, group[-1].last_seq, data)
    put(run_dir / piece.data_name, data, disk=disk)
    return piece


def _refuse(run_dir: Path, findings: list[verification.IntegrityFinding]) -> None:
    if findings:
        raise DamageError(f"{run_dir}: not compacted: {findings[0]}; see `twin audit`")


def _size(found: SegmentIndex) -> int:
    return sum(piece.size_bytes for piece in found.pieces)
