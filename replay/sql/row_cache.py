"""Cache of derived data: `<store>/cache` may be deleted at any time.

It holds the rows of views over large finished runs, and in `verified.json` the digests of these files as
written; digests of events are in the manifests of their runs. No check by another process is trusted: what a
query reads is hashed first (`ingest.core.integrity`). Audits do not use the cache.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core import durable, integrity
from ingest.core.errors import DamageError, ExistsError, StorageError
from replay.log.events import UPCAST
from replay.log.segment import FileDamageError, Piece
from replay.log.segment_index import SegmentIndex
from replay.sql.view_definition import SqlView

FOLDER = "cache"
LEAST_EVENTS = 50_000
"""Least number of events of a run whose rows are cached; fewer are parsed in a fraction of a second."""
DIGESTS = "verified.json"
SCHEMA = "twin.cache/2"
Written = tuple[int, str]
TYPES = {"files": dict[str, Written]}
"""Size and SHA-256 of a file as it was written."""


class Cache:
    """The cache of one store; `note` is called with what took time or was damaged."""

    def __init__(self, store: Path, note: Callable[[str], object]) -> None:
        self._folder, self._note = store / FOLDER, note
        self.path = self._folder / DIGESTS
        self._written = self._read()
        self._before = dict(self._written)

    def check(self, run_dir: Path, piece: Piece) -> None:
        """Checks a data file against its voucher; its content is hashed once per process.

        Raises:
            DamageError: it is missing, or has another length or digest.
        """
        path = run_dir / piece.data_name
        problem = integrity.fault(path, piece.size_bytes, piece.sha256)
        if problem is not None:
            raise FileDamageError(path, f"{problem} (its size and digest are in {piece.voucher})")

    @staticmethod
    def worth(contents: SegmentIndex) -> bool:
        """True if rows are cached: the run is large and finished, so that they never change."""
        return contents.final and contents.end >= LEAST_EVENTS

    def kept(
        self, run: str, head: str, view: SqlView, make: Callable[[], pa.RecordBatchReader]
    ) -> Path | None:
        """Returns the file with the rows of `view` over a run, written with `make` if missing or damaged.

        None: the store cannot be written.
        """
        path = self._path(run, head, view)
        if os.path.lexists(path):
            if self._intact(path):
                return path
            self._note(f"{path}: is not what was written; it is made again from the log")
            with suppress(StorageError):  # then it cannot be written again either
                durable.remove(path)
        self._note(f"{run}: reading {view.name} from the log, once")
        try:
            stored = durable.put_file(path, lambda stream: _write(make(), stream))
        except ExistsError:  # another process was faster, or it could not be removed
            return path if self._intact(path) else None
        except StorageError:
            return None
        self._written[self._key(path)] = stored.size_bytes, stored.sha256
        return path if self._intact(path) else None

    def superseded(self, heads: Mapping[str, str], kept: Iterable[SqlView]) -> list[Path]:
        """Returns the files that no query reads any more: of runs that are gone, of another head, or of views
        that were defined otherwise. `heads` has the chain heads of the runs, `kept` the cached views."""
        current = {self._path(run, head, view) for run, head in heads.items() for view in kept}
        return sorted(path for path in self._folder.glob("*/*.parquet") if path not in current)

    def _path(self, run: str, head: str, view: SqlView) -> Path:
        made_of = f"{head} {view.select} {sorted(UPCAST)}"
        key = hashlib.sha256(made_of.encode()).hexdigest()[:32]
        return self._folder / run / f"{view.name}-{key}.parquet"

    def save(self) -> None:
        """Saves the digests found, merged with those that other processes saved meanwhile."""
        found = {key: value for key, value in self._written.items() if self._before.get(key) != value}
        if not found:
            return
        known = {**self._read(), **found}
        existing = {key: list(value) for key, value in known.items() if (self._folder / key).exists()}
        with suppress(StorageError):  # a store that cannot be written can still be read
            durable.replace(self.path, integrity.sealed({"schema": SCHEMA, "files": existing}))

    def faults(self) -> dict[Path, str]:
        """Returns how cached files differ from what was written, by file; all are read."""
        found = {self._folder / key: self._fault(self._folder / key) for key in self._written}
        return {path: problem for path, problem in found.items() if problem is not None}

    def _read(self) -> dict[str, Written]:
        try:
            data = integrity.read_optional(self.path)
        except DamageError:
            data = b""
        fields = {"files": {}} if data is None else integrity.unsealed(data, SCHEMA, TYPES)
        if fields is None:
            self._note(f"{self.path}: is not what was written; it is made again")
            return {}
        return {key: (size, sha256) for key, (size, sha256) in fields["files"].items()}

    def _intact(self, path: Path) -> bool:
        return self._fault(path) is None

    def _fault(self, path: Path) -> str | None:
        known = self._written.get(self._key(path))
        return "of unknown origin" if known is None else integrity.fault(path, *known)

    def _key(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()


def _write(rows: pa.RecordBatchReader, stream: BinaryIO) -> None:
    with pq.ParquetWriter(stream, rows.schema, compression="zstd", write_page_checksum=True) as writer:
        for batch in rows:
            writer.write_batch(batch)
