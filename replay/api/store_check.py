"""Checks every stored file of a store: lake, logs, checkpoints, calibrations, schedule, caches.

Each file is read whole, whatever was checked before. Runs are not computed again: `replay.audit.audit` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ingest.core.errors import TwinError
from ingest.core.progress import SILENT, Progress
from ingest.core.terminal import SENTENCE, clipped
from ingest.lake import lake
from replay.audit import signing
from replay.log import bucket_log, chain_heads
from replay.log.run_log import RunReader
from replay.sql.row_cache import Cache
from replay.store import checkpoint_registry, run_index, run_labels
from replay.store.checkpoint_objects import CheckpointObjects
from replay.training import drift, schedule
from twin.calibration import calibration

Part = Literal["lake", "runs", "labels", "checkpoints", "calibration", "schedule", "cache"]


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """A damaged file: the part of the store, its path, the problem and what to do."""

    part: Part
    file: str
    problem: str

    def __str__(self) -> str:
        return f"{self.part}: {self.problem}"


@dataclass(frozen=True, slots=True)
class StoreReport:
    """Findings of a check of a whole store, `ok` if there are none; notes are circumstances, not faults."""

    store: str
    findings: tuple[StoreFinding, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """The object of `twin verify --json`."""
        found = [{"part": one.part, "file": one.file, "problem": one.problem} for one in self.findings]
        return {
            "schema": "twin.verify/1",
            "store": self.store,
            "ok": self.ok,
            "findings": found,
            "notes": list(self.notes),
        }


def check(store: Path, progress: Progress = SILENT) -> StoreReport:
    """Reads every stored file of a store; damage is returned, not raised."""
    findings = (
        *(StoreFinding("lake", str(path), problem) for path, problem in lake.faults(store, progress)),
        *_runs(store, progress),
        *_checkpoints(store, progress),
        *_small_files(store),
    )
    return StoreReport(str(store), findings, tuple(_notes(store)))


def _runs(store: Path, progress: Progress) -> Iterator[StoreFinding]:
    runs = run_index.all_ids(store)
    progress.start(len(runs), "runs", "runs")
    for run_id in runs:
        reader = RunReader(run_index.folder(store, run_id))
        found = reader.verify()
        for one in found:
            what = f"{reader.run_dir / one.file}: {one.problem}; see `twin audit {run_id} --quarantine`"
            yield StoreFinding("runs", str(reader.run_dir / one.file), what)
        problem = None if found else signing.contradiction(store, run_id, reader.contents())
        if problem is not None:
            yield StoreFinding("runs", str(signing.path_of(store, run_id)), problem)
        progress.advance(1, run_id)
    for name in bucket_log.odd_names(store):
        what = f"{clipped(name, SENTENCE)}: of no run; take the object out of the bucket"
        yield StoreFinding("runs", clipped(name, SENTENCE), what)
    for path in sorted((store / chain_heads.FOLDER).glob("*.json")):
        if path.stem not in runs:
            what = (
                f"{path}: its run is gone; restore {run_index.folder(store, path.stem)}, or delete this file"
            )
            yield StoreFinding("runs", str(path), what)


def _checkpoints(store: Path, progress: Progress) -> Iterator[StoreFinding]:
    paths = checkpoint_registry.stored(store)
    progress.start(len(paths), "checkpoints", "files")
    for path in paths:
        try:
            checkpoint_registry.verified(path)
        except TwinError as error:
            yield StoreFinding("checkpoints", str(path), str(error))
        progress.advance(1, path.name)
    try:
        active = checkpoint_registry.active(store)
        if active is not None:
            checkpoint_registry.path_of(store, active)
    except TwinError as error:
        yield StoreFinding("checkpoints", str(store / checkpoint_registry.POINTER), str(error))
    if (held := CheckpointObjects.of(store)) is not None:
        yield from (StoreFinding("checkpoints", title, problem) for title, problem in held.faults())
    if (problem := checkpoint_registry.copy_fault(store)) is not None:
        yield StoreFinding("checkpoints", problem.partition(": ")[0], problem)


def _small_files(store: Path) -> Iterator[StoreFinding]:
    for path, problem in run_labels.faults(store):
        yield StoreFinding("labels", str(path), problem)
    for path in sorted((store / calibration.FOLDER).glob("*.json")):
        try:
            calibration.read_named(path)
        except TwinError as error:
            yield StoreFinding("calibration", str(path), str(error))
    try:
        calibration.load(store)
    except TwinError as error:
        yield StoreFinding("calibration", str(store / calibration.IN_USE), str(error))
    if (fault := schedule.fault(store)) is not None:
        yield StoreFinding("schedule", str(store / schedule.SCHEDULE), fault)
    try:
        drift.drifting(store, "")
    except TwinError as error:
        yield StoreFinding("schedule", str(store / drift.STATE), str(error))
    unread: list[str] = []
    cache = Cache(store, unread.append)
    for text in unread:
        yield StoreFinding("cache", str(cache.path), text)
    for path, problem in cache.faults().items():
        if problem != "missing":
            what = f"{path}: {problem}; delete it, it is made again from the log"
            yield StoreFinding("cache", str(path), what)


def _notes(store: Path) -> Iterator[str]:
    try:
        left = lake.unnamed(store)
    except TwinError:  # reported
        return
    for path in left:
        yield f"{path}: no manifest names it: of an ingest under way or killed; the next ingest takes it away"
