"""What lies in a run's directory: the chain of manifests, what a crash may leave behind, and everything else.

`walk` follows the chain; `sweep` removes the left-overs of an interrupted commit and nothing else.
"""

import re
import stat
from collections.abc import Sequence
from pathlib import Path

from ingest.core.durable import DISK, Disk, Lock, remove_all, settle
from ingest.core.errors import NotFoundError
from replay.log import segment_index as contents, segment
from replay.log.segment_index import MERGED, RECORD, Contents
from replay.log.segment import COMMITTED, GENESIS, Manifest

LOCK = ".lock"
LEFT_OVER = re.compile(
    r"\.([0-9]{20}\.parquet|[0-9]{20}\.json|[0-9]{20}-[0-9]{20}\.parquet|compacted\.json)\.[0-9]+-[0-9]+\.tmp"
)
"""Temporary files of a commit or a compaction."""


def walk(run_dir: Path) -> Contents:
    """The chain from the first to the last committed segment, each link checked, sizes compared.

    A compaction may happen meanwhile: then the answer is from before it or from after it.

    Raises:
        DamageError: a manifest is changed, missing in the middle, or follows from another one.
    """
    found = _compacted(run_dir)
    if found is not None:
        return found
    try:
        chain = _follow(run_dir)
    except segment.FileDamageError:
        found = _compacted(run_dir)
        if found is None:
            raise
        return found
    followed = contents.of_chain(chain)
    if followed.final:
        return followed
    return _compacted(run_dir) or followed  # the files vanish behind a compaction that ended just now


def _compacted(run_dir: Path) -> Contents | None:
    found = contents.read_record(run_dir)
    for piece in found.pieces if found else ():
        contents.check_size(run_dir, piece)
    return found


def _follow(run_dir: Path) -> tuple[Manifest, ...]:
    """Names are followed, not listed: a reader meets a run in growth without ever seeing a gap."""
    chain: list[Manifest] = []
    while True:
        first = chain[-1].last_seq + 1 if chain else 0
        path = run_dir / f"{first:020d}.json"
        try:
            manifest = segment.read_manifest(path)
        except FileNotFoundError:
            later = _later(run_dir, first)
            if later is None:
                return tuple(chain)
            if path.exists():  # committed between the two looks
                continue
            raise segment.FileDamageError(path, f"missing, though {later} is there") from None
        _check_link(run_dir, chain, manifest)
        chain.append(manifest)


def _check_link(run_dir: Path, chain: list[Manifest], manifest: Manifest) -> None:
    path = run_dir / manifest.name
    if chain and chain[-1].final:
        raise segment.FileDamageError(path, "lies behind the end of the run")
    if manifest.previous != (chain[-1].hash if chain else GENESIS):
        before = chain[-1].name if chain else "the start"
        raise segment.FileDamageError(
            path, f"does not follow from {before}: one of them was changed, swapped or is of another run"
        )
    contents.check_size(run_dir, manifest.piece)


def _later(run_dir: Path, first: int) -> str | None:
    """Name of a manifest beyond `first`, if there is one."""
    names = sorted(entry.name for entry in run_dir.iterdir() if COMMITTED.fullmatch(entry.name))
    later = [name for name in names if name.endswith(".json") and int(name[:20]) >= first]
    return later[0] if later else None


def recover(run_dir: Path, disk: Disk = DISK) -> tuple[str, ...]:
    """Make a run that was killed whole again; returns the names of the removed left-overs.

    Raises:
        NotFoundError: there is no such run.
        LockedError: its writer lives.
        DamageError: a file is there that no crash can have left.
    """
    if not run_dir.is_dir():
        raise NotFoundError(f"{run_dir}: no such run")
    with Lock(run_dir / LOCK):
        return sweep(run_dir, disk)


def sweep(run_dir: Path, disk: Disk = DISK) -> tuple[str, ...]:
    """`recover` for who holds the lock."""
    found = walk(run_dir)
    left, foreign = strangers(run_dir, names(run_dir), found)
    if foreign:
        raise segment.FileDamageError(run_dir / foreign[0], "does not belong to the run; move it away")
    if found.compacted and left:  # the originals go only when what replaces them is whole
        for piece in found.pieces:
            segment.checked(run_dir, piece)
    remove_all(run_dir, left, disk=disk)
    for directory in (run_dir, *run_dir.absolute().parents[:2]):  # what is visible now shall stay so
        settle(directory, disk=disk)
    return left


def names(run_dir: Path) -> tuple[str, ...]:
    """Sorted names in the directory, as they were together at some moment, whatever a live writer does.

    A look at a directory shows what was there all the while; of what came or went meanwhile it may show some
    and miss others, in any order, so that a file may be shown and an earlier one missed. Hence two looks, and
    of the second only what comes no later in the order of a run (`_order`) than the newest of the first:

    * A writer links each file after those before it in this order, and takes no segment away while it has no
      record. So all before the newest of the first look were there when it ended, thus all through the
      second: the chain has no gap, and no data file is shown without the manifests before it. The newest
      itself may lack its manifest, as after a crash. What is there when this is called is in the answer.
    * What recovery takes away and a resumed writer makes again (the data file without a manifest, merged
      files without a record) has the same place in the order and may be shown or not.
    * The record is in the answer only if the first look shows it: then merged files of a compaction that was
      given up, which are swept before the record comes, are gone from the second. If it comes later, the
      compaction may take segments away under the second look, from the first on: who misses one finds the
      first missing too, and then the record (`verification.verify` begins anew, once).
    * Two looks always end; looking until two agree would not, beside a writer that is faster than a look.
    """
    newest = max((_order(name) for name in _look(run_dir)), default=_order(LOCK))
    return tuple(sorted({name for name in _look(run_dir) if _order(name) <= newest}))


def _look(run_dir: Path) -> list[str]:
    return [entry.name for entry in run_dir.iterdir()]


def _order(name: str) -> tuple[int, str]:
    """When a file comes in a run's life: segments by their first event, merged files, the record.

    Names of no such file come before all.
    """
    if COMMITTED.fullmatch(name):
        return 1, name.partition(".")[0]
    if MERGED.fullmatch(name):
        return 2, ""
    return (3, "") if name == RECORD else (0, "")


def strangers(
    run_dir: Path, present: Sequence[str], found: Contents
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(left-overs of a crash, names that nobody wrote) among the names in the directory."""
    written = {name for manifest in found.chain for name in (manifest.name, manifest.data_name)}
    known = {LOCK, *({RECORD} if found.compacted else written), *(p.data_name for p in found.pieces)}
    left: list[str] = []
    foreign: list[str] = []
    for name in present:
        if name in known:
            continue
        crash = LEFT_OVER.fullmatch(name) or (name in written if found.compacted else _unborn(name, found))
        (left if crash and _regular(run_dir / name) else foreign).append(name)
    return tuple(left), tuple(foreign)


def _unborn(name: str, found: Contents) -> bool:
    """Whether a data file was written whole, but what would have made it part of the run was not."""
    if not found.final:
        return name == f"{found.end:020d}.parquet"
    ends = MERGED.fullmatch(name)
    firsts = {manifest.first_seq for manifest in found.chain}
    return ends is not None and int(ends[1]) in firsts and int(ends[2]) + 1 in firsts | {found.end}


def _regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:  # a live writer's temporary file, gone by now
        return True
