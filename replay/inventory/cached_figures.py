"""Key figures of finished runs, computed from the events once and kept in `<store>/cache/figures`.

A file holds the figures of one run under one chain head, as one version of the code computes them; it carries
the digest of itself. Anything else is computed again.
"""

from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from ingest.core import durable, integrity
from ingest.core.errors import DamageError, StorageError
from replay.log.run_log import RunReader
from replay.metrics.kpis import Kpis, of_events
from replay.sql.row_cache import FOLDER
from replay.store.run_header import code_version

FIGURES = "figures"
SCHEMA = "twin.figures/1"
TYPES = {"head": str, "sources": str, "figures": dict[str, int | float | None]}
NAMES = tuple(field.name for field in fields(Kpis))
"""Of all key figures."""


def path_of(store: Path, run_id: str) -> Path:
    """Returns the file of the figures of a run."""
    return store / FOLDER / FIGURES / f"{run_id}.json"


def of_run(store: Path, reader: RunReader, head: str) -> dict[str, Any]:
    """Returns the key figures of a finished run by name; `head` is its chain head.

    Raises:
        DamageError: the log is not what was written.
    """
    path = path_of(store, reader.run_dir.name)
    made_of = {"schema": SCHEMA, "head": head, "sources": code_version()["sources"]}
    known = _read(path)
    if known is not None and {name: known[name] for name in made_of} == made_of:
        return dict(known["figures"])
    found = of_events(reader.events()).to_json()
    with suppress(StorageError):  # a store that cannot be written can still be read
        durable.replace(path, integrity.sealed({**made_of, "figures": found}))
    return found


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = integrity.read_optional(path)
    except DamageError:
        return None
    known = None if data is None else integrity.unsealed(data, SCHEMA, TYPES)
    return known if known is not None and known["figures"].keys() >= {*NAMES} else None
