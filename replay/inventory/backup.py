"""A copy of a store, made while services and runs write to it; only what is new or changed is copied.

Every file of a store is written once, replaced as a whole, or grows at its end, so a copy needs no lock: it
needs an order. Pointers (`active.json`, `lake/committed.json`, `heads/`) are read first and written last, so
that the copy never names what it lacks. A run that is written is copied up to the end that its log had when
its copying began. What a crash could have left in the store may be left in a copy, too, and is mended in the
same way. Caches, reports and locks are not copied: they come back.

The manifest of the copy (`copy_manifest.py`) lists every file with its size and SHA-256; a restoration takes
these files and nothing else. Time grows with the bytes that are new, and with those of small files, whose
digests are taken each time.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from ingest.core import durable, integrity
from ingest.core.durable import DISK
from ingest.core.errors import DamageError, NotFoundError, StorageError, UsageError
from ingest.core.integrity import IrregularFileError
from ingest.core.progress import SILENT, Progress
from ingest.core.terminal import shown
from ingest.objects import working_copy
from replay.inventory import copy_manifest
from replay.inventory.copy_manifest import DERIVED, SCHEMA, CopiedFile, is_passed_over
from replay.inventory.places import BackupPlace, Folder, Held, files, unusable
from replay.log import recovery
from replay.log.segment_index import RECORD, SegmentIndex
from replay.store import layout

POINTERS = ("active.json", "calibration.json", "schedule.json", "lake/committed.json", "heads")
"""What names other files: read before them, written after them."""
SMALL_BYTES = 1 << 20
"""A larger file of a known name and size is taken as known: parts, segments and weights are written once."""
Json = dict[str, Any]


@dataclass(slots=True)
class Backup:
    """A copy that was made: `copied` and `unchanged` files, bytes that were written, runs in the store."""

    source: Path
    place: BackupPlace
    known: dict[str, CopiedFile]  # files of the copy before
    held: dict[str, Held]
    files: dict[str, CopiedFile] = field(default_factory=dict)
    runs: int = 0
    copied: int = 0
    unchanged: int = 0
    written_bytes: int = 0
    removed: int = 0  # files that the store no longer has

    def drop(self, names: Iterable[str]) -> None:
        """Leaves files out that were copied and went away from the store meanwhile."""
        for name in names:
            self.held[name] = Held(self.files.pop(name).size_bytes, "")

    def to_json(self) -> Json:
        """The object of `twin backup --json`, without the findings of its check."""
        counts = {
            name: getattr(self, name) for name in ("runs", "copied", "unchanged", "written_bytes", "removed")
        }
        return {"schema": SCHEMA, "store": str(self.source), "copy": self.place.title, **counts}


def back_up(store: Path, place: BackupPlace, progress: Progress = SILENT) -> Backup:
    """Makes `place` a copy of the store as it is now, or brings an older copy up to date, in which runs that
    were removed from the store stay. Returns what was done.

    Raises:
        UsageError: `store` is no store, or the place cannot be a copy. LockedError: another backup writes
            there. DamageError: the place holds what no copy holds.
        StorageError: disk or server refused; the copy before is whole still, but for runs that went on since.
    """
    working_copy.refuse(store, "a backup")
    _check(store, place)
    pointers, rest, runs = _contents(store)
    others = len(rest) + len(pointers)
    DISK.foretell((Path(place.title), f"a copy of {store}: {len(runs):,} runs, {others:,} other files"))
    data = place.begin()
    with closing(_Ending(place)):
        before = {} if data is None else copy_manifest.parsed(place.title, data).files
        made = Backup(store, place, before, dict(place.held()))
        _record(made, before, complete=False)
        progress.start(len(runs) + len(rest), "copying", "runs and files")
        while not _copy_all(made, rest, progress) and _pointers(store) != pointers:
            made.drop(list(made.files))
            pointers, rest, runs = _contents(store)
        for run_dir in runs:
            _copy_run(made, run_dir)
            progress.advance(1, run_dir.name)
        for path, content in pointers.items():
            _write(made, _name(made, path), content)
        listed = {**_of_removed_runs(before, {run.name for run in runs if run.is_dir()}), **made.files}
        _record(made, listed, complete=False)  # fails if another backup writes, before anything is removed
        for name in sorted(made.held.keys() - listed.keys()):
            place.remove(name)
            made.removed += 1
        _record(made, listed, complete=True)
    return made


def _contents(store: Path) -> tuple[dict[Path, bytes], list[Path], list[Path]]:
    """Returns the pointers of a store, its other files, and the folders of its runs, listed in this order."""
    pointers = _pointers(store)
    rest = [
        path
        for entry in sorted(store.iterdir())
        if not (entry.name in DERIVED or entry.name == layout.RUNS or is_passed_over(entry.name))
        for path in files(entry) if path not in pointers
    ]  # fmt: skip
    return pointers, rest, [layout.folder(store, run) for run in layout.all_ids(store)]


def _pointers(store: Path) -> dict[Path, bytes]:
    found = {path: integrity.read_optional(path) for name in POINTERS for path in files(store / name)}
    return {path: data for path, data in found.items() if data is not None}


def _copy_all(made: Backup, paths: list[Path], progress: Progress) -> bool:
    """Copies files; False: one went away, as parts of the lake do when others have replaced them."""
    whole = True
    for path in paths:
        try:
            _copy(made, path)
        except FileNotFoundError:
            whole = False
        progress.advance(1)
    return whole


@dataclass(frozen=True, slots=True)
class _Ending:
    place: BackupPlace

    def close(self) -> None:
        self.place.end()


def restore(place: BackupPlace, store: Path, progress: Progress = SILENT) -> int:
    """Writes the files of a copy into an empty store, pointers last, and returns how many there are.

    The copy may come from anywhere. Before anything is written, what lies in it must be the files that its
    manifest lists, with their sizes. Files are read in pieces, and each must have its SHA-256.

    Raises:
        UsageError: `store` has files. NotFoundError: there is no whole copy. StorageError: no room for it.
        DamageError: the copy holds anything but the files that it lists, or one is not what was written;
            nothing that names it was written.
    """
    working_copy.refuse(store, "a restoration")
    if store.is_dir() and any(not entry.name.startswith(".") for entry in store.iterdir()):
        raise UsageError(
            f"{store} is not empty: name a new folder with --store, and look at it before it is used"
        )
    _apart(store, place)
    data = place.manifest()
    manifest = None if data is None else copy_manifest.parsed(place.title, data)
    if manifest is None or not manifest.complete:
        raise NotFoundError(f"{place.title}: no whole copy lies there; `twin backup` makes one")
    listed = manifest.files
    _compare(place, listed)
    _check_room(store, sum(file.size_bytes for file in listed.values()))
    last = sorted(name for name in listed if name.startswith(POINTERS))
    DISK.foretell((store, f"the store of {place.title}: {len(listed):,} files"))
    progress.start(len(listed), "restoring", "files")
    for name in [*sorted(set(listed) - set(last)), *last]:
        durable.put_file(store / name, partial(_restore_file, place, name, listed[name]))
        progress.advance(1)
    return len(listed)


def _compare(place: BackupPlace, listed: Mapping[str, CopiedFile]) -> None:
    """Checks that a place holds the listed files, each with its size, and nothing else."""
    missing = set(listed)
    for name, held in place.held():
        if name not in listed:
            raise unusable(place, name, IrregularFileError("the copy does not list it"))
        if held.size_bytes != listed[name].size_bytes:
            what = f"{held.size_bytes:,} bytes, not the {listed[name].size_bytes:,} that the copy lists"
            raise unusable(place, name, IrregularFileError(what))
        missing.discard(name)
    if missing:
        raise unusable(place, min(missing), FileNotFoundError())


def _check_room(store: Path, size_bytes: int) -> None:
    """Checks that the disk has room for this many bytes: a sparse file of a copy is written in full."""
    folder = next(path for path in (store.absolute(), *store.absolute().parents) if path.is_dir())
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if size_bytes > free:
        raise StorageError(
            f"{store}: the copy has {size_bytes:,} bytes, and {free:,} are free; free space, or name a "
            "folder of another disk with --store"
        )


def _restore_file(place: BackupPlace, name: str, file: CopiedFile, stream: BinaryIO) -> None:
    """Writes a file of a copy to a stream.

    Raises:
        DamageError: it is not what was written.
    """
    size, digest = 0, sha256()
    for piece in place.pieces(name, file.size_bytes):
        size += len(piece)
        digest.update(piece)
        if size > file.size_bytes:
            break
        stream.write(piece)
    if size != file.size_bytes or digest.hexdigest() != file.sha256:
        raise unusable(place, name, IrregularFileError("not what was written"))


def _check(store: Path, place: BackupPlace) -> None:
    if not any((store / name).exists() for name in ("lake", layout.RUNS, layout.CHECKPOINTS)):
        raise UsageError(f"{store} is no store: there are no lake, no runs and no checkpoints in it")
    _apart(store, place)


def _apart(store: Path, place: BackupPlace) -> None:
    """Checks that store and copy do not lie in each other."""
    if isinstance(place, Folder):
        whole, copy = store.resolve(), place.root.resolve()
        if whole == copy or whole in copy.parents or copy in whole.parents:
            raise UsageError(f"{place.title} and the store lie in each other; name a folder elsewhere")


def _record(made: Backup, listed: Mapping[str, CopiedFile], *, complete: bool) -> None:
    """Says in the place what it holds, and whether the backup ended."""
    made.place.replace_manifest(copy_manifest.encoded(listed, complete=complete))


def _of_removed_runs(before: Mapping[str, CopiedFile], runs: set[str]) -> dict[str, CopiedFile]:
    """Returns the files of the copy before that belong to a run which the store no longer has."""
    gone = {name.split("/")[1] for name in before if name.startswith(f"{layout.RUNS}/")} - runs
    return {name: row for name, row in before.items() if {*Path(name).parts, Path(name).stem} & gone}


def _copy_run(made: Backup, run_dir: Path) -> None:
    """Copies a run up to the end that its log has now.

    A log only grows. So the segments up to that end, and the frames of the tail that were read with them, are
    that run for ever, whatever a writer adds meanwhile. Files go only when a finished run is compacted, which
    happens once: then it is copied from its merged files.
    """
    for _ in ("as written", "as compacted"):
        try:
            found = recovery.walk(run_dir)
            names = _copy_log(made, run_dir, found)
        except DamageError:
            names = _copy_as_it_is(made, run_dir)
        except FileNotFoundError:
            continue
        break
    else:
        names = _copy_as_it_is(made, run_dir)
    own = f"{layout.RUNS}/{run_dir.name}/"
    gone = not run_dir.is_dir()  # removed meanwhile: what the copy before had of it stays
    if not (gone and any(name.startswith(own) for name in made.known)):
        made.drop([name for name in made.files if name.startswith(own) and name not in names])
    made.runs += not gone


def _copy_log(made: Backup, run_dir: Path, found: SegmentIndex) -> set[str]:
    """Copies the files of a log in the order of its events, and returns their names.

    Raises:
        FileNotFoundError: one went away: the run was compacted, or removed.
    """
    paths = [run_dir / piece.data_name for piece in found.pieces]
    manifests = [run_dir / manifest.name for manifest in found.chain]
    in_order = [*paths, run_dir / RECORD] if found.compacted else chain(*zip(paths, manifests, strict=True))
    names = set()
    for path in in_order:
        _copy(made, path)
        names.add(_name(made, path))
    if found.tail is not None:
        tail = _name(made, run_dir / found.tail.name)
        _write(made, tail, found.tail.frames)
        names.add(tail)
    return names


def _copy_as_it_is(made: Backup, run_dir: Path) -> set[str]:
    """Copies the files of a damaged run: what can be saved of it, the copy has, too."""
    names = set()
    for path in files(run_dir):
        with suppress(FileNotFoundError):
            _copy(made, path)
            names.add(_name(made, path))
    return names


def _name(made: Backup, path: Path) -> str:
    """Returns the name of a file in the copy.

    Raises:
        UsageError: no copy can hold a file of this name.
    """
    name = path.relative_to(made.source).as_posix()
    if (fault := copy_manifest.name_fault(name)) is not None:
        raise UsageError(f"{made.source}: the name {shown(name)} {fault}; rename the file, or take it away")
    return name


def _copy(made: Backup, path: Path) -> None:
    """Copies a file unless the place has it."""
    name, size = _name(made, path), path.stat().st_size
    if size > SMALL_BYTES and _has(made, name, size):
        made.files[name] = made.known[name]
        made.unchanged += 1
    else:
        _write(made, name, path.read_bytes())


def _has(made: Backup, name: str, size: int, digest: str | None = None) -> bool:
    """True if the place holds the file that the mark before lists, of this `digest` where it was taken."""
    held, known = made.held.get(name), made.known.get(name)
    if held is None or known is None or (held.size_bytes, known.size_bytes) != (size, size):
        return False
    return held.tag in ("", known.tag) and digest in (None, known.sha256)


def _write(made: Backup, name: str, data: bytes) -> None:
    """Writes the bytes of a file into the place, unless it has them."""
    digest = sha256(data).hexdigest()
    same = _has(made, name, len(data), digest)
    if same and (made.held[name].tag or b"".join(made.place.pieces(name, len(data))) == data):
        made.files[name] = made.known[name]
        made.unchanged += 1
        return
    made.files[name] = CopiedFile(len(data), digest, made.place.write(name, data))
    made.copied, made.written_bytes = made.copied + 1, made.written_bytes + len(data)
