"""Copies of runs between stores, on disks and in buckets: what is missing is added, nothing is overwritten.

A segment goes over as it is, its manifest byte for byte: so the chain of the copy is that of the run, and a
copy that was cut short goes on where it ended. A run of which the target has another history is left.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ingest.core.durable import DISK, Lock, make_directory, put
from ingest.core.errors import DamageError, ExistsError, LockedError, UsageError
from ingest.core.progress import SILENT, Progress
from replay.log import bucket_log, chain_heads, recovery, segment, segment_index
from replay.log.bucket_log import BucketLog
from replay.log.run_log import RunReader
from replay.log.segment_index import RECORD, SegmentIndex
from replay.store import layout, run_index


@dataclass(frozen=True, slots=True)
class CopiedRun:
    """A run of the source: its segments that the target had before and those that were copied.

    `waiting` counts its events that are in no segment yet; `problem` says why it was left as it is.
    """

    run_id: str
    there: int = 0
    copied: int = 0
    copied_bytes: int = 0
    waiting: int = 0
    problem: str = ""

    def to_json(self) -> dict[str, object]:
        """Returns the figures of one run in `twin sync --json`."""
        figures = {"there": self.there, "copied": self.copied, "copied_bytes": self.copied_bytes}
        return {"run": self.run_id, **figures, "waiting": self.waiting, "problem": self.problem or None}


def synchronize(
    source: Path, target: Path, run_ids: Iterable[str] = (), progress: Progress = SILENT
) -> tuple[CopiedRun, ...]:
    """Copies runs of `source` (all of them, if none is named) to `target` and returns what was done for each.

    Raises:
        UsageError: both are one store, or the source is none. NotFoundError: it has no such run.
        StorageError: a disk or the server refused.
    """
    if source.resolve() == target.resolve():
        raise UsageError(f"{source}: source and target are the same store")
    if not source.is_dir():
        raise UsageError(f"{source}: no such store")
    chosen = [run_index.find(source, run) for run in run_ids] or layout.all_ids(source)
    log = BucketLog.of(layout.folder(target, "any"))
    if log is not None:
        DISK.send(log.objects.check_conditional)
    progress.start(len(chosen), "copying", "runs")
    plans = [_planned(layout.folder(source, run), layout.folder(target, run)) for run in chosen]
    DISK.foretell(*((target / layout.RUNS / plan.run_id, plan.words) for plan in plans))
    done: list[CopiedRun] = []
    for plan in plans:
        done.append(_copied(layout.folder(source, plan.run_id), layout.folder(target, plan.run_id), plan))
        progress.advance(1, note=plan.run_id)
    return tuple(done)


class _Plan(NamedTuple):
    """What the source has of a run and the target had; `problem`: why nothing is copied."""

    run_id: str
    found: SegmentIndex
    there: SegmentIndex
    problem: str = ""

    @property
    def words(self) -> str:
        """The segments that are missing, in words."""
        missing = max(0, len(self.found.chain) - len(self.there.chain))
        return self.problem or f"{missing:,} of {len(self.found.chain):,} segments of the run"


def _planned(source: Path, target: Path) -> _Plan:
    nothing = SegmentIndex((), ())
    try:
        found, there = RunReader(source).contents(), _there(target)
        _compare(source, target, found, there)
    except (DamageError, LockedError) as error:
        return _Plan(source.name, nothing, nothing, str(error))
    return _Plan(source.name, found, there)


def _copied(source: Path, target: Path, plan: _Plan) -> CopiedRun:
    found, there = plan.found, len(plan.there.chain)
    waiting = found.end - found.sealed
    if plan.problem or there >= len(found.chain):
        return CopiedRun(source.name, len(found.chain), waiting=waiting, problem=plan.problem)
    try:
        size = _copy(source, target, found, there)
    except (DamageError, ExistsError, LockedError) as error:
        return CopiedRun(source.name, there, problem=str(error))
    return CopiedRun(source.name, there, len(found.chain) - there, size, waiting)


def _there(target: Path) -> SegmentIndex:
    """Returns what the target has of a run, brought up to date where it is in a bucket."""
    bucket_log.bring_up_to_date(target)
    if not target.is_dir():
        return SegmentIndex((), ())
    found = recovery.walk(target)
    if found.tail:
        raise LockedError(
            f"{target}: events are in no segment yet; resume the run there, or let its writer end"
        )
    return found


def _compare(source: Path, target: Path, found: SegmentIndex, there: SegmentIndex) -> None:
    """Checks that one chain is the beginning of the other."""
    for ours, theirs in zip(found.chain, there.chain, strict=False):
        if ours != theirs:
            raise DamageError(
                f"{target}: has another history than {source} from event {ours.first_seq:,} on; "
                "nothing was copied"
            )


def _copy(source: Path, target: Path, found: SegmentIndex, done: int) -> int:
    """Adds the segments behind the first `done` of them; returns the bytes written."""
    bucket = BucketLog.of(target)
    make_directory(target)
    size = 0
    with Lock(target / recovery.LOCK):
        if found.compacted:
            size = _copy_compacted(source, target, found, bucket)
        for manifest in () if found.compacted else found.chain[done:]:
            data = segment.checked(source, manifest.piece).read_bytes()
            if bucket is not None:
                DISK.send(lambda m=manifest, d=data: bucket.copy(m, d))  # type: ignore[misc]
            else:
                put(target / manifest.data_name, data, idempotent=True)
                put(target / manifest.name, manifest.text(), idempotent=True)
            size += len(data)
        _copy_head(source, target, bucket)
    return size


def _copy_compacted(source: Path, target: Path, found: SegmentIndex, bucket: BucketLog | None) -> int:
    """Copies merged files, then the record that makes them effective, then removes what they replace."""
    size = 0
    files = [(piece.data_name, segment.checked(source, piece)) for piece in found.pieces]
    for name, path in [*files, (RECORD, source / RECORD)]:
        data = segment_index.record(found) if name == RECORD else path.read_bytes()
        if bucket is not None:
            DISK.send(lambda n=name, d=data: bucket.copy_file(n, d))  # type: ignore[misc]
        else:
            put(target / name, data, idempotent=True)
        size += len(data)
    recovery.sweep(target)
    return size


def _copy_head(source: Path, target: Path, bucket: BucketLog | None) -> None:
    """Records the end of the run where the source has such a record: it holds in the copy, too."""
    head = chain_heads.read(source)
    if head is None:
        return
    chain_heads.write(target, head.events, head.head)
    if bucket is not None:
        record = chain_heads.record(target.name, head.events, head.head)
        DISK.send(lambda: bucket.close(record))
