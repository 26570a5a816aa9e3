"""Manifests of the lake: what is read of them, and which there are.

A manifest commits a set of parts. Its name is the SHA-256 of its bytes, checked before they are read; the
index of `manifest_index.py` tells one that was never committed from one that went away. Of a lake in a
bucket, the pointer there says which are in use (`bucket_lake.py`).
"""

import hashlib
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ingest.core import integrity
from ingest.core.errors import DamageError
from ingest.core.terminal import clipped
from ingest.lake import bucket_lake, manifest_index
from ingest.lake.bucket_lake import FOLDER, LakeObjects

READING_S = 600.0
"""How long the files of commits that became one stay, for readers that had begun."""


def _inside(name: str) -> str:
    """Returns the name of a part, which leads nowhere but into the lake."""
    if {"", ".", ".."} & {*name.split("/")} or "\0" in name:
        raise ValueError("leads out of the lake")
    return name


Count = Annotated[int, Field(ge=0)]


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


def every(store: Path) -> list[LakeManifest]:
    """Returns every manifest there is, sorted by identity; all that the index names are there or replaced.

    A writer indexes a manifest after linking it, and takes it out of the index before deleting it. So one
    that is in the index before and after it was found missing is lost; otherwise the lake has changed since
    the listing, and is listed again.
    """
    if (place := bucket_lake.of(store)) is not None:
        return _every_in(place)
    while True:
        try:
            found = [load(path) for path in sorted(folder_of(store).glob("*.json"))]
        except FileNotFoundError:  # deleted since the listing
            continue
        index = manifest_index.read(store / FOLDER) or {}
        there = {manifest.id for manifest in found} | {old for m in found for old in m.replaces}
        gone = [identity for identity in index if identity not in there]
        lost = [identity for identity in gone if not (folder_of(store) / f"{identity}.json").exists()]
        if not gone:
            return found
        if lost and manifest_index.read(store / FOLDER) == index:
            name = index[lost[0]]
            raise DamageError(
                f"{folder_of(store) / lost[0]}.json: missing, though it was committed; restore it, or "
                f"delete {manifest_index.path_of(store / FOLDER)} and ingest {name} again"
            )


def _every_in(place: LakeObjects) -> list[LakeManifest]:
    """Every manifest that the pointer in a bucket names; one that was replaced meanwhile makes it be read
    again."""
    while True:
        named = dict(place.commits)
        try:
            return [_decoded(identity, data) for identity, data in place.manifests()]
        except DamageError:
            if place.commits == named:
                raise


def joined_lately(store: Path, current: Iterable[LakeManifest]) -> Iterator[LakeManifest]:
    """Yields the manifests that became part of a larger one of `current` less than `READING_S` ago.

    Their rows are in the larger one, and a reader that began before may read their parts still.
    """
    for manifest in current:
        path = folder_of(store) / f"{manifest.id}.json"
        if manifest.replaces and time.time() - _written_s(path) < READING_S:
            sources = set(manifest.sources)
            for old in manifest.replaces:
                with suppress(FileNotFoundError, DamageError):  # damage is found by those who need it
                    if sources.issuperset((found := load(folder_of(store) / f"{old}.json")).sources):
                        yield found


def _written_s(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return -math.inf


def folder_of(store: Path) -> Path:
    """Returns the folder of the manifests of a store."""
    return store / FOLDER / "manifests"


def load(path: Path) -> LakeManifest:
    """Returns the manifest in a file.

    Raises:
        FileNotFoundError: there is none. DamageError: it is not what was written.
    """
    data = integrity.read_regular(path)
    identity = hashlib.sha256(data).hexdigest()
    if identity != path.stem:
        raise DamageError(
            f"{path}: its bytes are not those that were written; restore it, or delete it and "
            f"{manifest_index.NAME} in {path.parents[1]} and ingest its files again"
        )
    return _decoded(identity, data)


@lru_cache(maxsize=256)
def _decoded(identity: str, data: bytes) -> LakeManifest:
    """Returns the manifest with these bytes, which a command reads several times."""
    return parsed(identity, data)


class _Body(BaseModel):
    """A manifest as JSON: its digest proves that it was not changed, not that an ingest wrote it."""

    model_config = ConfigDict(frozen=True, strict=True, hide_input_in_errors=True)

    dataset: str
    meta: dict[str, Any]
    parts: list[tuple[str, Annotated[str, AfterValidator(_inside)], Count, Count, str]]
    sources: list[tuple[str, str, Count, str, int, str, dict[str, Count], Count]]
    replaces: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]


def parsed(identity: str, data: bytes) -> LakeManifest:
    """Returns the manifest whose JSON is `data`.

    Raises:
        DamageError: no ingest wrote it.
    """
    try:
        body = _Body.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        at = ".".join(map(str, first["loc"]))
        raise DamageError(
            f"{FOLDER}/manifests/{identity}.json: no ingest wrote it ({clipped(at)}: {first['msg']}); take "
            "it out of the lake"
        ) from None
    return LakeManifest(
        identity,
        body.dataset,
        body.meta,
        tuple(Part(*part) for part in body.parts),
        tuple(SourceEntry(*s[:6], tuple(sorted(s[6].items())), s[7]) for s in body.sources),
        tuple(body.replaces),
    )
