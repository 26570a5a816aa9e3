"""What lies in a run's directory: the chain of manifests, what a crash may leave behind, and everything else.

`walk` follows the chain; `sweep` removes the left-overs of an interrupted commit and nothing else.
"""

import re
import stat
from collections.abc import Sequence
from pathlib import Path

from ingest.durable import DISK, Disk, Lock, remove
from ingest.errors import NotFoundError
from replay import segment
from replay.segment import COMMITTED, GENESIS, Manifest

LOCK = ".lock"
LEFT_OVER = re.compile(r"\.[0-9]{20}\.(parquet|json)\.[0-9]+-[0-9]+\.tmp")
"""Temporary files of a commit."""


def walk(run_dir: Path) -> tuple[Manifest, ...]:
    """Manifests from the first to the last committed segment, each link checked, sizes compared.

    Names are followed, not listed: a reader meets a run in growth without ever seeing a gap.

    Raises:
        DamageError: a manifest is changed, missing in the middle, or follows from another one.
    """
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
    data = run_dir / manifest.data_name
    try:
        status = data.lstat()
    except OSError as error:
        raise segment.FileDamageError(
            data, f"missing, though its manifest {manifest.name} is there ({error.strerror})"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise segment.FileDamageError(data, "not a regular file")
    if status.st_size != manifest.size_bytes:
        raise segment.FileDamageError(
            data, f"{status.st_size} bytes, its manifest says {manifest.size_bytes}"
        )


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
    left, foreign = strangers(run_dir, names(run_dir), walk(run_dir))
    if foreign:
        raise segment.FileDamageError(run_dir / foreign[0], "does not belong to the run; move it away")
    for name in left:
        remove(run_dir / name, disk=disk)
    for directory in (run_dir, *run_dir.absolute().parents[:2]):  # what is visible now shall stay so
        disk.fsync_directory(directory)
    return left


def names(run_dir: Path) -> tuple[str, ...]:
    """Sorted names in the directory, looked at until two looks agree.

    A single look at a directory in growth may miss a file and yet show a later one.
    """
    seen: tuple[str, ...] | None = None
    while True:
        now = tuple(sorted(entry.name for entry in run_dir.iterdir()))
        if now == seen:
            return now
        seen = now


def strangers(
    run_dir: Path, present: Sequence[str], chain: Sequence[Manifest]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(left-overs of a crash, names that nobody wrote) among the names in the directory."""
    known = {name for manifest in chain for name in (manifest.name, manifest.data_name)} | {LOCK}
    ended = bool(chain) and chain[-1].final
    next_data = f"{chain[-1].last_seq + 1 if chain else 0:020d}.parquet"
    left: list[str] = []
    foreign: list[str] = []
    for name in present:
        if name in known:
            continue
        crash = LEFT_OVER.fullmatch(name) or (name == next_data and not ended)
        (left if crash and _regular(run_dir / name) else foreign).append(name)
    return tuple(left), tuple(foreign)


def _regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:  # a live writer's temporary file, gone by now
        return True
