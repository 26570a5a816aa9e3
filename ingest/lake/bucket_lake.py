"""The lake of a store in a bucket: commits of their own, and a pointer that names those in use.

    lake/commits/COMMIT/TABLE/dataset=NAME/SHA256.parquet    the parts of one commit, COMMIT drawn at random
    lake/commits/COMMIT/manifest.json                        what they are, as in a folder
    lake/committed.json                                      the commits in use by their manifests' digests

A writer puts parts and manifest, then replaces the pointer that it read when it began: of two that write one
data set, one is told and has committed nothing. What no pointer names was never committed, or was replaced.
Names of a commit are never used again, so that a late removal takes nothing that is in use. The working copy
keeps what was read: manifests and parts have names of their digests and never change; the pointer is read
once by each process, and again when a writer begins.
"""

import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ingest.core import durable, integrity
from ingest.core.durable import DISK
from ingest.core.errors import DamageError, LockedError, StorageError
from ingest.core.terminal import shown
from ingest.objects import pointer, working_copy
from ingest.objects.bucket_prefix import AT_ONCE, ObjectPrefix, connected

FOLDER = "lake"
POINTER = f"{FOLDER}/committed.json"
SCHEMA = "twin.lake.bucket/1"
COMMITS = f"{FOLDER}/commits"
MANIFEST = "manifest.json"
LEFT_S = 24 * 3600.0
"""Age from which a commit that the pointer does not name was left by a killed writer."""
TRIES = 8
"""How often the pointer is read again because others were faster with other data sets."""
_SWEEP_S = 3600.0
"""A process looks for such commits at most so often."""
_ENTRY = re.compile(r"[0-9a-f]{64} [0-9a-f]{32}")
_OF_A_COMMIT = re.compile(
    rf"{COMMITS}/[0-9a-f]{{32}}/(\w+/dataset=[\w.-]+/[0-9a-f]{{64}}\.parquet|manifest\.json)"
)
_PART = re.compile(r"\w+/dataset=[\w.-]+/[0-9a-f]{64}\.parquet", re.ASCII)
"""Names of parts; a manifest in the bucket cannot lead out of the working copy."""


