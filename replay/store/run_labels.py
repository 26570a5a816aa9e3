"""Tags and a note that people give a run, in a file of their own: the log of a run is never touched.

`<store>/labels/<run>.json` is replaced atomically and carries the digest of itself, as the records of
`replay.log.chain_heads` do. It names the first manifest of its run: another run that takes the name later
does not inherit the labels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import durable, integrity, names
from ingest.core.errors import DamageError, NotFoundError, UsageError
from replay.log.run_log import RunReader
from replay.log.segment_index import SegmentIndex
from replay.store import run_index

FOLDER = "labels"
SCHEMA = "twin.labels/1"
TYPES = {"first": str, "tags": list[str], "note": str}
LOCK = "labels.lock"


@dataclass(frozen=True, slots=True)
class Labels:
    """Tags of a run, sorted, and a note; both empty where nobody gave any."""

    tags: tuple[str, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns both by name."""
        return {"tags": list(self.tags), "note": self.note}


def path_of(store: Path, run_id: str) -> Path:
    """Returns the file of the labels of a run."""
    return names.inside(store / FOLDER, f"{run_id}.json")


def read(store: Path, run_id: str, contents: SegmentIndex | None = None) -> Labels:
    """Returns the labels of a run; `contents`, if known, are those of its log.

    Raises:
        NotFoundError: no such run. DamageError: labels or log are not what was written.
    """
    path = path_of(store, run_id)
    data = integrity.read_optional(path)
    if data is None:
        return Labels()
    fields = _unsealed(path, data)
    first = _first(store, run_id, contents)
    return Labels(tuple(fields["tags"]), fields["note"]) if fields["first"] == first else Labels()


def tag(store: Path, run_id: str, added: Iterable[str] = (), removed: Iterable[str] = ()) -> Labels:
    """Gives a run tags, takes tags from it, and returns its labels; names of tags are as those of scenarios.

    Raises:
        UsageError: not the name of a tag. NotFoundError: no such run, or nothing of it is stored.
        LockedError: another process writes labels.
    """
    more, less = ({names.checked(one, "tag") for one in words} for words in (added, removed))
    with durable.Lock(store / LOCK):
        before = read(store, run_id)
        return _write(store, run_id, Labels(tuple(sorted(({*before.tags} | more) - less)), before.note))


def note(store: Path, run_id: str, text: str) -> Labels:
    """Gives a run a note, which replaces the one before (none if empty), and returns its labels.

    Raises:
        UsageError: it is too long. NotFoundError, LockedError: as `tag`.
    """
    if len(text) > names.MOST_TEXT:
        raise UsageError(f"a note has at most {names.MOST_TEXT:,} letters, not {len(text):,}; write less")
    with durable.Lock(store / LOCK):
        return _write(store, run_id, Labels(read(store, run_id).tags, text))


def forget(store: Path, run_id: str) -> None:
    """Removes the labels of a run that is gone."""
    if (path := path_of(store, run_id)).is_file():
        durable.remove(path)


def faults(store: Path) -> list[tuple[Path, str]]:
    """Returns every file of labels that is not what was written, and the problem with what to do."""
    found = []
    for path in sorted((store / FOLDER).glob("*.json")):
        try:
            _unsealed(path, integrity.read_regular(path))
        except DamageError as error:
            found.append((path, str(error)))
    return found


def orphans(store: Path) -> list[Path]:
    """Returns the files whose run is gone, or is another one by the same name."""
    known, found = set(run_index.all_ids(store)), []
    for path in sorted((store / FOLDER).glob("*.json")):
        if path.stem not in known:
            found.append(path)
            continue
        first = _unsealed(path, integrity.read_regular(path))["first"]
        if first != _first(store, path.stem, None):
            found.append(path)
    return found


def _write(store: Path, run_id: str, labels: Labels) -> Labels:
    first = _first(store, run_id, None)
    if first is None:
        raise NotFoundError(f"{run_id}: nothing of this run is stored yet; start it again")
    if labels == Labels():
        forget(store, run_id)
    else:
        fields = {"schema": SCHEMA, "run": run_id, "first": first, **labels.to_json()}
        durable.replace(path_of(store, run_id), integrity.sealed(fields))
    return labels


def _first(store: Path, run_id: str, contents: SegmentIndex | None) -> str | None:
    """Returns the digest of a run's first manifest, which no resumption and no compaction changes."""
    known = RunReader(run_index.folder(store, run_id)).contents() if contents is None else contents
    return known.chain[0].hash if known.chain else None


def _unsealed(path: Path, data: bytes) -> dict[str, Any]:
    fields = integrity.unsealed(data, SCHEMA, TYPES)
    if fields is None:
        raise DamageError(f"{path}: its bytes are not those that were written; delete it, label the run anew")
    return fields
