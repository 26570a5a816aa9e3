"""The store and the weights in use: whether every file is what was written."""

import os
from collections.abc import Iterator
from pathlib import Path

from ingest.core.errors import TwinError
from ingest.core.progress import SILENT, Progress
from replay.api import store_check
from replay.health.check import Check, State
from replay.store import checkpoint_registry

LEAST_FREE = 1 << 30
"""Bytes on the disk of a store below which a run may not find room."""


def weights(store: Path) -> Check:
    """Returns the check of the weights that `twin replay` takes by default."""
    try:
        used = checkpoint_registry.in_use(store)
    except TwinError as error:
        return Check("weights", "broken", str(error), "`twin policies --rollback`, or restore the file")
    if used is None:
        return Check("weights", "missing", "no checkpoint in the store, and none ships", "twin train")
    where = "promoted in the store" if checkpoint_registry.active(store) else "those that ship"
    return Check("weights", "ok", f"{used[:8]}, {where}")


def store_health(store: Path, progress: Progress = SILENT) -> Iterator[Check]:
    """Yields the checks of a store: every file of it is read, as `twin verify` does; and room on its disk."""
    if not store.is_dir():
        yield Check(
            "store", "note", f"{store}: not there yet; it is made when first written", "twin ingest shipped"
        )
    else:
        report = store_check.check(store, progress)
        for finding in report.findings:
            yield Check("store", "broken", str(finding))
        if report.ok:
            yield Check("store", "ok", f"{store}: every file is what was written")
    place = next(path for path in (store.absolute(), *store.absolute().parents) if path.is_dir())
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    writable = os.access(place, os.W_OK)
    state: State = "broken" if not writable else "note" if free < LEAST_FREE else "ok"
    found = f"{free / 1e9:,.1f} GB free" + ("" if writable else f", but {place} cannot be written")
    yield Check("disk", state, found, "" if state == "ok" else "free space, or choose another --store")
