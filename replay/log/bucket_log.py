"""The log of a run in a bucket: one object a batch of events, put only where there is none.

A batch is named by its first event, which follows from the batches before it. So of two writers that go on
from the same end both put the same name: one has written, the other is told and stops. A batch that was
acknowledged is in the bucket; then the files of the segment are made in the working copy, where all readers
read. The working copy is brought up to date before a run is read: one listing, and one request for each batch
that is not there yet.

    runs/RUN/00000000000000005000.batch     manifest and Parquet file of a segment (`replay/log/batch.py`)
    runs/RUN/head.json                      number of events and chain head at the last close of a writer
    runs/RUN/compacted.json, *.parquet      a run that was compacted before `twin sync` brought it
"""

import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ingest.core import integrity, names
from ingest.core.durable import DISK, Disk, make_directory, put, replace
from ingest.core.errors import DamageError, ExistsError, LockedError
from ingest.core.terminal import HIDDEN
from ingest.lake import bucket_lake
from ingest.objects import working_copy
from ingest.objects.bucket_prefix import ListedObject, ObjectPrefix, connected, tag_of
from ingest.objects.client import SCHEME
from ingest.objects.working_copy import CACHE
from replay.log import batch, chain_heads, segment
from replay.log.batch import EventBatch, batch_name
from replay.log.segment import COMMITTED, SegmentManifest
from replay.log.segment_index import MERGED, RECORD

HEAD = "head.json"
FRESH_S = 1.0
"""Seconds for which a process does not ask again what a run has in the bucket."""
RUNS = "runs"
MAX_RUN_BYTES = 200
"""Of the name of a run, to which files of the working copy add an ending."""

Listing = Mapping[str, ListedObject]


_seen: dict[Path, float] = {}  # when each run was brought up to date, s of the monotonic clock


