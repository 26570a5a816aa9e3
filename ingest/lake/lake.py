"""The lake: Parquet parts that exist because a manifest names them.

`<store>/lake/<table>/dataset=<name>/<SHA-256>.parquet` holds rows sorted by time; a manifest
`<store>/lake/manifests/<SHA-256 of the manifest>.json` commits a set of parts together with the sources they
were made from, the reader of each and the data set's metadata. A manifest can replace older ones; one without
sources drops its data set: it replaces all others of it, and goes last itself. A part that no live manifest
names is a left-over of a killed ingest: readers never see it, the next ingest takes it away.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest.core import durable
from ingest.core.config import suggestion
from ingest.core.errors import DamageError, NotFoundError

SCHEMA = "twin.lake/1"


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file: path inside the lake, what it holds, and what its bytes must be."""

    table: str
    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One source whose rows are in the lake: which reader took them, under which options, and how many.

    sha256: of the content; of content and name for a reader that takes facts from the name.
    """

    file: str
    sha256: str
    bytes: int
    reader: str
    version: int
    options: str
    rows: tuple[tuple[str, int], ...]
    rejected: int

    @property
    def key(self) -> tuple[str, str, int, str]:
        """Identity of a source: content, reader, version, options."""
        return self.sha256, self.reader, self.version, self.options


@dataclass(frozen=True, slots=True)
class LakeManifest:
    """A committed set of parts and the sources behind them."""

    id: str
    dataset: str
    meta: dict[str, Any]
    parts: tuple[Part, ...]
    sources: tuple[SourceEntry, ...]
    replaces: tuple[str, ...]


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
    durable.put(_manifests(store) / f"{identity}.json", data, idempotent=True)
    return _parsed(identity, body)


def live(store: Path) -> list[LakeManifest]:
    """Returns every manifest that no other one replaces and that holds something, sorted by identity.

    Raises:
        DamageError: a manifest is not what was written.
    """
    found = _all(store)
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
    _held(store, dataset)
    with durable.Lock(folder(store) / "lock"):
        held = _held(store, dataset)
        gone = {old for m in live(store) if m.dataset == dataset for old in (m.id, *m.replaces)}
        commit(store, dataset, {}, (), (), sorted(gone))
        clean(store)
    return held


def _held(store: Path, dataset: str) -> DatasetInfo:
    found = datasets(store)
    if dataset not in found:
        hint = suggestion(dataset, found) if found else ": it is empty"
        raise NotFoundError(f"the lake in {store} has no data set {dataset!r}{hint}")
    return found[dataset]


def without(
    store: Path, manifest: LakeManifest, gone: set[str]
) -> tuple[list[SourceEntry], Iterator[tuple[str, pa.Table]]]:
    """Returns a manifest without the files `gone`: the other sources, and their rows by part."""
    kept = [entry for entry in manifest.sources if entry.file not in gone]

    def rows() -> Iterator[tuple[str, pa.Table]]:
        for part in manifest.parts if kept else ():
            table = pq.ParquetFile(folder(store) / part.file).read()
            stays = table.filter(pc.invert(pc.is_in(table["source_file"], pa.array(sorted(gone)))))
            if stays.num_rows:
                yield part.table, stays

    return kept, rows()


def parts(store: Path) -> dict[str, list[Path]]:
    """Returns the Parquet files of each table, in a fixed order.

    Raises:
        DamageError: a part is missing or has another size than its manifest says.
    """
    files: dict[str, list[Path]] = {}
    for manifest in live(store):
        for part in manifest.parts:
            path = folder(store) / part.file
            if not path.is_file() or path.stat().st_size != part.bytes:
                raise DamageError(
                    f"{path}: missing or cut; delete the manifest {manifest.id} and ingest again"
                )
            files.setdefault(part.table, []).append(path)
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
            rows.get("rejects", 0),
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
    """Returns a sentence for every part whose bytes are not those that were written; empty if all is well."""
    findings = []
    for manifest in live(store):
        for part in manifest.parts:
            path = folder(store) / part.file
            if not path.is_file():
                findings.append(f"{path}: missing")
            elif hashlib.sha256(path.read_bytes()).hexdigest() != part.sha256:
                findings.append(f"{path}: its bytes are not those that were written")
    return findings


def clean(store: Path) -> int:
    """Deletes files that no live manifest names: left-overs of killed ingests and replaced files.

    Returns how many files went. Only for the process that holds the lake's lock.
    """
    current = live(store)
    named = {folder(store) / part.file for m in current for part in m.parts}
    named |= {_manifests(store) / f"{m.id}.json" for m in current}
    # A replaced manifest goes last: while it is there, its successor must be there too, if only to drop it.
    drops = {_manifests(store) / f"{m.id}.json" for m in _all(store) if not m.sources}
    stale = [p for p in _data_files(store) if p not in named]
    for path in sorted(stale, key=lambda p: (p in drops, p.suffix == ".json", p)):
        durable.remove(path)
    return len(stale)


def _data_files(store: Path) -> Iterator[Path]:
    root = folder(store)
    for path in root.rglob("*"):
        if path.is_file() and (
            path.suffix in (".parquet", ".json") or durable.TEMPORARY.fullmatch(path.name)
        ):
            yield path


def _all(store: Path) -> list[LakeManifest]:
    """Every manifest there is, sorted by identity."""
    return [_load(path) for path in sorted(_manifests(store).glob("*.json"))]


def _manifests(store: Path) -> Path:
    return folder(store) / "manifests"


def _load(path: Path) -> LakeManifest:
    data = path.read_bytes()
    identity = hashlib.sha256(data).hexdigest()
    if identity != path.stem:
        raise DamageError(f"{path}: its bytes are not those that were written; delete it and ingest again")
    return _parsed(identity, json.loads(data))


def _parsed(identity: str, body: dict[str, Any]) -> LakeManifest:
    return LakeManifest(
        identity,
        body["dataset"],
        body["meta"],
        tuple(Part(*part) for part in body["parts"]),
        tuple(
            SourceEntry(*s[:6], tuple(sorted(s[6].items())), s[7])  # type: ignore[call-arg]
            for s in body["sources"]
        ),
        tuple(body["replaces"]),
    )
