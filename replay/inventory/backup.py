"""A copy of a store, made while services and runs write to it; only what is new or changed is copied.

Every file of a store is written once, replaced as a whole, or grows at its end, so a copy needs no lock: it
needs an order. Pointers (`active.json`, `lake/committed.json`, `heads/`) are read first and written last, so
that the copy never names what it lacks. A run whose files change under the copy, when a tail becomes a
segment or segments are merged, is listed and copied again. What a crash could have left in the store may be
left in a copy, too, and is mended in the same way. Caches, reports and locks are not copied: they come back.

The mark of the copy lists every file with its size and SHA-256; a restoration checks each. Time grows with
the bytes that are new, and with those of small files, whose digests are taken each time.
"""

import json
import time
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ingest.core import durable
from ingest.core.durable import DISK
from ingest.core.errors import DamageError, LockedError, NotFoundError, UsageError
from ingest.core.progress import SILENT, Progress
from ingest.objects import working_copy
from replay.inventory.places import MARK, BackupPlace, Folder, Held, files, passing
from replay.store import layout

SCHEMA = "twin.backup/1"
POINTERS = ("active.json", "calibration.json", "schedule.json", "lake/committed.json", "heads")
"""What names other files: read before them, written after them."""
DERIVED = frozenset({"cache", "reports", "fetched", "quarantine", "service", MARK})
"""What is of no use in a copy, or comes back; so are locks and hidden files (a training under way). `service`
has the token of a service on this machine, which no copy is to have."""
SMALL_BYTES = 1 << 20
"""A larger file of a known name and size is taken as known: parts, segments and weights are written once."""
TRIES = 8
"""How often a run is listed again because its files changed while they were copied."""
Json = dict[str, Any]