@dataclass(frozen=True, slots=True)
class BucketLog:
    """The objects of one run, and the folder of its working copy; `writer` is drawn for each of these."""

    objects: ObjectPrefix
    run_dir: Path
    writer: str

    @classmethod
    def of(cls, run_dir: Path) -> "BucketLog | None":
        """Returns the objects of a run; None: its store lies on a disk."""
        runs = run_dir.absolute().parent
        url = working_copy.bucket_of(runs.parent) if runs.name == RUNS else None
        return None if url is None else cls(connected(url), run_dir, uuid.uuid4().hex)

    @property
    def title(self) -> str:
        """Address of the run."""
        return f"{self.objects.title}/{self._folder}"

    def begin(self, disk: Disk = DISK) -> None:
        """Brings the working copy up to date, for a writer; refuses a server without conditional writes."""
        disk.send(self.objects.check_conditional)
        self.fetch()

    def append(self, manifest: SegmentManifest, data: bytes) -> None:
        """Puts one batch, acknowledged on return, and makes its files in the working copy.

        Raises:
            LockedError: another writer has stored this batch, or another one in its place.
            UsageError, StorageError: it cannot be written; it may be there all the same.
        """
        name = batch_name(manifest.first_seq)
        made = EventBatch(self.writer, manifest.text(), data)
        try:
            self.objects.create(f"{self._folder}/{name}", batch.encoded(made))
        except ExistsError:
            raise LockedError(
                f"{self.title}: another process writes this run, and has stored its events from "
                f"{manifest.first_seq:,} on; wait for it or stop it, then resume the run"
            ) from None
        self._keep(name, made)

    def copy(self, manifest: SegmentManifest, data: bytes) -> None:
        """Puts one batch as `append` does, where it may be there already, from whichever writer.

        Raises:
            DamageError: other events are there.
        """
        name = batch_name(manifest.first_seq)
        try:
            self.append(manifest, data)
        except LockedError:
            found = self._read(name)
            if found[1:] != (manifest.text(), data):
                raise DamageError(
                    f"{self.title}/{name}: holds other events; nothing was overwritten"
                ) from None
            self._keep(name, found)

    def copy_file(self, name: str, data: bytes) -> None:
        """Puts a file of a compacted run under its own name.

        Raises:
            DamageError: other bytes are there.
        """
        try:
            self.objects.create(f"{self._folder}/{name}", data)
        except ExistsError as error:
            raise DamageError(f"{error}; nothing was overwritten") from None
        put(self.run_dir / name, data, disk=CACHE, idempotent=True)

    def close(self, data: bytes) -> None:
        """Stores the record of the head, which is derived from batches that are in the bucket."""
        self.objects.replace(f"{self._folder}/{HEAD}", data)

    def fetch(self, listed: Listing | None = None) -> int:
        """Brings the working copy up to date and returns the number of batches that were read.

        Raises:
            DamageError: an object was changed, or one that was there went away.
            UsageError, StorageError: the bucket cannot be read.
        """
        here = self._held()  # first: a writer of this machine stores in the bucket before it does here
        found = self._listed() if listed is None else listed
        batches = sorted(name for name in found if batch.NAME.fullmatch(name))
        wanted = [] if RECORD in found else batches  # else merged files have their events
        if gone := [] if RECORD in found else sorted({*here} - {*wanted}):
            raise DamageError(
                f"{self.title}/{gone[0]}: went away; {self.run_dir} has its events: bring them back with "
                "`twin sync`, or delete that folder to go on with what is left"
            )
        for name in wanted:
            if name in here and here[name] != found[name].size_bytes:
                raise DamageError(
                    f"{self.title}/{name}: was replaced by another object, or a power cut tore its files in "
                    f"{self.run_dir}; delete that folder and audit the run again"
                )
        if found:
            make_directory(self.run_dir, disk=CACHE)
        new = [name for name in wanted if name not in here]
        for name, stored in zip(new, self.objects.read_all(self._sizes(found, new)), strict=True):
            self._keep(name, batch.decoded(f"{self.title}/{name}", stored))
        self._fetch_compacted(found)
        if HEAD in found:
            self._fetch_head(found[HEAD])
        _seen[self.run_dir] = time.monotonic()
        return len(new)

    def faults(self) -> list[tuple[str, str]]:
        """Reads every object of the run; returns the name and the problem of each that is not what it was."""
        found = self._listed()
        problems: list[tuple[str, str]] = []
        for name in sorted(found):
            if batch.NAME.fullmatch(name):
                problems += [] if RECORD in found else self._batch_faults(name)
            elif MERGED.fullmatch(name) or name == RECORD:
                if self.objects.read(f"{self._folder}/{name}") != segment.read_file(self.run_dir / name):
                    problems.append((name, "in the bucket is not what was read from it before"))
            elif name != HEAD:
                problems.append((name, "does not belong to the run; move it out of the bucket's folder"))
        return problems

    @property
    def _folder(self) -> str:
        return f"{RUNS}/{self.run_dir.name}"

    def _sizes(self, found: Listing, names: list[str]) -> dict[str, int]:
        """Listed sizes of objects of the run by their whole names."""
        return {f"{self._folder}/{name}": found[name].size_bytes for name in names}

    def _listed(self) -> Listing:
        found = self.objects.listed(self._folder)
        return {name.removeprefix(f"{self._folder}/"): one for name, one in found.items()}

    def _held(self) -> dict[str, int]:
        """Batches that the working copy has, with the sizes of their objects."""
        here: dict[str, int] = {}
        for path in self.run_dir.iterdir() if self.run_dir.is_dir() else ():
            if COMMITTED.fullmatch(path.name) and path.suffix == ".json":
                both = (path, path.with_suffix(".parquet"))
                if all(one.exists() for one in both):  # else it is read again
                    here[f"{path.stem}.batch"] = batch.HEAD_BYTES + sum(one.stat().st_size for one in both)
        return here

    def _read(self, name: str) -> EventBatch:
        return batch.decoded(f"{self.title}/{name}", self.objects.read(f"{self._folder}/{name}"))

    def _keep(self, name: str, found: EventBatch) -> None:
        """Makes the two files of a segment, data first, as its writer does."""
        stem = name.removesuffix(".batch")
        put(self.run_dir / f"{stem}.parquet", found.data, disk=CACHE, idempotent=True)
        put(self.run_dir / f"{stem}.json", found.manifest, disk=CACHE, idempotent=True)

    def _batch_faults(self, name: str) -> list[tuple[str, str]]:
        stem = name.removesuffix(".batch")
        try:
            found = self._read(name)
            here = [segment.read_file(self.run_dir / f"{stem}.{kind}") for kind in ("json", "parquet")]
        except DamageError as error:
            return [(name, str(error))]
        except FileNotFoundError:
            return []  # stored since the working copy was brought up to date
        same = here == [found.manifest, found.data]
        return [] if same else [(name, "in the bucket is not what was read from it before")]

    def _fetch_compacted(self, found: Listing) -> None:
        if RECORD not in found or (self.run_dir / RECORD).exists():
            return
        parts = [*sorted(name for name in found if MERGED.fullmatch(name)), RECORD]
        for name, data in zip(parts, self.objects.read_all(self._sizes(found, parts)), strict=True):
            put(self.run_dir / name, data, disk=CACHE, idempotent=True)

    def _fetch_head(self, listed: ListedObject) -> None:
        """Keeps the record of the head, if it says more than the one that is here.

        The record comes behind its batches, which may have come since the listing: so they are listed again.
        """
        path = chain_heads.path_of(self.run_dir)
        kept = None if path is None else integrity.read_optional(path)
        if path is None or (kept is not None and listed.tag == tag_of(kept)):
            return
        data = self.objects.read(f"{self._folder}/{HEAD}")
        fields = integrity.unsealed(data, chain_heads.SCHEMA, chain_heads.TYPES)
        if fields is None:
            raise DamageError(f"{self.title}/{HEAD}: its bytes are not those that were written; delete it")
        before = None if kept is None else integrity.unsealed(kept, chain_heads.SCHEMA, chain_heads.TYPES)
        if before is None or fields["events"] > before["events"]:
            self.fetch({name: one for name, one in self._listed().items() if name != HEAD})
            replace(path, data, disk=CACHE)


