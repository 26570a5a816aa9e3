"""Checkpoints of a store in a bucket, under the names that they have on a disk.

    checkpoints/DIGEST/hippo-DIGEST.pt     put where it is not there, read once by each machine
    active.json                            the pointer, replaced by a writer that has read it

A checkpoint is in the bucket before a log or the pointer names it.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ingest.core import durable
from ingest.core.durable import DISK
from ingest.core.errors import DamageError
from ingest.objects import pointer, working_copy
from ingest.objects.bucket_prefix import ObjectPrefix, connected
from ingest.objects.pointer import TaggedBytes
from replay.store.layout import CHECKPOINTS

POINTER = "active.json"
_NAME = re.compile(rf"{CHECKPOINTS}/[0-9a-f]{{8,64}}/hippo-([0-9a-f]{{8,64}})\.pt")
_WHOLE = 64


@dataclass(frozen=True, slots=True)
class CheckpointObjects:
    """The checkpoints of one store, and the folder of its working copy."""

    objects: ObjectPrefix
    store: Path

    @classmethod
    def of(cls, store: Path) -> "CheckpointObjects | None":
        """Returns the checkpoints of a store; None: it lies on a disk."""
        url = working_copy.bucket_of(store)
        return None if url is None else cls(connected(url), store)

    @property
    def title(self) -> str:
        """Address of the pointer."""
        return f"{self.objects.title}/{POINTER}"

    def fetch(self, beginning: str = "") -> None:
        """Reads the checkpoints whose digests begin so and that the working copy lacks.

        Raises:
            DamageError: one is not what its name says. UsageError, StorageError: the bucket cannot be read.
        """
        here = self.store / CHECKPOINTS / beginning / f"hippo-{beginning}.pt"
        if len(beginning) == _WHOLE and here.is_file():
            return
        for name, digest in self._listed():
            if _same(digest, beginning) and not (self.store / name).exists():
                data = self.objects.read(name)
                if not hashlib.sha256(data).hexdigest().startswith(digest):
                    raise DamageError(self._changed(name))
                durable.put(self.store / name, data, disk=working_copy.CACHE, idempotent=True)

    def keep(self, path: Path) -> None:
        """Puts a checkpoint of the working copy into the bucket, unless it is there; durable on return."""
        name = path.relative_to(self.store).as_posix()
        if name not in self.objects.listed(path.parent.relative_to(self.store).as_posix()):
            DISK.send(lambda: self.objects.create(name, path.read_bytes()))

    def active(self) -> TaggedBytes | None:
        """Returns the pointer as it is now; None before the first promotion."""
        return pointer.read(self.objects, POINTER)

    def point(self, data: bytes, tag: str | None) -> None:
        """Replaces the pointer that has this tag.

        Raises:
            LockedError: another machine replaced it meanwhile.
        """
        DISK.send(partial(pointer.swap, self.objects, POINTER, data, tag))

    def faults(self) -> Iterator[tuple[str, str]]:
        """Reads every checkpoint in the bucket; yields address and problem of each that was changed."""
        for name, digest in self._listed():
            if not hashlib.sha256(self.objects.read(name)).hexdigest().startswith(digest):
                yield f"{self.objects.title}/{name}", self._changed(name)

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Names and digests of the checkpoints in the bucket, by one listing."""
        for name in sorted(self.objects.listed(CHECKPOINTS)):
            if found := _NAME.fullmatch(name):
                yield name, found[1]

    def _changed(self, name: str) -> str:
        return (
            f"{self.objects.title}/{name}: its bytes are not those that were written; take it out of the "
            "bucket, and promote another one or train again"
        )


def _same(one: str, other: str) -> bool:
    """True for two digests of which one may be the beginning of the other."""
    return one.startswith(other) or other.startswith(one)
