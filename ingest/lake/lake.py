"""The lake: Parquet parts that exist because a manifest names them.

`<store>/lake/<table>/dataset=<name>/<SHA-256>.parquet` holds rows sorted by time; a manifest
`<store>/lake/manifests/<SHA-256 of the manifest>.json` commits a set of parts together with the sources they
were made from, the reader of each and the data set's metadata. A manifest can replace older ones; one without
sources drops its data set: it replaces all others of it, and goes last itself. A part that no live manifest
names is a left-over of a killed ingest: readers never see it, the next ingest takes it away.

Bytes are checked before they are read: a manifest is named by its digest, a part's digest is in its manifest.
The index of `manifest_index.py` tells a manifest that was never committed from one that went away.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core import durable
from ingest.core.config import suggestion
from ingest.core.errors import DamageError, NotFoundError
from ingest.core.progress import SILENT, Progress
from ingest.lake import bucket_lake, manifest_index, manifests, stored_parts
from ingest.lake.manifests import LakeManifest, Part, SourceEntry
from ingest.objects import working_copy

SCHEMA = "twin.lake/1"


EMPTY = ": it is empty; `twin ingest shipped` reads the traces that come with the program"


@contextmanager
def writing(store: Path) -> Iterator[None]:
    """Lets one process of this machine change the lake. Of two machines that change one in a bucket, the
    second to commit is told.

    Raises:
        LockedError: another process has begun. UsageError, StorageError: the bucket cannot be used.
    """
    with durable.Lock(folder(store) / "lock"):
        place = bucket_lake.of(store)
        if place is None:
            yield
            return
        place.begin()
        try:
            yield
        finally:
            place.writing = False


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """One data set in the lake: metadata, rows of each table, numbers of sources and rejects."""

    name: str
    meta: dict[str, Any]
    rows: dict[str, int]
    sources: int
    rejected: int

    def to_json(self) -> dict[str, Any]:
        """Returns the data set as it was dropped, schema `twin.drop/1`."""
        counts = {"rows": self.rows, "sources": self.sources, "rejected": self.rejected}
        return {"schema": "twin.drop/1", "name": self.name, **counts}


def folder(store: Path) -> Path:
    """Returns the folder of the lake in a store."""
    return store / "lake"


def commit(
    store: Path,
    dataset: str,
    meta: dict[str, Any],
    parts: Sequence[Part],
    sources: Sequence[SourceEntry],
    replaces: Sequence[str],
) -> LakeManifest:
    """Writes the manifest that makes the parts part of the lake; atomic."""
    body = {
        "schema": SCHEMA,
        "dataset": dataset,
        "meta": meta,
        "parts": [[p.table, p.file, p.rows, p.bytes, p.sha256] for p in parts],
        "sources": [
            [s.file, s.sha256, s.bytes, s.reader, s.version, s.options, dict(s.rows), s.rejected]
            for s in sources
        ],
        "replaces": sorted(replaces),
    }
    data = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    identity = hashlib.sha256(data).hexdigest()
    if (place := bucket_lake.of(store)) is not None:
        files = [part.file for part in parts]
        place.commit(dataset, identity, data if sources else None, files, replaces)
        return manifests.parsed(identity, data)
    durable.put(manifests.folder_of(store) / f"{identity}.json", data, idempotent=True)
    known = manifest_index.read(folder(store))
    kept = _datasets_of(live(store)) if known is None else known
    kept = {old: name for old, name in kept.items() if old not in replaces}
    manifest_index.write(folder(store), {**kept, **({identity: dataset} if sources else {})})
    return manifests.parsed(identity, data)


def live(store: Path) -> list[LakeManifest]:
    """Returns every manifest that no other one replaces and that holds something, sorted by identity.

    Raises:
        DamageError: a manifest is missing or not what was written.
    """
    found = manifests.every(store)
    replaced = {old for manifest in found for old in manifest.replaces}
    return [manifest for manifest in found if manifest.sources and manifest.id not in replaced]


def drop(store: Path, dataset: str) -> DatasetInfo:
    """Takes a data set out of the lake, whole or not at all; returns it as it was.

    One manifest without sources replaces all of the set; from then on no reader sees any of it, and what is
    left of it, should this process die, the next ingest takes away.

    Raises:
        NotFoundError: the lake has no such data set.
        LockedError: another process ingests into this store.
    """
    held(store, dataset)
    with writing(store):
        info = held(store, dataset)
        gone = {old for m in live(store) if m.dataset == dataset for old in (m.id, *m.replaces)}
        commit(store, dataset, {}, (), (), sorted(gone))
        clean(store)
    return info


def held(store: Path, dataset: str) -> DatasetInfo:
    """Returns one data set of the lake.

    Raises:
        NotFoundError: the lake has no such data set.
    """
    found = datasets(store)
    if dataset not in found:
        hint = f" (`twin traces` lists them){suggestion(dataset, found)}" if found else EMPTY
        raise NotFoundError(f"the lake in {store} has no data set {dataset!r}{hint}")
    return found[dataset]


def without(
    store: Path, manifest: LakeManifest, gone: set[str]
) -> tuple[list[SourceEntry], Iterator[tuple[str, pa.Table]]]:
    """Returns a manifest without the files `gone`: the other sources, and their rows by part.

    Raises:
        DamageError: when a part is read that is not what was written; nothing damaged gets a new digest.
    """
    kept = [entry for entry in manifest.sources if entry.file not in gone]

    def rows() -> Iterator[tuple[str, pa.Table]]:
        for part in manifest.parts if kept else ():
            table = stored_parts.table(store, manifest, part)
            stays = table.filter(pc.invert(pc.is_in(table["source_file"], pa.array(sorted(gone)))))
            if stays.num_rows:
                yield part.table, stays

    return kept, rows()


def parts(store: Path) -> dict[str, list[Path]]:
    """Returns the Parquet files of each table, in a fixed order; the content of each is checked.

    Raises:
        DamageError: a part is missing or its bytes are not those that its manifest says.
    """
    while True:
        current = live(store)
        files: dict[str, list[Path]] = {}
        try:
            stored_parts.bring(store, current)
            for manifest in current:
                for part in manifest.parts:
                    files.setdefault(part.table, []).append(stored_parts.checked(store, manifest, part))
        except DamageError:
            if live(store) == current:
                raise
            continue  # replaced or dropped meanwhile
        return {table: sorted(paths) for table, paths in sorted(files.items())}


def datasets(store: Path) -> dict[str, DatasetInfo]:
    """Returns the data sets in the lake by name. Assumptions of all ingests of a set are joined."""
    found: dict[str, DatasetInfo] = {}
    for manifest in sorted(live(store), key=lambda m: (m.dataset, -len(m.sources), m.id)):
        before = found.get(manifest.dataset)
        rows: Counter[str] = Counter(before.rows if before else {})
        for part in manifest.parts:
            rows[part.table] += part.rows
        meta = {**manifest.meta, **(before.meta if before else {})}
        assumptions = {*meta.get("assumptions", ()), *manifest.meta.get("assumptions", ())}
        if assumptions:
            meta["assumptions"] = sorted(assumptions)
        found[manifest.dataset] = DatasetInfo(
            manifest.dataset,
            meta,
            dict(sorted((t, n) for t, n in rows.items() if t != "rejects")),
            len(manifest.sources) + (before.sources if before else 0),
            rows["rejects"] + (before.rejected if before else 0),
        )
    return found


def digest(store: Path, dataset: str | None = None) -> str:
    """Returns the identity of the lake's content, or of one data set in it.

    It covers every source (content, name, reader, version, options, rows stored and rejected) and not how
    the rows are spread over files, so it is the same however the ingest was split or interrupted.
    """
    lines = sorted(
        json.dumps([m.dataset, s.file, *s.key, dict(s.rows), s.rejected], sort_keys=True)
        for m in live(store)
        for s in m.sources
        if dataset in (None, m.dataset)
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def verify(store: Path) -> list[str]:
    """Returns a sentence for every file that is not what was written; empty if all is well."""
    return [problem for _, problem in faults(store)]


def faults(store: Path, progress: Progress = SILENT) -> Iterator[tuple[Path, str]]:
    """Yields every file that is not what was written, and the problem with what to do; reads all of them."""
    try:
        current = live(store)
    except DamageError as error:
        yield folder(store), str(error)
        current = []
    if (place := bucket_lake.of(store)) is not None:
        yield from _faults_in(place, current, progress)
        return
    found = []
    for path in sorted(manifests.folder_of(store).glob("*.json")):
        try:
            found.append(manifests.load(path))
        except (DamageError, FileNotFoundError):  # the first one was reported; taken away since the listing
            continue
    replaced = {old for manifest in found for old in manifest.replaces}
    used = [(m, part) for m in found if m.id not in replaced for part in m.parts]
    progress.start(len(used), "lake", "parts")
    for manifest, part in used:
        try:
            stored_parts.content(store, manifest, part)
        except DamageError as error:
            if (manifests.folder_of(store) / f"{manifest.id}.json").exists():  # else it was dropped meanwhile
                yield folder(store) / part.file, str(error)
        progress.advance(1, part.file)


def _faults_in(
    place: bucket_lake.LakeObjects, current: Sequence[LakeManifest], progress: Progress
) -> Iterator[tuple[Path, str]]:
    """Reads every part in a bucket; yields its file in the working copy, and the problem."""
    used = [(m, part) for m in current for part in m.parts]
    progress.start(len(used), "lake", "parts")
    for manifest, part in used:
        try:
            problem = place.fault(manifest.id, part.file, part.sha256)
        except DamageError:
            problem = "missing"
        if problem is not None and manifest.id in place.commits:  # else it was replaced meanwhile
            named = stored_parts.damaged(place.title(manifest.id, part.file), problem, manifest)
            yield folder(place.store) / part.file, named
        progress.advance(1, part.file)


def clean(store: Path) -> int:
    """Deletes files that no live manifest names: left-overs of killed ingests and replaced files.

    Returns how many files went. Only for the process that holds the lake's lock. The index is there before
    the first part of an ingest is written. So beside an index, a part that no manifest names was never
    committed and is deleted. Without one (a lake of an older version, or it was deleted) its manifest may
    have gone away: the part is moved to `<store>/quarantine`.

    Raises:
        DamageError: a manifest is missing or changed; nothing is deleted.
    """
    found, current = manifests.every(store), live(store)
    stale = unreferenced(store)
    if (place := bucket_lake.of(store)) is not None:
        return _cleaned_copy(place, stale)
    if manifest_index.read(folder(store)) is None:
        known = {folder(store) / part.file for m in found for part in m.parts}
        unknown = [p for p in stale if p.suffix == ".parquet" and p not in known]
        _set_aside(store, unknown)
        stale = [p for p in stale if p not in unknown]
    if manifest_index.read(folder(store)) != _datasets_of(current):
        manifest_index.write(folder(store), _datasets_of(current))
    # A replaced manifest goes last: while it is there, its successor must be there too, if only to drop it.
    drops = {manifests.folder_of(store) / f"{m.id}.json" for m in found if not m.sources}
    for path in sorted(stale, key=lambda p: (p in drops, p.suffix == ".json", p)):
        durable.remove(path)
    return len(stale)


def _cleaned_copy(place: bucket_lake.LakeObjects, stale: Sequence[Path]) -> int:
    """Takes what the bucket no longer names out of the working copy, and what was left in the bucket.

    A lake that an older version kept in the working copy alone goes to quarantine.
    """
    own = manifest_index.path_of(folder(place.store))
    if own.exists():
        _set_aside(place.store, [*stale, own])
        return len(stale)
    for path in stale:
        durable.drop(path, disk=working_copy.CACHE)
    place.sweep()
    return len(stale)


def unreferenced(store: Path) -> list[Path]:
    """Returns the files that no live manifest names and nobody may still read; `clean` takes them away."""
    current = live(store)
    current += manifests.joined_lately(store, current)
    named = {folder(store) / part.file for m in current for part in m.parts}
    named |= {manifests.folder_of(store) / f"{m.id}.json" for m in current}
    return [path for path in _data_files(store) if path not in named]


def unnamed(store: Path) -> list[Path]:
    """Returns the parts that no manifest names: of an ingest under way or killed, or of a lost manifest."""
    named = {folder(store) / part.file for m in manifests.every(store) for part in m.parts}
    return sorted(p for p in _data_files(store) if p.suffix == ".parquet" and p not in named)


def _set_aside(store: Path, paths: Sequence[Path]) -> None:
    """Moves parts to a new folder in quarantine, under the names that they have in the lake."""
    number = 1
    while (place := store / "quarantine" / f"lake-{number}").exists():
        number += 1
    for path in paths:
        target = place / path.relative_to(folder(store))
        durable.make_directory(target.parent)
        durable.move(path, target)


def _data_files(store: Path) -> Iterator[Path]:
    root = folder(store)
    for path in root.rglob("*"):
        owned = path.suffix in (".parquet", ".json") or durable.TEMPORARY.fullmatch(path.name)
        if owned and path.is_file() and path != manifest_index.path_of(root):
            yield path


def _datasets_of(current: Sequence[LakeManifest]) -> dict[str, str]:
    return {manifest.id: manifest.dataset for manifest in current}