def bring_up_to_date(run_dir: Path) -> None:
    """Reads what a run in a bucket has got, unless this process has just done so; nothing for a disk.

    Raises:
        DamageError, UsageError, StorageError: as `BucketLog.fetch`.
    """
    fresh = time.monotonic() - _seen.get(run_dir, -math.inf) < FRESH_S and any(
        (run_dir / name).exists()
        for name in (f"{0:020d}.json", RECORD)  # else it was deleted
    )
    if not fresh and (log := BucketLog.of(run_dir)) is not None:
        log.fetch()


def store_at(place: str) -> Path:
    """Returns the folder of a store: of one in a bucket, its working copy, with a folder for each run.

    Raises:
        UsageError, StorageError: the bucket cannot be read.
    """
    return open_store(place) if place.startswith(SCHEME) else Path(place)


def open_store(url: str) -> Path:
    """Returns the working copy of the store at `s3://BUCKET/PREFIX`, with a folder for each of its runs.

    The events of a run are read when they are needed.

    Raises:
        UsageError, StorageError: the bucket cannot be read.
    """
    objects = connected(url.rstrip("/"))
    found = objects.listed(RUNS)
    store = working_copy.marked(url)
    bucket_lake.forget(store)
    of_runs = {name for name in found if _is_of_a_run(name)}
    folders = {RUNS, *(name.rpartition("/")[0] for name in of_runs)}  # objects that consoles make for folders
    _odd_names[store] = sorted(found.keys() - of_runs - folders)
    for run in sorted({name.split("/")[1] for name in of_runs}):
        make_directory(names.inside(store / RUNS, run), disk=CACHE)
    return store


_odd_names: dict[Path, list[str]] = {}


def odd_names(store: Path) -> list[str]:
    """Returns the objects below `runs/` that can be of no run, as they were when the store was opened."""
    return _odd_names.get(store, [])


def _is_of_a_run(name: str) -> bool:
    """True for `runs/RUN/FILE` with the name of a folder as RUN."""
    parts = name.split("/")
    whole = len(parts) > 2 and parts[0] == RUNS and not {"", ".", ".."} & {*parts}
    visible = not HIDDEN.search(name) and "\n" not in name and "\t" not in name
    return whole and visible and len(parts[1].encode()) <= MAX_RUN_BYTES
