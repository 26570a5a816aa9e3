"""What can be computed again and is kept to save the time: `<store>/cache` may be deleted at any moment.

Two things are kept: which files had the digest they should have, with their size, times and inode, so that an
unchanged file is not hashed for every question; and the rows of views over large finished runs. Audits use
none of it.
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
from replay.log.segment_index import Contents
from replay.log.events import UPCAST, canonical
from replay.log.segment import Piece
from replay.sql.sql_view import View

FOLDER = "cache"
LEAST_EVENTS = 50_000
"""Events of a run whose rows are worth keeping: below that, parsing them takes a fraction of a second."""
SCHEMA = "twin.cache/1"
Print = list[int | str]
"""Size, modification and change time, inode, and the SHA-256 that the file had then."""


class Cache:
    """The kept things of one store; `note` is told what took time or was damaged."""

    def __init__(self, store: Path, note: Callable[[str], object]) -> None:
        self._folder, self._note = store / FOLDER, note
        self._path = self._folder / "verified.json"
        self._store = store
        self._prints = self._read()
        self._before = dict(self._prints)

    def check(self, run_dir: Path, piece: Piece) -> None:
        """Make sure that a data file is what its voucher says; its bytes are read only if it was touched.

        Raises:
            DamageError: it is missing, or has another length or digest.
        """
        path = run_dir / piece.data_name
        with suppress(OSError):  # a file that is not there is named by the full check
            if self._prints.get(self._key(path)) == _print(path, piece.sha256):
                return
        segment.checked(run_dir, piece)
        self._prints[self._key(path)] = _print(path, piece.sha256)

    @staticmethod
    def worth(contents: Contents) -> bool:
        """Whether rows are kept: the run is finished, so they never change, and large."""
        return contents.final and contents.end >= LEAST_EVENTS

    def kept(self, run: str, head: str, view: View, make: Callable[[], pa.RecordBatchReader]) -> Path | None:
        """The file with the rows of `view` over a run; made by `make` if it is not there or not whole.

        None: it cannot be kept, because the store cannot be written.
        """
        made_of = f"{head} {view.select} {sorted(UPCAST)}"
        key = hashlib.sha256(made_of.encode()).hexdigest()[:32]
        path = self._folder / run / f"{view.name}-{key}.parquet"
        if path.exists():
            if self._whole(path):
                return path
            self._note(f"{path}: was changed; it is made again from the log")
            with suppress(StorageError):  # then the next line cannot make it either
                durable.remove(path)
        self._note(f"{run}: reading {view.name} from the log, once")
        try:
            durable.put_file(path, lambda stream: _write(make(), stream))
        except ExistsError:  # another process was faster, or it could not be removed
            return path if self._whole(path) else None
        except StorageError:
            return None
        self._prints[self._key(path)] = _print(path, hashlib.sha256(path.read_bytes()).hexdigest())
        return path

    def save(self) -> None:
        """Keep what was found out, beside what others found out meanwhile."""
        found = {key: value for key, value in self._prints.items() if self._before.get(key) != value}
        if not found:
            return
        known = {**self._read(), **found}
        there = {key: value for key, value in known.items() if (self._store / key).exists()}
        value = {"schema": SCHEMA, "files": there}
        with suppress(StorageError):  # a store that cannot be written can be read all the same
            durable.replace(self._path, canonical(value).encode())

    def _read(self) -> dict[str, Print]:
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

    def _whole(self, path: Path) -> bool:
        known = self._prints.get(self._key(path))
        if not known or known == _print(path, str(known[-1])):
            return bool(known)
        same = hashlib.sha256(path.read_bytes()).hexdigest() == known[-1]
        self._prints[self._key(path)] = _print(path, str(known[-1]))
        return same

    def _key(self, path: Path) -> str:
        return path.relative_to(self._store).as_posix()


def _print(path: Path, sha256: str) -> Print:
    status = path.lstat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, sha256]


def _write(rows: pa.RecordBatchReader, stream: BinaryIO) -> None:
    with pq.ParquetWriter(stream, rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch)
