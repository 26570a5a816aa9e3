"""What a store holds that nothing needs: left-overs of killed processes, and what nothing refers to.

A run that was killed is none: it can be resumed. Nor is anything that somebody asked for by name: reports,
calibrations, downloads, quarantine. Each kind is taken away under the lock of those who write it; what is
locked, or cannot be read, stays.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import durable, scratch
from ingest.core.durable import Lock
from ingest.core.errors import TwinError
from ingest.lake import lake
from ingest.objects import working_copy
from replay.inventory import removal
from replay.log import recovery
from replay.log.run_log import RunReader
from replay.sql import views
from replay.sql.row_cache import Cache
from replay.store import checkpoint_lineage, checkpoint_registry, run_index, run_labels
from replay.training import retrain, train


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file or folder that goes, its bytes, and why nothing needs it."""

    kind: str
    path: Path
    bytes: int
    why: str

    def to_json(self) -> dict[str, Any]:
        """Returns all fields by name."""
        return {"kind": self.kind, "path": str(self.path), "bytes": self.bytes, "why": self.why}


@dataclass(frozen=True, slots=True)
class Collection:
    """Garbage that goes, or went (`done`), and notes on what had to stay."""

    found: tuple[Garbage, ...]
    notes: tuple[str, ...]
    done: bool

    @property
    def bytes(self) -> int:
        """Of all that goes together."""
        return sum(one.bytes for one in self.found)

    def to_json(self) -> dict[str, Any]:
        """The object of `twin gc --json`."""
        return {
            "schema": "twin.gc/1",
            "removed": self.done,
            "bytes": self.bytes,
            "found": [one.to_json() for one in self.found],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of garbage: why it is none of value, how it is found, and how it is taken away."""

    name: str
    why: str
    find: Callable[[Path], Iterable[Path]]
    remove: Callable[[Path, list[Path]], None]


def collect(store: Path, *, dry_run: bool) -> Collection:
    """Finds what nothing needs and takes it away, kind by kind; with `dry_run` nothing is changed."""
    found: list[Garbage] = []
    notes: list[str] = []
    for kind in KINDS if store.is_dir() else ():
        try:
            paths = list(kind.find(store))
            own = [Garbage(kind.name, path, removal.size_of(path), kind.why) for path in paths]
            if paths and not dry_run:
                kind.remove(store, paths)
            found += own
        except TwinError as error:
            notes.append(f"{kind.name} stay: {error}")
    notes += [
        f"{run}: not finished, and kept; `twin replay --resume {run}` goes on (`twin serve` with a "
        f"service's), `twin rm {run}` removes it"
        for run in _unfinished(store)
    ]
    return Collection(tuple(found), tuple(notes), not dry_run)


def _removed(store: Path, paths: list[Path]) -> None:
    for path in paths:
        removal.finish(store, path)


def _empty_runs(store: Path) -> Iterator[Path]:
    """Runs whose writer was killed before its first event was on the disk."""
    for run_id in run_index.all_ids(store):
        run_dir = run_index.folder(store, run_id)
        try:
            empty = RunReader(run_dir).contents().end == 0
        except TwinError:  # damaged, which is for `twin audit`
            continue
        if empty and _free(run_dir):
            yield run_dir


def _drop_runs(store: Path, paths: list[Path]) -> None:
    removal.remove(store, [path.name for path in paths])


def _uncommitted(store: Path) -> Iterator[Path]:
    """Files in runs that a killed writer had not committed."""
    for run_id in run_index.all_ids(store):
        run_dir = run_index.folder(store, run_id)
        try:
            left, _ = recovery.unlisted(run_dir, recovery.names(run_dir), recovery.walk(run_dir))
        except TwinError:  # damaged, which is for `twin audit`
            continue
        if left and _free(run_dir):
            yield from (run_dir / name for name in left)


def _recover(store: Path, paths: list[Path]) -> None:
    for run_dir in dict.fromkeys(path.parent for path in paths):
        recovery.recover(run_dir)


def _temporary(store: Path) -> Iterator[Path]:
    """Temporary files of ended processes, but for runs and lake, which have a recovery of their own."""
    own = (store / run_index.RUNS, lake.folder(store))
    for path in sorted(store.rglob(".*.tmp")):
        if durable.abandoned(path) and not any(folder in path.parents for folder in own):
            yield path


def _drop_files(store: Path, paths: list[Path]) -> None:
    for path in paths:
        durable.remove(path)


def _drop_folders(store: Path, paths: list[Path]) -> None:
    for path in paths:
        durable.remove_tree(path)


def _clean_lake(store: Path, paths: list[Path]) -> None:
    with lake.writing(store):
        lake.clean(store)


def _rows(store: Path) -> list[Path]:
    heads = {}
    for run_id in run_index.all_ids(store):
        contents = RunReader(run_index.folder(store, run_id)).contents()
        if Cache.worth(contents):
            heads[run_id] = contents.head
    return Cache(store, lambda text: None).superseded(heads, views.KEPT)


def _drop_labels(store: Path, paths: list[Path]) -> None:
    with Lock(store / run_labels.LOCK):
        _drop_files(store, [path for path in run_labels.orphans(store) if path in paths])


def _checkpoints(store: Path) -> Iterator[Path]:
    """Folders of checkpoints that no pointer, no run and no training of the store names; none of a bucket."""
    if working_copy.bucket_of(store) is not None:
        return
    named = {*checkpoint_registry.history(store)}
    for record in checkpoint_lineage.records(store):
        named |= {record.checkpoint, record.parent or record.checkpoint}
    for run_id in run_index.all_ids(store):
        reader = RunReader(run_index.folder(store, run_id))
        if reader.contents().end:
            named.add(reader.header()["checkpoint"] or "")
    for path in checkpoint_registry.stored(store):
        digest = path.parent.name
        if store in path.parents and not any(name and _same(digest, name) for name in named):
            yield path.parent


def _drop_checkpoints(store: Path, paths: list[Path]) -> None:
    with Lock(store / train.LOCK), Lock(store / retrain.LOCK):
        still = set(_checkpoints(store))
        _drop_folders(store, [path for path in paths if path in still])


def _same(one: str, other: str) -> bool:
    """True for two digests of which one may be the beginning of the other."""
    return one.startswith(other) or other.startswith(one)


def _unfinished(store: Path) -> list[str]:
    found = []
    for run_id in run_index.all_ids(store):
        run_dir = run_index.folder(store, run_id)
        try:
            contents = RunReader(run_dir).contents()
        except TwinError:  # damaged, which is for `twin audit`
            continue
        if contents.end and not contents.final and _free(run_dir):
            found.append(run_id)
    return found


def _free(run_dir: Path) -> bool:
    """True if no process writes a run."""
    return not durable.locked(run_dir / recovery.LOCK)


KINDS = (
    Kind("removed runs", "a removal of it was killed", removal.left, _removed),
    Kind("empty runs", "its writer was killed before its first event", _empty_runs, _drop_runs),
    Kind("uncommitted events", "their writer was killed", _uncommitted, _recover),
    Kind("scratch folders", "their process has ended", scratch.left, _drop_folders),
    Kind("temporary files", "their process has ended", _temporary, _drop_files),
    Kind("lake files", "no manifest names them", lake.unreferenced, _clean_lake),
    Kind("cached rows", "of a run that is gone, or of an older version", _rows, _drop_files),
    Kind("labels", "their run is gone", run_labels.orphans, _drop_labels),
    Kind("checkpoints", "no run, no training and no pointer names it", _checkpoints, _drop_checkpoints),
)
"""In the order in which they go: what goes first may be what the later kinds refer to."""
