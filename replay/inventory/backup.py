"""A copy of a store, made while services and runs write to it; what is copied again is only what changed.

Every file of a store is written once, replaced as a whole, or grows at its end, so a copy needs no lock: it
needs an order. Pointers (`active.json`, `lake/committed.json`, `heads/`) are read first and written last, so
that the copy never names what it lacks. A run whose files change under the copy, when a tail becomes a
segment or segments are merged, is listed and copied again. What a crash could have left in the store may be
left in a copy, too, and is mended in the same way. Caches, reports and locks are not copied: they come back.

Time grows with the bytes that are new, and with those of small files, which are compared byte by byte.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ingest.core import durable
from ingest.core.durable import DISK, Lock
from ingest.core.errors import LockedError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.terminal import clipped, shown
from replay.store import layout

MARK = "backup.json"
SCHEMA = "twin.backup/1"
POINTERS = ("active.json", "calibration.json", "schedule.json", "lake/committed.json", "heads")
"""What names other files: read before them, written after them."""
DERIVED = frozenset({"cache", "reports", "downloads", "quarantine", MARK})
"""Names of folders and files that are of no use in a copy, or come back; so are hidden ones and locks."""
SMALL_BYTES = 1 << 20
"""Larger files of equal size are taken as equal: parts, segments and weights are never written twice."""
CHUNK_BYTES = 1 << 22
TRIES = 8
"""How often a run is listed again because its files changed while they were copied."""


@dataclass(slots=True)
class Backup:
    """A copy that was made: `copied` and `unchanged` files, bytes that were written, runs in the store."""

    source: Path
    target: Path
    runs: int = 0
    copied: int = 0
    unchanged: int = 0
    written_bytes: int = 0
    removed: list[str] = field(default_factory=list)  # files of the copy that the store no longer has

    def to_json(self) -> dict[str, Any]:
        """The object of `twin backup --json`, without the findings of its check."""
        own = {name: getattr(self, name) for name in ("runs", "copied", "unchanged", "written_bytes")}
        return {"schema": SCHEMA, "store": str(self.source), "copy": str(self.target), **own,
                "removed": sorted(self.removed)}  # fmt: skip


def back_up(store: Path, target: Path, progress: Progress = SILENT) -> Backup:
    """Makes `target` a copy of the store as it is now, or brings an older copy up to date, and returns what
    was done. Runs that were removed from the store since stay in the copy.

    Raises:
        UsageError: `store` is no store, `target` lies inside of it or around it, or is neither empty nor such
            a copy. LockedError: another backup writes there, or a run changes faster than it can be copied.
        StorageError: the disk refused; the copy before is whole still.
    """
    _check(store, target)
    made = Backup(store, target)
    pointers = {path: path.read_bytes() for name in POINTERS for path in _files(store / name)}
    runs = [layout.folder(store, run) for run in layout.all_ids(store)]
    rest = [path for path in _files(store) if path not in pointers and not _in_runs(store, path)]
    DISK.foretell(
        (target, f"a copy of {store}: {len(runs):,} runs, {len(rest) + len(pointers):,} other files")
    )
    durable.make_directory(target)
    with Lock(target / ".lock"):
        _mark(target, complete=False)
        progress.start(len(runs) + len(rest), "copying", "runs and files")
        for path in rest:
            _copy(made, path)
            progress.advance(1)
        for run_dir in runs:
            _copy_run(made, run_dir)
            progress.advance(1, run_dir.name)
        for path, data in pointers.items():
            _write(made, path, data)
        _mark(target, complete=True)
    return made


def _mark(target: Path, *, complete: bool) -> None:
    """Says in the copy what it is, and whether a backup ended."""
    what = {"schema": SCHEMA, "at_epoch_s": int(time.time()), "complete": complete}
    durable.replace(target / MARK, json.dumps(what).encode() + b"\n")


def _check(store: Path, target: Path) -> None:
    if not any((store / name).exists() for name in ("lake", layout.RUNS, layout.CHECKPOINTS)):
        raise UsageError(f"{store} is no store: there are no lake, no runs and no checkpoints in it")
    whole, copy = store.resolve(), target.resolve()
    if whole == copy or whole in copy.parents or copy in whole.parents:
        raise UsageError(f"{clipped(str(target))} and the store lie in each other; name a folder elsewhere")
    if target.exists() and not target.is_dir():
        raise UsageError(f"{clipped(str(target))} is a file; name a folder")
    if target.is_dir() and not (target / MARK).is_file():
        found = sorted(path.name for path in target.iterdir() if path.name != ".lock")
        if found:
            raise UsageError(
                f"{clipped(str(target))} is no copy that `twin backup` made, and not empty: it has "
                f"{shown(found[0])}; name another folder"
            )


def _files(root: Path) -> Iterator[Path]:
    """Yields the files under `root`, itself where it is one, by name; links are never followed."""
    if root.is_file() and not root.is_symlink():
        yield root
    elif root.is_dir() and not root.is_symlink():
        for entry in sorted(root.iterdir()):
            if (
                entry.name not in DERIVED
                and not entry.name.startswith(".")
                and not entry.name.endswith("lock")
            ):
                yield from _files(entry)


def _in_runs(store: Path, path: Path) -> bool:
    return path.is_relative_to(store / layout.RUNS)


def _copy_run(made: Backup, run_dir: Path) -> None:
    """Copies the files of a run in the order of their events, then takes away what it no longer has."""
    for _ in range(TRIES):
        try:
            before = list(_files(run_dir))
            for path in before:
                _copy(made, path)
        except FileNotFoundError:  # a tail became a segment, or segments were merged
            continue
        if list(_files(run_dir)) != before:  # the list itself is not made in one moment
            continue
        own = {path.relative_to(run_dir) for path in before}
        place = made.target / run_dir.relative_to(made.source)
        for stale in [path for path in _files(place) if path.relative_to(place) not in own]:
            durable.remove(stale)
            made.removed.append(str(stale.relative_to(made.target)))
        made.runs += 1
        return
    raise LockedError(f"{run_dir}: its files changed {TRIES} times while they were copied; run it again")


def _copy(made: Backup, path: Path) -> None:
    """Copies a file unless the copy has it."""
    target = made.target / path.relative_to(made.source)
    size = path.stat().st_size
    if size > SMALL_BYTES and target.is_file() and target.stat().st_size == size:
        made.unchanged += 1
    elif size <= SMALL_BYTES or target.is_file():
        _write(made, path, path.read_bytes())
    else:
        with path.open("rb") as stream:
            stored = durable.put_file(target, lambda out: _pour(stream, out))
        made.copied, made.written_bytes = made.copied + 1, made.written_bytes + stored.size_bytes


def _pour(source: BinaryIO, target: BinaryIO) -> None:
    while piece := source.read(CHUNK_BYTES):
        target.write(piece)


def _write(made: Backup, path: Path, data: bytes) -> None:
    """Writes the bytes of a file into the copy, in place of other bytes."""
    target = made.target / path.relative_to(made.source)
    if target.is_file() and target.read_bytes() == data:
        made.unchanged += 1
        return
    durable.replace(target, data)
    made.copied, made.written_bytes = made.copied + 1, made.written_bytes + len(data)
