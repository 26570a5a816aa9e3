"""One segment of a run: a Parquet file of events and the manifest that makes it exist.

Commit order: data, then manifest, each temp -> fsync -> link -> fsync of the directory
(`ingest.core.durable.put`). Parquet mostly reads a flipped bit as wrong data without an
error, so the manifest holds the SHA-256 of the file, and the hash of the manifest before it: a chain.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core import integrity
from ingest.core.durable import DISK, Disk, put
from ingest.core.errors import DamageError
from replay.log.events import MAX_INTEGER, canonical
from replay.log.running_digests import Row, Streams

COMMITTED = re.compile(r"([0-9]{20})\.(parquet|json)")
"""Names of committed files; matched in full, so that no temporary file fits."""
SCHEMA_NAME = "twin.segment/2"
OLDER_SCHEMA = "twin.segment/1"
"""Read, no longer written: a manifest without `walls`."""
GENESIS = "0" * 64
"""`previous` of the first manifest."""
WORTH_COMPRESSING = 32
"""Least number of events of a segment that is compressed."""

SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("sim_ns", pa.int64(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("version", pa.int32(), nullable=False),
        pa.field("job", pa.string(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),  # canonical JSON
        pa.field("wall", pa.string(), nullable=False),  # JSON, outside the digest
    ]
)


class FileDamageError(DamageError):
    """Damage to one file of a run: `file` is its name, `problem` says what is wrong."""

    def __init__(self, path: Path, problem: str, *, code: str | None = None) -> None:
        super().__init__(f"{path}: {problem}", code=code)
        self.file, self.problem = path.name, problem


@dataclass(frozen=True, slots=True)
class Piece:
    """A Parquet file of events: its name, its events, and the file that holds its digest (`voucher`)."""

    data_name: str
    first_seq: int
    last_seq: int
    size_bytes: int
    sha256: str
    voucher: str


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """Manifest of a segment; `final` ends the run.

    `stream` is the run's digest through `last_seq`, `walls` the same over the wall-clock texts.
    """

    first_seq: int
    last_seq: int
    rows: int
    size_bytes: int
    sha256: str
    previous: str
    stream: str
    final: bool
    walls: str | None
    schema: str = SCHEMA_NAME

    @property
    def data_name(self) -> str:
        """Name of the Parquet file."""
        return f"{self.first_seq:020d}.parquet"

    @property
    def name(self) -> str:
        """Name of the manifest."""
        return f"{self.first_seq:020d}.json"

    @property
    def piece(self) -> Piece:
        """Data file of this segment."""
        return Piece(self.data_name, self.first_seq, self.last_seq, self.size_bytes, self.sha256, self.name)

    def fields(self) -> dict[str, object]:
        """Returns the fields of its schema version by name."""
        names = [name for name in self.__slots__ if name != "walls" or self.walls is not None]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of_fields(cls, fields: dict[str, object]) -> "SegmentManifest | None":
        """Returns the manifest with these fields; None if they are not those of a manifest."""
        try:
            manifest = cls(**{"walls": None, **fields})  # type: ignore[arg-type]  # checked next
        except TypeError:
            return None
        return manifest if _sound(manifest) and manifest.fields().keys() == fields.keys() else None

    def text(self) -> bytes:
        """Returns the only bytes that a manifest file with these fields may hold.

        `check` is the SHA-256 of all other fields, so that a change is detected from the manifest alone.
        """
        fields = self.fields()
        check = hashlib.sha256(canonical(fields).encode()).hexdigest()
        return canonical({**fields, "check": check}).encode() + b"\n"

    @property
    def hash(self) -> str:
        """SHA-256 of the manifest's bytes: the chain's link, and its head if this is the last."""
        return hashlib.sha256(self.text()).hexdigest()


_FIELDS = {
    "first_seq": int,
    "last_seq": int,
    "rows": int,
    "size_bytes": int,
    "sha256": str,
    "previous": str,
    "stream": str,
    "final": bool,
    "schema": str,
}
_HEX = re.compile(r"[0-9a-f]{64}")


def commit(
    run_dir: Path,
    rows: Sequence[Row],
    previous: str,
    digests: Streams,
    *,
    final: bool,
    disk: Disk = DISK,
    store: Callable[[SegmentManifest, bytes], None] | None = None,
) -> SegmentManifest:
    """Commits `rows` (at least one, in order) as the next segment; durable on return.

    `digests` are those of the log up to and with these rows. With `store`, which makes the segment durable
    elsewhere and its two files from there, nothing is written here.

    Raises:
        ExistsError: another process committed this segment.
        StorageError: the disk refused; at most a data file without a manifest is left behind.
    """
    data = encode(rows)
    first, last = rows[0][0], rows[-1][0]
    sha256 = hashlib.sha256(data).hexdigest()
    manifest = SegmentManifest(
        first, last, len(rows), len(data), sha256, previous, digests.stream, final, digests.walls
    )
    if store is not None:
        disk.send(lambda: store(manifest, data))
        return manifest
    # The order is the atomicity: a data file without a manifest does not count, so a crash between the two
    # leaves no half segment.
    put(run_dir / manifest.data_name, data, disk=disk)
    put(run_dir / manifest.name, manifest.text(), disk=disk)
    return manifest


def encode(rows: Sequence[Row]) -> bytes:
    """Encodes rows as a Parquet file."""
    return encode_table(table_of(rows))


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Returns rows (at least one) as a table of `SCHEMA`."""
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def encode_table(table: pa.Table) -> bytes:
    """Encodes a table of `SCHEMA` as a Parquet file, a checksum in every page.

    A few events are not compressed: it would take longer than all the rest, and most bytes of such a file are
    its schema. Compaction compresses them.
    """
    sink = pa.BufferOutputStream()
    compression = "zstd" if table.num_rows >= WORTH_COMPRESSING else "none"
    dictionaries, statistics = ["type", "version", "job"], ["seq", "sim_ns"]
    pq.write_table(
        table, sink, compression=compression, use_dictionary=dictionaries, write_statistics=statistics,
        write_page_checksum=True,
    )  # fmt: skip
    return bytes(sink.getvalue())


