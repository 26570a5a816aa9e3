"""Cache of derived data: `<store>/cache` may be deleted at any time.

It holds the digests of checked files with their size, times and inode, so that an unchanged file is not
hashed for every query, and the rows of views over large finished runs. Audits do not use it.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core import durable
from ingest.core.errors import ExistsError, StorageError
from replay.log import segment
from replay.log.events import UPCAST, canonical
from replay.log.segment import Piece
from replay.log.segment_index import SegmentIndex
from replay.sql.view_definition import SqlView

FOLDER = "cache"
LEAST_EVENTS = 50_000
"""Least number of events of a run whose rows are cached; fewer are parsed in a fraction of a second."""
SCHEMA = "twin.cache/1"
Fingerprint = list[int | str]
"""Size, modification and change time, inode, and SHA-256 of a file when it was checked."""


class Cache:
    """The cache of one store; `note` is called with what took time or was damaged."""

    def __init__(self, store: Path, note: Callable[[str], object]) -> None:
        self._folder, self._note = store / FOLDER, note
        self._path = self._folder / "verified.json"
        self._store = store
        self._fingerprints = self._read()
        self._before = dict(self._fingerprints)

    def check(self, run_dir: Path, piece: Piece) -> None:
        """Checks a data file against its voucher; reads its bytes only if the file has changed since.

        Raises:
            DamageError: it is missing, or has another length or digest.
        """
        path = run_dir / piece.data_name
        with suppress(OSError):  # the full check reports a missing file
            if self._fingerprints.get(self._key(path)) == _fingerprint(path, piece.sha256):
                return
        segment.checked(run_dir, piece)
        self._fingerprints[self._key(path)] = _fingerprint(path, piece.sha256)

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
        made_of = f"{head} {view.select} {sorted(UPCAST)}"
        key = hashlib.sha256(made_of.encode()).hexdigest()[:32]
        path = self._folder / run / f"{view.name}-{key}.parquet"
        if path.exists():
            if self._intact(path):
                return path
            self._note(f"{path}: was changed; it is made again from the log")
            with suppress(StorageError):  # then it cannot be written again either
                durable.remove(path)
        self._note(f"{run}: reading {view.name} from the log, once")
        try:
            durable.put_file(path, lambda stream: _write(make(), stream))
        except ExistsError:  # another process was faster, or it could not be removed
            return path if self._intact(path) else None
        except StorageError:
            return None
        self._fingerprints[self._key(path)] = _fingerprint(
            path, hashlib.sha256(path.read_bytes()).hexdigest()
        )
        return path

    def save(self) -> None:
        """Saves the digests found, merged with those that other processes saved meanwhile."""
        found = {key: value for key, value in self._fingerprints.items() if self._before.get(key) != value}
        if not found:
            return
        known = {**self._read(), **found}
        existing = {key: value for key, value in known.items() if (self._store / key).exists()}
        value = {"schema": SCHEMA, "files": existing}
        with suppress(StorageError):  # a store that cannot be written can still be read
            durable.replace(self._path, canonical(value).encode())

    def _read(self) -> dict[str, Fingerprint]:
        try:
            value: Any = json.loads(self._path.read_bytes())
            if value["schema"] != SCHEMA or not all(
                isinstance(entry, list) for entry in value["files"].values()
            ):
                raise ValueError("not a list of verified files")
            return dict(value["files"])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._note(f"{self._path}: was changed; it is made again")
            return {}

    def _intact(self, path: Path) -> bool:
        known = self._fingerprints.get(self._key(path))
        if not known or known == _fingerprint(path, str(known[-1])):
            return bool(known)
        same = hashlib.sha256(path.read_bytes()).hexdigest() == known[-1]
        self._fingerprints[self._key(path)] = _fingerprint(path, str(known[-1]))
        return same

    def _key(self, path: Path) -> str:
        return path.relative_to(self._store).as_posix()


def _fingerprint(path: Path, sha256: str) -> Fingerprint:
    status = path.lstat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, sha256]


def _write(rows: pa.RecordBatchReader, stream: BinaryIO) -> None:
    with pq.ParquetWriter(stream, rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch)
