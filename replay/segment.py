"""One segment of a run: a Parquet file of events and the manifest that makes it exist.

Commit order: data, then manifest, each temp -> fsync -> link -> fsync of the directory
(`ingest.durable.put`). A flipped bit in a Parquet file is mostly read as wrong data without an error, so the
SHA-256 in the manifest is the integrity, and each manifest holds the hash of the one before: a chain.
"""

import hashlib
import io
import json
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.durable import DISK, Disk, put
from ingest.errors import DamageError
from replay.events import MAX_INTEGER, canonical

COMMITTED = re.compile(r"([0-9]{20})\.(parquet|json)")
"""Names of committed files; matched in full, so that no temporary file is ever taken for one."""
SCHEMA_NAME = "twin.segment/1"
GENESIS = "0" * 64
"""`previous` of the first manifest."""

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
    """Damage to one file of a run: `file` is its name, `problem` what is wrong with it."""

    def __init__(self, path: Path, problem: str):
        super().__init__(f"{path}: {problem}")
        self.file, self.problem = path.name, problem


Row = tuple[int, int, str, int, str, str, str]
"""One event as stored, in the order of `SCHEMA`."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a segment holds. `stream` is the run's digest through `last_seq`; `final` ends the run."""

    first_seq: int
    last_seq: int
    rows: int
    size_bytes: int
    sha256: str
    previous: str
    stream: str
    final: bool
    schema: str = SCHEMA_NAME

    @property
    def data_name(self) -> str:
        """Name of the Parquet file."""
        return f"{self.first_seq:020d}.parquet"

    @property
    def name(self) -> str:
        """Name of the manifest."""
        return f"{self.first_seq:020d}.json"

    def text(self) -> bytes:
        """The only bytes that a manifest file with these contents may hold.

        `check` is the SHA-256 of all other fields, so that a changed manifest is known as such by itself.
        """
        fields = asdict(self)
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
    run_dir: Path, rows: Sequence[Row], previous: str, stream: str, final: bool, disk: Disk = DISK
) -> Manifest:
    """Make `rows` (at least one, in order) the next segment; durable when this returns.

    Raises:
        ExistsError: somebody else committed this segment.
        StorageError: the disk refused; at most a data file without a manifest is left behind.
    """
    data = encode(rows)
    first, last = rows[0][0], rows[-1][0]
    sha256 = hashlib.sha256(data).hexdigest()
    manifest = Manifest(first, last, len(rows), len(data), sha256, previous, stream, final)
    put(run_dir / manifest.data_name, data, disk=disk)
    put(run_dir / manifest.name, manifest.text(), disk=disk)
    return manifest


def encode(rows: Sequence[Row]) -> bytes:
    """Rows as the bytes of a Parquet file."""
    columns = list(zip(*rows, strict=True))
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=["type", "version", "job"])
    return sink.getvalue()


def read_manifest(path: Path) -> Manifest:
    """The manifest in `path`, checked on its own.

    Raises:
        DamageError: `path` is no regular file or not exactly what `commit` writes under this name.
        FileNotFoundError: there is no such file.
    """
    data = read_file(path)
    try:
        fields = json.loads(data)
        del fields["check"]  # what it must be follows from the others
        manifest = Manifest(**fields)
        sound = _sound(manifest) and manifest.text() == data
    except (ValueError, TypeError, KeyError, RecursionError):
        sound = False
    if not sound or manifest.name != path.name:
        raise FileDamageError(path, "not a manifest that was written under this name; the file was changed")
    return manifest


def _sound(manifest: Manifest) -> bool:
    """Every field of the right kind and the numbers in agreement."""
    for name, kind in _FIELDS.items():
        if type(getattr(manifest, name)) is not kind:
            return False
    digests = (manifest.sha256, manifest.previous, manifest.stream)
    return (
        manifest.schema == SCHEMA_NAME
        and 0 <= manifest.first_seq <= manifest.last_seq <= MAX_INTEGER
        and manifest.rows == manifest.last_seq - manifest.first_seq + 1
        and manifest.size_bytes > 0
        and all(_HEX.fullmatch(digest) for digest in digests)
    )


def checked(run_dir: Path, manifest: Manifest) -> Path:
    """Path of a segment's data, its size and digest checked; for engines that read the file themselves.

    Raises:
        DamageError: the file is missing, or has another length or digest.
    """
    _read_data(run_dir, manifest)
    return run_dir / manifest.data_name


def read_rows(run_dir: Path, manifest: Manifest) -> pa.Table:
    """The events of a segment in the columns of `SCHEMA`, its size and digest checked first.

    Raises:
        DamageError: the file is missing, has another length or digest, or holds something else than events.
    """
    path = run_dir / manifest.data_name
    data = _read_data(run_dir, manifest)
    try:
        table = pq.read_table(pa.BufferReader(data))
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileDamageError(path, f"not a Parquet file of events ({error})") from error
    seq = table.column("seq").to_pylist() if table.schema.equals(SCHEMA) else None
    if seq != list(range(manifest.first_seq, manifest.last_seq + 1)):
        raise FileDamageError(path, f"does not hold the events {manifest.first_seq} to {manifest.last_seq}")
    return table


def _read_data(run_dir: Path, manifest: Manifest) -> bytes:
    path = run_dir / manifest.data_name
    try:
        data = read_file(path)
    except FileNotFoundError:
        raise FileDamageError(path, f"missing, though its manifest {manifest.name} is there") from None
    if len(data) != manifest.size_bytes:
        raise FileDamageError(path, f"{len(data)} bytes, its manifest says {manifest.size_bytes}")
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise FileDamageError(
            path, f"the content was changed (its SHA-256 is not the one in {manifest.name})"
        )
    return data


def rows_of(table: pa.Table) -> Iterator[Row]:
    """The rows of a segment as tuples."""
    yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


def read_file(path: Path) -> bytes:
    """The bytes of a regular file; a link, a directory or a device in its place is damage.

    Raises:
        DamageError: it is no regular file, or the disk cannot read it.
        FileNotFoundError: there is no such file.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise FileDamageError(path, "not a regular file")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileDamageError(path, f"cannot be read ({error.strerror})") from error
