"""`twin ingest --follow`: take in what is added to files and folders, until it is stopped.

Every poll looks at sizes and times only. A file that has grown since and only grows, line by line (a CSV with
a header), is taken in pieces: each piece is its header and its new complete lines. Its place in the manifest
is the piece's own entry `<name>@<first byte>-<end>`, written in the same commit as the rows: a kill loses
nothing and repeats nothing, since the next start goes on behind the last byte in the manifest. Small commits
become larger ones (`ingest.lake.merging`). Other files are taken whole once they have kept their size for one
poll; content that is known adds no rows. An ingest of the whole file later replaces its pieces by one, and a
following replaces a file by pieces.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ingest.core.errors import InputError
from ingest.core.file_kinds import refuse_special
from ingest.core.text_files import encoding_of
from ingest.lake import lake, merging
from ingest.parsing.source import SMALL_BYTES, Source, file_of, from_bytes, piece_end, piece_name
from ingest.pipeline import discover
from ingest.pipeline.discover import DataSet
from ingest.pipeline.ingest import ingest_set, ingest_sources
from ingest.pipeline.ingest_report import FileResult

POLL_S = 1.0
_GROWING = (".csv", ".tsv")
"""Files that are taken line by line."""
_HEADER_BYTES = 1 << 16


@dataclass(slots=True)
class Followed:
    """Totals of `twin ingest --follow` so far."""

    polls: int = 0
    files: int = 0
    rows: int = 0
    rejected: int = 0
    skipped: dict[str, str] = field(default_factory=dict)

    def add(self, results: Sequence[FileResult]) -> int:
        """Count what is new among the results; how many rows that are."""
        rows = 0
        for result in results:
            if result.skipped_reason:
                self.skipped[result.path] = result.skipped_reason
            elif not result.already:
                self.files += 1
                rows += sum(result.stored.values())
                self.rejected += result.rejected
                self.skipped.pop(result.path, None)
        self.rows += rows
        return rows

    def to_json(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "schema": "twin.follow/1",
            "polls": self.polls,
            "taken": self.files,
            "rows": self.rows,
            "rejected": self.rejected,
            "skipped": self.skipped,
        }


def follow(
    paths: Sequence[Path],
    store: Path,
    *,
    poll_s: float = POLL_S,
    polls: int | None = None,
    notify: Callable[[str], None] = lambda line: None,
    into: Followed | None = None,
) -> Followed:
    """Take in what is under `paths`, then what is added, every `poll_s`; for `polls` rounds if given.

    The caller ends it with KeyboardInterrupt; `into` then holds what was taken.

    Raises:
        UsageError: a path does not exist.
        LockedError: another process ingests into this store.
    """
    done = Followed() if into is None else into
    watch = _Watch(store)
    while polls is None or done.polls < polls:
        if done.polls:
            time.sleep(poll_s)
        for item in _sets(paths):
            results = watch.look(item)
            rows = done.add(results)
            if rows:
                merging.merge_small(store, item.options.name)
                notify(f"{item.options.name}: {rows:,} rows added")
        done.polls += 1
    return done


def _sets(paths: Sequence[Path]) -> list[DataSet]:
    """The data sets as they are now; a folder that is still empty is none."""
    try:
        return discover.data_sets(paths)
    except InputError:
        return []


class _Watch:
    """State of each file: size and time at the last poll, and the byte up to which it was read."""

    def __init__(self, store: Path):
        self._store = store
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._settled: set[Path] = set()
        self._ends: dict[Path, int] = {}

    def look(self, item: DataSet) -> list[FileResult]:
        """Take in what is new of one data set."""
        results: list[FileResult] = []
        whole = []
        for path in item.files:
            if path.suffix.lower() in _GROWING:
                results += self._grown(item, path)
            elif self._is_settled(path):
                whole.append(path)
        if whole:
            self._settled.update(whole)
            results += ingest_set(DataSet(item.options, item.root, tuple(whole)), self._store)
        return results

    def _is_settled(self, path: Path) -> bool:
        """True if a file that is not yet read kept its size and time for one poll."""
        stamp = _stamp(path)
        before = self._stamps.get(path)
        self._stamps[path] = stamp
        if stamp != before:
            self._settled.discard(path)
            return False
        return path not in self._settled

    def _grown(self, item: DataSet, path: Path) -> list[FileResult]:
        """The new complete lines of a file, piece by piece."""
        name = item.name_of(path)
        try:
            refuse_special(path)
        except InputError as error:
            return [FileResult(str(path), item.options.name, skipped_reason=str(error))]
        except OSError:
            return []  # gone; the next poll does not list it
        if path not in self._ends:
            self._ends[path] = _taken(self._store, item.options.name, name)
        if _stamp(path)[0] < self._ends[path]:
            why = f"shorter than the {self._ends[path]:,} bytes that were taken; a new file needs a new name"
            return [FileResult(str(path), item.options.name, skipped_reason=why)]
        if (encoding := _encoding(path)) != "utf-8":
            why = f"{encoding.upper()} cannot be followed while it grows; write UTF-8, or ingest it whole"
            return [FileResult(str(path), item.options.name, skipped_reason=why)]
        results: list[FileResult] = []
        while (piece := _piece(path, name, self._ends[path])) is not None:
            source, end = piece
            results += ingest_sources(item.options, [source], self._store)
            self._ends[path] = end
        return results


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = refuse_special(path)
    except (OSError, InputError):
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _taken(store: Path, dataset: str, name: str) -> int:
    """End of the last piece of a file in the lake; 0 if it has none."""
    entries = [e for m in lake.live(store) if m.dataset == dataset for e in m.sources]
    return max((piece_end(e.file) or 0 for e in entries if file_of(e.file) == name), default=0)


def _encoding(path: Path) -> str:
    """The encoding that the first bytes of a file state."""
    with path.open("rb") as stream:
        return encoding_of(stream.read(4))


def _piece(path: Path, name: str, start: int) -> tuple[Source, int] | None:
    """The header and the complete lines from byte `start` on, as many as memory may hold, and their end."""
    with path.open("rb") as stream:
        header = stream.readline(_HEADER_BYTES)
        if not header.endswith(b"\n"):
            return None
        start = max(start, len(header))
        stream.seek(start)
        lines = stream.read(SMALL_BYTES - _HEADER_BYTES)
    lines = lines[: lines.rfind(b"\n") + 1]
    if not lines:
        return None
    end = start + len(lines)
    piece = from_bytes(piece_name(name, start, end), f"{path} from byte {start:,} on", header + lines)
    # Equal lines twice are two pieces, not one content under two names.
    own = hashlib.sha256(f"{piece.name}:{piece.sha256}".encode()).hexdigest()
    return replace(piece, sha256=own), end
