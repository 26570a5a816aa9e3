"""Recovery of a run's directory: follows the chain of manifests and removes the left-overs of a crash.

`walk` follows the chain; `sweep` removes the files of an interrupted commit and nothing else.
"""

import re
import stat
from collections.abc import Sequence
from pathlib import Path

from ingest.core.durable import DISK, Disk, Lock, remove_all, settle, settle_file
from ingest.core.errors import NotFoundError
from replay.log import chain_heads, segment, segment_index
from replay.log.segment import COMMITTED, GENESIS, SegmentManifest
from replay.log.segment_index import MERGED, RECORD, SegmentIndex
from replay.log.tail import NAME as TAIL
from replay.log.tail import Tail, read_tail, tail_name

LOCK = ".lock"
LEFT_OVER = re.compile(
    r"\.([0-9]{20}\.parquet|[0-9]{20}\.json|[0-9]{20}-[0-9]{20}\.parquet|compacted\.json)\.[0-9]+-[0-9]+\.tmp"
)
"""Temporary files of a commit or a compaction."""


def walk(run_dir: Path) -> SegmentIndex:
    """Returns the chain from the first to the last committed segment, links and sizes checked.

    If a compaction happens meanwhile, the result is that before or after it.

    Raises:
        DamageError: a manifest is changed, missing, or follows from another one; the record of a compaction
            is missing; or the log is shorter than when its writer was closed.
    """
    head = chain_heads.read(run_dir)  # before the chain, which only grows
    found = chain_of(run_dir)
    problem = None if head is None else head.fault(found)
    if problem is not None:
        raise segment.FileDamageError(run_dir / f"{found.end:020d}.json", problem)
    return found


def chain_of(run_dir: Path) -> SegmentIndex:
    """Returns the chain as `walk` does, whatever its end was when the writer was closed."""
    found = _compacted(run_dir)
    if found is not None:
        return found
    try:
        followed = _follow(run_dir)
    except segment.FileDamageError:
        found = _compacted(run_dir)
        if found is None:
            raise
        return found
    if followed.final:
        return followed
    found = _compacted(run_dir) or followed  # a compaction that ended just now removes the files
    orphans = [] if found.chain else sorted(name for name in _look(run_dir) if MERGED.fullmatch(name))
    if orphans:
        raise segment.FileDamageError(run_dir / RECORD, f"missing, though {orphans[0]} is there; restore it")
    return found


def _compacted(run_dir: Path) -> SegmentIndex | None:
    found = segment_index.read_record(run_dir)
    for piece in found.pieces if found else ():
        segment_index.check_size(run_dir, piece)
    return found


def _follow(run_dir: Path) -> SegmentIndex:
    """Follows names instead of listing them, so that a reader of a growing run never sees a gap."""
    chain: list[SegmentManifest] = []
    while True:
        first = chain[-1].last_seq + 1 if chain else 0
        path = run_dir / f"{first:020d}.json"
        try:
            manifest = segment.read_manifest(path)
        except FileNotFoundError:
            later = _later(run_dir, first)
            if later is None:
                tail = None if chain and chain[-1].final else live_tail(run_dir, chain)
                if tail is None and path.exists():  # its events went into the segment between the two looks
                    continue
                return segment_index.of_chain(chain, tail)
            if path.exists():  # committed between the two looks
                continue
            raise segment.FileDamageError(path, f"missing, though {later} is there") from None
        _check_link(run_dir, chain, manifest)
        chain.append(manifest)


def _check_link(run_dir: Path, chain: list[SegmentManifest], manifest: SegmentManifest) -> None:
    path = run_dir / manifest.name
    if chain and chain[-1].final:
        raise segment.FileDamageError(path, "lies behind the end of the run")
    if manifest.previous != (chain[-1].hash if chain else GENESIS):
        before = chain[-1].name if chain else "the start"
        raise segment.FileDamageError(
            path, f"does not follow from {before}: one of them was changed, swapped or is of another run"
        )
    segment_index.check_size(run_dir, manifest.piece)


def live_tail(run_dir: Path, chain: Sequence[SegmentManifest]) -> Tail | None:
    """Returns the tail behind a chain; None: there is none, or no append to it has ended.

    Raises:
        DamageError: the tail is not as it was written.
    """
    first, previous = (chain[-1].last_seq + 1, chain[-1].hash) if chain else (0, GENESIS)
    try:
        tail = read_tail(run_dir / tail_name(first), first, previous)
    except FileNotFoundError:
        return None
    return tail if tail.rows else None


def _later(run_dir: Path, first: int) -> str | None:
    """Returns the name of the next manifest from `first` on, or of a tail behind `first`, if any."""
    names = sorted(entry.name for entry in run_dir.iterdir())
    manifests = [name for name in names if is_manifest(name) and int(name[:20]) >= first]
    return next(iter(manifests), None) or tail_behind(names, first)


def tail_behind(names: Sequence[str], first: int) -> str | None:
    """Returns the name of a tail that begins behind event `first`, if any."""
    return next((name for name in names if TAIL.fullmatch(name) and int(name[:20]) > first), None)


