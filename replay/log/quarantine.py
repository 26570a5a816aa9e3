"""Quarantine: moves foreign and damaged files of a run aside, deletes nothing, and lists what it moved.

An intact beginning of the run remains: from the first damaged segment on all later ones are moved too, since
nothing proves them any more, and the record of the head that the chain had. A compacted run has no such
beginning: all its files are moved.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ingest.core.durable import DISK, Disk, Lock, make_directory, move
from ingest.core.errors import DamageError, NotFoundError
from ingest.objects import working_copy
from replay.log import chain_heads, recovery, verification
from replay.log.segment import COMMITTED
from replay.log.segment_index import MERGED, RECORD
from replay.log.tail import NAME as TAIL
from replay.log.verification import IntegrityFinding

FOLDER = "quarantine"


@dataclass(frozen=True, slots=True)
class Moved:
    """Files of a run that were moved, each with the reason, and their folder."""

    run_id: str
    folder: Path | None
    files: tuple[IntegrityFinding, ...]

    def to_json(self) -> dict[str, object]:
        """The object of `twin audit --quarantine --json`."""
        files = [{"file": finding.file, "reason": finding.problem} for finding in self.files]
        return {
            "schema": "twin.quarantine/1",
            "run": self.run_id,
            "folder": None if self.folder is None else str(self.folder),
            "files": files,
        }


def quarantine(run_dir: Path, *, disk: Disk = DISK) -> Moved:
    """Moves foreign and damaged files of a run's directory to `<store>/quarantine/<run>-<number>`.

    Raises:
        NotFoundError: there is no such run.
        LockedError: its writer is alive.
        StorageError: the disk refused; what was moved before is in the folder, nothing is lost.
    """
    if not run_dir.is_dir():
        raise NotFoundError(f"{run_dir}: no such run; `twin runs` lists those that are there")
    working_copy.refuse(run_dir.absolute().parent.parent, "quarantine")
    with Lock(run_dir / recovery.LOCK):
        findings = verification.verify(run_dir)
        moved = _to_move(recovery.names(run_dir), findings)
        if not findings:
            return Moved(run_dir.name, None, ())
        folder = _new_folder(run_dir, disk)
        for finding in moved:
            move(run_dir / finding.file, folder / finding.file, disk=disk)
        if (head := _stale_head(run_dir)) is not None:
            move(head, folder / head.name, disk=disk)
            moved = (*moved, IntegrityFinding(head.name, "is not the head of what is left"))
    return Moved(run_dir.name, folder, moved)


def _stale_head(run_dir: Path) -> Path | None:
    """Returns the record of the run's head if it is damaged, or the chain that is left does not hold it."""
    try:
        head = chain_heads.read(run_dir)
    except DamageError:
        return chain_heads.path_of(run_dir)
    return None if head is None or head.fault(recovery.chain_of(run_dir)) is None else head.file


def _to_move(present: Sequence[str], findings: Sequence[IntegrityFinding]) -> tuple[IntegrityFinding, ...]:
    """Lists the files to move, each once with its reason, by name."""
    problems: dict[str, str] = {}
    for finding in findings:
        problems.setdefault(finding.file, finding.problem)
    damaged = sorted(name for name in problems if _owned(name))
    reasons = {name: problems[name] for name in present if name in problems}
    if any(name == RECORD or MERGED.fullmatch(name) for name in damaged):
        damaged = [""]  # sorts before every name: all of the run
    for name in present:
        if damaged and _owned(name) and _number(name) >= _number(damaged[0]):
            reasons.setdefault(
                name, f"does not follow from anything without {damaged[0] or 'the rest of it'}"
            )
    return tuple(IntegrityFinding(name, reason) for name, reason in sorted(reasons.items()))


def _owned(name: str) -> bool:
    """True for names that a writer or a compaction gives."""
    return name == RECORD or any(known.fullmatch(name) for known in (COMMITTED, MERGED, TAIL))


def _number(name: str) -> int:
    """Returns the first sequence number in a name; -1: none."""
    digits = re.match(r"[0-9]{20}", name)
    return int(digits[0]) if digits else -1


def _new_folder(run_dir: Path, disk: Disk) -> Path:
    """Makes a new folder, so that nothing in quarantine is ever replaced."""
    place = run_dir.parent.parent / FOLDER
    number = 1
    while (place / f"{run_dir.name}-{number}").exists():
        number += 1
    make_directory(place / f"{run_dir.name}-{number}", disk=disk)
    return place / f"{run_dir.name}-{number}"