@dataclass(slots=True)
class LakeObjects:
    """The lake of one store as it was when the pointer was read.

    commits: folder of the commit of every manifest in use. tag: of the pointer; None: there is none.
    """

    objects: ObjectPrefix
    store: Path
    commits: dict[str, str] = field(default_factory=dict)
    tag: str | None = None
    writing: bool = False
    """True while this process is to commit on top of what it has read: then that is not read again."""
    _swept_s: float = -_SWEEP_S

    def refresh(self) -> None:
        """Reads the pointer.

        Raises:
            DamageError: it is not what was written. UsageError, StorageError: the bucket cannot be read.
        """
        found = pointer.read(self.objects, POINTER)
        if found is None:
            self.commits, self.tag = {}, None
            return
        fields = integrity.unsealed(found.data, SCHEMA, {"commits": dict[str, str]})
        commits = {"": ""} if fields is None else dict(fields["commits"])
        if not all(_ENTRY.fullmatch(f"{one} {two}") for one, two in commits.items()):
            raise DamageError(
                f"{self.objects.title}/{POINTER}: its bytes are not those that were written; restore an "
                "older version of the object, or delete it and ingest again"
            )
        self.commits, self.tag = commits, found.tag

    def begin(self) -> None:
        """Reads the pointer that the next commit replaces; refuses a server without conditional writes."""
        DISK.send(self.objects.check_swaps)
        self.refresh()
        self.writing = True

    def manifest(self, identity: str) -> bytes:
        """Returns the bytes of a manifest, from the working copy if they are there.

        Raises:
            DamageError: it went away, or was changed. LockedError: another writer has replaced it.
        """
        data = integrity.read_optional(self._kept(identity))
        if data is None or hashlib.sha256(data).hexdigest() != identity:
            data = self.read(identity, MANIFEST)
            if hashlib.sha256(data).hexdigest() != identity:
                raise DamageError(
                    f"{self.title(identity, MANIFEST)}: its bytes are not those that were written; restore "
                    "an older version of the object"
                )
            self._keep(identity, data)
        return data

    def manifests(self) -> list[tuple[str, bytes]]:
        """Returns every manifest in use by its digest; those that the working copy lacks, a few at a time.

        Raises:
            DamageError, LockedError: as `manifest`.
        """
        named = sorted(self.commits)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            lacking = [one for one in named if not self._kept(one).exists()]
            read = dict(zip(lacking, pool.map(self.manifest, lacking), strict=True))
        return [(one, read[one] if one in read else self.manifest(one)) for one in named]

    def fetch(self, parts: Iterable[tuple[str, str]]) -> None:
        """Reads parts, each a manifest and a file, into the working copy, a few at a time; the caller checks
        them.

        Raises:
            DamageError, LockedError: as `manifest`.
        """

        def one(part: tuple[str, str]) -> None:
            identity, file = part
            if not _PART.fullmatch(file):
                raise DamageError(f"{self.title(identity, MANIFEST)}: {shown(file)} is no name of a part")
            data = self.read(identity, file)
            durable.replace(self.store / FOLDER / file, data, disk=working_copy.CACHE)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, parts))

    def read(self, identity: str, name: str) -> bytes:
        """Returns the bytes of an object of a commit.

        Raises:
            DamageError, LockedError: as `manifest`.
        """
        found = pointer.read(self.objects, self._object(identity, name))
        if found is not None:
            return found.data
        title, before = self.title(identity, name), self.tag
        if not self.writing:
            self.refresh()
        elif (now := pointer.read(self.objects, POINTER)) is None or now.tag != before:
            raise LockedError(f"{title}: another machine has replaced it meanwhile; run the command again")
        raise DamageError(f"{title}: missing, though it was committed; restore it, or take its data set out")

    def commit(self, dataset: str, identity: str, manifest: bytes | None, files: Sequence[str],
               replaces: Iterable[str]) -> None:  # fmt: skip
        """Puts parts and manifest (None: nothing, a set is dropped), and makes them part of the lake.

        What another machine has committed to other data sets since `begin` stays beside it.

        Raises:
            LockedError: it has committed to this one; nothing was committed here.
            UsageError, StorageError: it cannot be written; it may be there all the same.
        """
        DISK.foretell((self.store / POINTER, f"{dataset}: a commit to {self.objects.title}/{FOLDER}"))
        old = [one for one in dict.fromkeys(replaces) if one in self.commits and one != identity]
        left = [name for one in old for name in self._names(one)]
        added = {}
        if manifest is not None and identity not in self.commits:
            added[identity] = self._put(manifest, files)
        try:
            self._swap(dataset, old, added)
        except LockedError:
            own = [f"{COMMITS}/{one}/{name}" for one in added.values() for name in (MANIFEST, *files)]
            self.objects.remove(own)
            raise
        if manifest is not None:
            self._keep(identity, manifest)
        self.objects.remove(left)

    def _swap(self, dataset: str, old: Sequence[str], added: Mapping[str, str]) -> None:
        """Replaces the pointer, and tries again where another writer was faster with other data sets."""
        for left in reversed(range(TRIES)):
            kept = {one: commit for one, commit in self.commits.items() if one not in old} | dict(added)
            record = integrity.sealed({"schema": SCHEMA, "commits": dict(sorted(kept.items()))})
            try:
                self.tag = pointer.swap(self.objects, POINTER, record, self.tag)
            except LockedError:
                if not left or dataset in self._changed_sets():
                    raise
            else:
                self.commits = kept
                return

    def _changed_sets(self) -> set[str]:
        """Reads the pointer again and returns the data sets whose commits are others than before."""
        from ingest.lake import manifests  # which reads the lake by this module

        before = self.commits
        found = {one: self.manifest(one) for one in before}
        self.refresh()
        found |= {one: self.manifest(one) for one in self.commits}
        changed = before.keys() ^ self.commits.keys()
        return {manifests.parsed(one, found[one]).dataset for one in changed}

    def sweep(self) -> None:
        """Removes commits of writers that were killed a day ago or earlier; looks once an hour."""
        if time.monotonic() - self._swept_s < _SWEEP_S:
            return
        self._swept_s = time.monotonic()
        used, newest, names = {*self.commits.values()}, dict[str, datetime](), dict[str, list[str]]()
        for name, one in self.objects.listed(COMMITS).items():
            commit = name.split("/")[2]
            if commit not in used and _OF_A_COMMIT.fullmatch(name):
                newest[commit] = max(one.modified, newest.get(commit, one.modified))
                names.setdefault(commit, []).append(name)
        before = datetime.now(UTC) - timedelta(seconds=LEFT_S)
        left = [name for commit, at in newest.items() if at < before for name in names[commit]]
        DISK.send(lambda: self.objects.remove(left))

    def fault(self, identity: str, file: str, sha256: str) -> str | None:
        """Returns how an object of a commit differs from what was written; None: it does not; reads it."""
        same = hashlib.sha256(self.read(identity, file)).hexdigest() == sha256
        return None if same else "its bytes are not those that were written"

    def title(self, identity: str, name: str) -> str:
        """Address of an object of a commit."""
        return f"{self.objects.title}/{self._object(identity, name)}"

    def _kept(self, identity: str) -> Path:
        return self.store / FOLDER / "manifests" / f"{identity}.json"

    def _keep(self, identity: str, manifest: bytes) -> None:
        durable.replace(self._kept(identity), manifest, disk=working_copy.CACHE)

    def _object(self, identity: str, name: str) -> str:
        if identity not in self.commits:
            raise DamageError(
                f"{self.objects.title}/{POINTER}: was replaced meanwhile; run the command again"
            )
        return f"{COMMITS}/{self.commits[identity]}/{name}"

    def _names(self, identity: str) -> Iterator[str]:
        """Every object of a commit."""
        from ingest.lake import manifests

        parts = manifests.parsed(identity, self.manifest(identity)).parts
        yield from (self._object(identity, name) for name in (MANIFEST, *(part.file for part in parts)))

    def _put(self, manifest: bytes, files: Sequence[str]) -> str:
        """Puts the objects of a new commit, the manifest last; returns its name."""
        began_s, commit = time.monotonic(), uuid.uuid4().hex

        def one(file: str) -> None:
            self.objects.replace(f"{COMMITS}/{commit}/{file}", (self.store / FOLDER / file).read_bytes())

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, dict.fromkeys(files)))
        self.objects.replace(f"{COMMITS}/{commit}/{MANIFEST}", manifest)
        if time.monotonic() - began_s > LEFT_S / 2:  # else another machine might take it for left behind
            raise StorageError(
                f"{self.objects.title}: the upload took more than {LEFT_S / 7200:g} hours, and nothing was "
                "committed; ingest fewer files at a time"
            )
        return commit


_known: dict[tuple[int, Path], LakeObjects] = {}


def of(store: Path) -> LakeObjects | None:
    """Returns the lake of a store in a bucket, as this process has read it; None: the store lies on a disk.

    Raises:
        DamageError, UsageError, StorageError: as `LakeObjects.refresh`.
    """
    key = os.getpid(), store
    if key not in _known:
        url = working_copy.bucket_of(store)
        if url is None:
            return None
        found = LakeObjects(connected(url), store)
        found.refresh()
        _known[key] = found
    return _known[key]


def forget(store: Path) -> None:
    """Lets the next use read the pointer again."""
    _known.pop((os.getpid(), store), None)