def is_manifest(name: str) -> bool:
    """True for the name of a segment's manifest."""
    return COMMITTED.fullmatch(name) is not None and name.endswith(".json")


def recover(run_dir: Path, disk: Disk = DISK) -> tuple[str, ...]:
    """Recovers a run that was killed and returns the names of the removed left-overs.

    Raises:
        NotFoundError: there is no such run.
        LockedError: its writer is alive.
        DamageError: a file is there that no crash can have left.
    """
    if not run_dir.is_dir():
        raise NotFoundError(f"{run_dir}: no such run; `twin runs` lists those that are there")
    with Lock(run_dir / LOCK):
        return sweep(run_dir, disk)


def sweep(run_dir: Path, disk: Disk = DISK) -> tuple[str, ...]:
    """Recovers a run whose lock the caller holds."""
    found = walk(run_dir)
    left, foreign = unlisted(run_dir, names(run_dir), found)
    if foreign:
        raise segment.FileDamageError(run_dir / foreign[0], "does not belong to the run; move it away")
    if found.compacted and left:  # the originals are removed only if their replacements are whole
        for piece in found.pieces:
            segment.checked(run_dir, piece)
    if found.tail:  # read, but perhaps not yet on the disk
        settle_file(run_dir / found.tail.name, disk=disk)
    remove_all(run_dir, left, disk=disk)
    for directory in (run_dir, *run_dir.absolute().parents[:2]):  # what is visible now becomes durable
        settle(directory, disk=disk)
    return left


def names(run_dir: Path) -> tuple[str, ...]:
    """Returns the sorted names in the directory at one moment, whatever a live writer does.

    A listing holds every file that is there all the while. Of files that appear or vanish meanwhile it may
    hold some and miss others, in any order: a file may be listed and an earlier one missed. So the directory
    is listed twice, and of the second listing only names up to the newest of the first are taken, in the
    order of a run (`_order`):

    * A writer links each file after those before it in this order and removes no segment before the record
      exists. So every file before the newest of the first listing is there during the second: the chain has
      no gap, and no data file is listed without the manifests before it. The newest itself may lack its
      manifest, as after a crash. Files that are there at the call are in the result.
    * A tail has the place of the segment that takes its events, and goes when that segment is there.
    * Files that recovery removes and a resumed writer makes again (the data file without a manifest, merged
      files without a record) have the same place in the order and may be listed or not.
    * The record is in the result only if the first listing has it: then the merged files of an abandoned
      compaction, which are removed before the record appears, are not in the second. If it appears later, the
      compaction may remove segments during the second listing, from the first on: a caller that misses one
      finds the first missing too, and then the record (`verification.verify` starts again, once).
    * Two listings always end; listing until two agree would not, beside a writer faster than a listing.
    """
    newest = max((_order(name) for name in _look(run_dir)), default=_order(LOCK))
    return tuple(sorted({name for name in _look(run_dir) if _order(name) <= newest}))


def _look(run_dir: Path) -> list[str]:
    return [entry.name for entry in run_dir.iterdir()]


def _order(name: str) -> tuple[int, str]:
    """Returns the place of a file in the order of a run: segments by first event, merged files, record.

    Other names come first.
    """
    if COMMITTED.fullmatch(name) or TAIL.fullmatch(name):
        return 1, name.partition(".")[0]
    if MERGED.fullmatch(name):
        return 2, ""
    return (3, "") if name == RECORD else (0, "")


def unlisted(
    run_dir: Path, present: Sequence[str], found: SegmentIndex
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names that are not part of the run: (left-overs of a crash, foreign files)."""
    written = {name for manifest in found.chain for name in (manifest.name, manifest.data_name)}
    known = {LOCK, *({RECORD} if found.compacted else written), *(p.data_name for p in found.pieces)}
    known |= {found.tail.name} if found.tail else set()
    left: list[str] = []
    foreign: list[str] = []
    for name in present:
        if name in known:
            continue
        unfinished = name in written if found.compacted else _uncommitted(name, found)
        unfinished = unfinished or _sealed_tail(name, found)
        crash = LEFT_OVER.fullmatch(name) or unfinished
        (left if crash and _regular(run_dir / name) else foreign).append(name)
    return tuple(left), tuple(foreign)


def _uncommitted(name: str, found: SegmentIndex) -> bool:
    """True for a data file whose manifest or record was not written any more."""
    if not found.final:
        return name == f"{found.sealed:020d}.parquet"
    ends = MERGED.fullmatch(name)
    firsts = {manifest.first_seq for manifest in found.chain}
    return ends is not None and int(ends[1]) in firsts and int(ends[2]) + 1 in firsts | {found.end}


def _sealed_tail(name: str, found: SegmentIndex) -> bool:
    """True for a tail whose events are in a segment, or that holds none."""
    ends = set() if found.final or found.tail else {found.sealed}
    firsts = {manifest.first_seq for manifest in found.chain} | ends
    return TAIL.fullmatch(name) is not None and int(name[:20]) in firsts


def _regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:  # a live writer's temporary file, removed by now
        return True
