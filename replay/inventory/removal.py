"""Runs taken out of a store for good, each at once: a killed removal leaves a whole run or none.

A run is first renamed to `.removed-RUN` in the store, under the lock of its writer; from then on nothing sees
it. Then what only it has goes: the record of its end, labels, signature, cached rows and figures. Reports and
the runs that ask what-if about it stay. `finish` takes away what a killed removal left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import durable, names
from ingest.core.errors import TwinError
from ingest.objects import working_copy
from replay.audit import signing
from replay.inventory import cached_figures
from replay.log import chain_heads
from replay.log.recovery import LOCK
from replay.log.run_log import RunReader
from replay.sql import row_cache
from replay.store import run_index, run_labels

REMOVED = ".removed-"


@dataclass(frozen=True, slots=True)
class Removal:
    """A run that goes, or went: bytes on the disk, number of events, and the what-ifs that leave it."""

    run_id: str
    bytes: int
    events: int
    what_ifs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns all fields by name."""
        own = {"run": self.run_id, "bytes": self.bytes, "events": self.events}
        return {**own, "what_ifs": list(self.what_ifs)}


def planned(store: Path, run_ids: Sequence[str]) -> tuple[Removal, ...]:
    """Returns what `remove` would take away; nothing is changed."""
    branches = _branches(store)
    chosen = dict.fromkeys(run_ids)
    return tuple(
        Removal(
            run, sum(size_of(path) for path in _files(store, run)), _events(store, run),
            tuple(other for other, base in branches.items() if base == run and other not in chosen),
        )
        for run in chosen
    )  # fmt: skip


def remove(store: Path, run_ids: Sequence[str]) -> tuple[Removal, ...]:
    """Takes runs out of the store for good, one after the other, and returns them.

    Raises:
        NotFoundError: no such run. LockedError: it is being written. StorageError: the disk refused.
    """
    working_copy.refuse(store, "removal")
    found = planned(store, run_ids)
    for one in found:
        run_dir = RunReader(run_index.folder(store, one.run_id)).run_dir
        hidden = store / f"{REMOVED}{one.run_id}"
        if hidden.exists():
            finish(store, hidden)
        with durable.Lock(run_dir / LOCK):
            durable.move(run_dir, hidden)
        finish(store, hidden)
    return found


def finish(store: Path, hidden: Path) -> None:
    """Takes away a run that was renamed, and what only it had unless another run has its name by now."""
    run_id = hidden.name.removeprefix(REMOVED)
    if not run_index.folder(store, run_id).is_dir():
        chain_heads.forget(run_index.folder(store, run_id))
        for path in _beside(store, run_id):
            if path.is_dir():
                durable.remove_tree(path)
            elif path.exists():
                durable.remove(path)
    durable.remove_tree(hidden)


def left(store: Path) -> list[Path]:
    """Returns the folders that killed removals left."""
    return sorted(store.glob(f"{REMOVED}*")) if store.is_dir() else []


def size_of(path: Path) -> int:
    """Returns the bytes of a file, or of all files in a folder; 0 where nothing has the name."""
    if path.is_dir() and not path.is_symlink():
        return sum(inner.lstat().st_size for inner in path.rglob("*") if not inner.is_dir())
    return path.lstat().st_size if path.exists() else 0


def _files(store: Path, run_id: str) -> Iterator[Path]:
    run_dir = run_index.folder(store, run_id)
    yield run_dir
    if (head := chain_heads.path_of(run_dir)) is not None:
        yield head
    yield from _beside(store, run_id)


def _beside(store: Path, run_id: str) -> tuple[Path, ...]:
    """What belongs to one run and lies outside its folder, but for the record of its end."""
    return (
        run_labels.path_of(store, run_id),
        signing.path_of(store, run_id),
        cached_figures.path_of(store, run_id),
        names.inside(store / row_cache.FOLDER, run_id),
    )


def _events(store: Path, run_id: str) -> int:
    try:
        return RunReader(run_index.folder(store, run_id)).contents().end
    except TwinError:  # a damaged run can be removed, too
        return 0


def _branches(store: Path) -> dict[str, str]:
    """Every what-if of the store with its base run."""
    found = {}
    for run_id in run_index.all_ids(store):
        try:
            header = RunReader(run_index.folder(store, run_id)).header()
        except TwinError:  # a damaged run asks nothing
            continue
        if "branch" in header:
            found[run_id] = str(header["branch"]["run"])
    return found