@dataclass(slots=True)
class Backup:
    """A copy that was made: `copied` and `unchanged` files, bytes that were written, runs in the store."""

    source: Path
    place: BackupPlace
    known: dict[str, list[Any]]  # files of the copy before: size, SHA-256, tag of the place
    held: dict[str, Held]
    files: dict[str, list[Any]] = field(default_factory=dict)
    runs: int = 0
    copied: int = 0
    unchanged: int = 0
    written_bytes: int = 0
    removed: int = 0  # files that the store no longer has

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
            there, or a run changes faster than it can be copied.
        StorageError: disk or server refused; the copy before is whole still, but for runs that went on since.
    """
    working_copy.refuse(store, "a backup")
    _check(store, place)
    pointers = {path: path.read_bytes() for name in POINTERS for path in files(store / name)}
    runs = [layout.folder(store, run) for run in layout.all_ids(store)]
    rest = [
        path
        for entry in sorted(store.iterdir())
        if not (entry.name in DERIVED or entry.name == layout.RUNS or passing(entry))
        for path in files(entry) if path not in pointers
    ]  # fmt: skip
    others = len(rest) + len(pointers)
    DISK.foretell((Path(place.title), f"a copy of {store}: {len(runs):,} runs, {others:,} other files"))
    found = place.begin()
    with closing(_Ending(place)):
        before = {} if found is None else _read(place, found)["files"]
        made = Backup(store, place, before, place.held())
        _mark(made, before, complete=False)
        progress.start(len(runs) + len(rest), "copying", "runs and files")
        for path in rest:
            _copy(made, path)
            progress.advance(1)
        for run_dir in runs:
            _copy_run(made, run_dir)
            progress.advance(1, run_dir.name)
        for path, data in pointers.items():
            _write(made, _name(made, path), data)
        kept = _of_removed_runs(before, {run.name for run in runs})
        _mark(made, {**kept, **made.files}, complete=True)
        for name in sorted({*made.held, *before} - {*kept, *made.files}):
            if name in made.held:
                place.remove(name)
                made.removed += 1
    return made


@dataclass(frozen=True, slots=True)
class _Ending:
    place: BackupPlace

    def close(self) -> None:
        self.place.end()


def restore(place: BackupPlace, store: Path, progress: Progress = SILENT) -> int:
    """Writes the files of a copy into an empty store, pointers last, and returns how many there are.

    Raises:
        UsageError: `store` has files. NotFoundError: there is no whole copy.
        DamageError: a file of the copy is missing or not what was written; nothing that names it was written.
    """
    working_copy.refuse(store, "a restoration")
    if store.is_dir() and any(not entry.name.startswith(".") for entry in store.iterdir()):
        raise UsageError(
            f"{store} is not empty: name a new folder with --store, and look at it before it is used"
        )
    found = place.marked()
    if found is None or not (mark := _read(place, found))["complete"]:
        raise NotFoundError(f"{place.title}: no whole copy lies there; `twin backup` makes one")
    listed = mark["files"]
    last = sorted(name for name in listed if name.startswith(POINTERS))
    DISK.foretell((store, f"the store of {place.title}: {len(listed):,} files"))
    progress.start(len(listed), "restoring", "files")
    for name in [*sorted(set(listed) - set(last)), *last]:
        size, digest, _ = listed[name]
        try:
            data = place.read(name)
        except FileNotFoundError as error:
            raise DamageError(f"{place.title}/{name}: missing from the copy") from error
        if len(data) != size or sha256(data).hexdigest() != digest:
            raise DamageError(f"{place.title}/{name}: not what was written; take an older copy")
        durable.put(store / name, data)
        progress.advance(1)
    return len(listed)


def _check(store: Path, place: BackupPlace) -> None:
    if not any((store / name).exists() for name in ("lake", layout.RUNS, layout.CHECKPOINTS)):
        raise UsageError(f"{store} is no store: there are no lake, no runs and no checkpoints in it")
    if isinstance(place, Folder):
        whole, copy = store.resolve(), place.root.resolve()
        if whole == copy or whole in copy.parents or copy in whole.parents:
            raise UsageError(f"{place.title} and the store lie in each other; name a folder elsewhere")


def _read(place: BackupPlace, data: bytes) -> Json:
    """Returns the mark of a copy."""
    try:
        mark = json.loads(data)
        listed = all(len(row) == 3 and _inside(name) for name, row in mark["files"].items())
    except (ValueError, KeyError, TypeError, AttributeError):
        listed = False
    if not listed or mark.get("schema") != SCHEMA:
        raise DamageError(f"{place.title}/{MARK}: not what `twin backup` writes; remove it to copy anew")
    return dict(mark)


def _inside(name: str) -> bool:
    """True for a name that leads nowhere but into the store: a mark may come from anywhere."""
    return "\\" not in name and "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _mark(made: Backup, listed: dict[str, list[Any]], *, complete: bool) -> None:
    """Says in the place what it holds, and whether the backup ended."""
    what = {"schema": SCHEMA, "at_epoch_s": int(time.time()), "complete": complete, "files": listed}
    made.place.mark(json.dumps(what, sort_keys=True).encode() + b"\n")


def _of_removed_runs(before: dict[str, list[Any]], runs: set[str]) -> dict[str, list[Any]]:
    """Returns the files of the copy before that belong to a run which the store no longer has."""
    gone = {name.split("/")[1] for name in before if name.startswith(f"{layout.RUNS}/")} - runs
    return {name: row for name, row in before.items() if {*Path(name).parts, Path(name).stem} & gone}


def _copy_run(made: Backup, run_dir: Path) -> None:
    """Copies the files of a run in the order of their events."""
    for _ in range(TRIES):
        try:
            before = list(files(run_dir))
            for path in before:
                _copy(made, path)
        except FileNotFoundError:  # a tail became a segment, or segments were merged
            continue
        names = [_name(made, path) for path in before]
        for stale in [name for name in made.files if name.startswith(f"{layout.RUNS}/{run_dir.name}/")]:
            if stale not in names:
                del made.files[stale]
        if list(files(run_dir)) != before:  # the list itself is not made in one moment
            continue
        made.runs += 1
        return
    raise LockedError(f"{run_dir}: its files changed {TRIES} times while they were copied; run it again")


def _name(made: Backup, path: Path) -> str:
    return path.relative_to(made.source).as_posix()


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
    if held is None or known is None or (held.size_bytes, known[0]) != (size, size):
        return False
    return held.tag in ("", known[2]) and digest in (None, known[1])


def _write(made: Backup, name: str, data: bytes) -> None:
    """Writes the bytes of a file into the place, unless it has them."""
    digest = sha256(data).hexdigest()
    same = _has(made, name, len(data), digest)
    if same and (made.held[name].tag or made.place.read(name) == data):
        made.files[name] = made.known[name]
        made.unchanged += 1
        return
    made.files[name] = [len(data), digest, made.place.write(name, data)]
    made.copied, made.written_bytes = made.copied + 1, made.written_bytes + len(data)