def read_manifest(path: Path) -> SegmentManifest:
    """Reads the manifest in `path`, checked on its own.

    Raises:
        DamageError: `path` is no regular file or not exactly what `commit` writes under this name.
        FileNotFoundError: there is no such file.
    """
    data = read_file(path)
    try:
        fields = json.loads(data)
        del fields["check"]  # follows from the others
        manifest = SegmentManifest.of_fields(fields)
    except (ValueError, TypeError, KeyError, RecursionError):
        manifest = None
    # The bytes are compared with the only bytes that these fields may have: this also refuses other spellings
    # of the same values, such as spaces, escapes or a key twice.
    if manifest is None or manifest.text() != data or manifest.name != path.name:
        raise FileDamageError(path, "not a manifest that was written under this name; the file was changed")
    return manifest


def _sound(manifest: SegmentManifest) -> bool:
    """True if every field has its type and the numbers agree."""
    for name, kind in _FIELDS.items():
        if type(getattr(manifest, name)) is not kind:
            return False
    digests = [manifest.sha256, manifest.previous, manifest.stream]
    if manifest.schema == SCHEMA_NAME:
        digests.append(manifest.walls or "")
    return (
        manifest.schema in (SCHEMA_NAME, OLDER_SCHEMA)
        and isinstance(manifest.walls, str if manifest.schema == SCHEMA_NAME else type(None))
        and 0 <= manifest.first_seq <= manifest.last_seq <= MAX_INTEGER
        and manifest.rows == manifest.last_seq - manifest.first_seq + 1
        and manifest.size_bytes > 0
        and all(_HEX.fullmatch(digest) for digest in digests)
    )


def checked(run_dir: Path, piece: Piece) -> Path:
    """Checks size and digest of a data file and returns its path, for engines that read it themselves.

    Raises:
        DamageError: the file is missing, or has another length or digest.
    """
    _read_data(run_dir, piece)
    return run_dir / piece.data_name


def read_rows(run_dir: Path, piece: Piece) -> pa.Table:
    """Reads the events of a data file in the columns of `SCHEMA`, size and digest checked first.

    Raises:
        DamageError: the file is missing, has another length or digest, or does not hold events.
    """
    path = run_dir / piece.data_name
    data = _read_data(run_dir, piece)
    try:
        # One thread: a segment is small, starting others costs more than reading it.
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        table = file.read(use_threads=False)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileDamageError(path, f"not a Parquet file of events ({error})") from error
    numbers = range(piece.first_seq, piece.last_seq + 1)
    fits = table.schema.equals(SCHEMA) and table.num_rows == len(numbers)
    if not fits or not np.array_equal(table.column("seq").to_numpy(), np.arange(numbers.start, numbers.stop)):
        raise FileDamageError(path, f"does not hold the events {piece.first_seq} to {piece.last_seq}")
    return table


def _read_data(run_dir: Path, piece: Piece) -> bytes:
    path = run_dir / piece.data_name
    try:
        data = read_file(path)
    except FileNotFoundError:
        raise FileDamageError(path, f"missing, though its manifest {piece.voucher} is there") from None
    if len(data) != piece.size_bytes:
        raise FileDamageError(path, f"{len(data)} bytes, its manifest says {piece.size_bytes}")
    if hashlib.sha256(data).hexdigest() != piece.sha256:
        raise FileDamageError(
            path, f"the content was changed (its SHA-256 is not the one in {piece.voucher})"
        )
    return data


def rows_of(table: pa.Table) -> Iterator[Row]:
    """Yields the rows of a segment as tuples."""
    yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


def read_file(path: Path) -> bytes:
    """Reads a regular file; a link, a directory or a device in its place is damage.

    Raises:
        DamageError: it is no regular file, or the disk cannot read it.
        FileNotFoundError: there is no such file.
    """
    try:
        return integrity.content(path)
    except FileNotFoundError:
        raise
    except integrity.IrregularFileError as error:
        raise FileDamageError(path, str(error)) from None
    except OSError as error:
        raise FileDamageError(path, f"cannot be read ({error.strerror})") from error
