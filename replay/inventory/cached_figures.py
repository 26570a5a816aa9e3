"""Key figures of finished runs of plans and of queues, computed from the events once and kept in
`<store>/cache/figures`.

A file holds the figures of one run under one chain head, as one version of the code computes them; it carries
the digest of itself. Anything else is computed again.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from ingest.core import durable, integrity
from ingest.core.errors import DamageError, StorageError
from replay.log.events import Event
from replay.log.run_log import RunReader
from replay.metrics.kpis import Kpis, of_events
from replay.sql.row_cache import FOLDER
from replay.store.run_header import QUEUE, code_version
from twin.queue.metrics import QueueFigures

FIGURES = "figures"
SCHEMA = "twin.figures/1"
TYPES = {"head": str, "sources": str, "figures": dict[str, int | float | list[str] | None]}
PLAN_NAMES = tuple(field.name for field in fields(Kpis))
"""Of the key figures of a run of plans."""
QUEUE_NAMES = tuple(field.name for field in fields(QueueFigures))
"""Of the key figures of a queue run."""
NAMES = tuple(dict.fromkeys((*PLAN_NAMES, *QUEUE_NAMES)))
"""Of all key figures; `utilisation` is that of the GPUs in the plan, or of the processors of a queue."""


def path_of(store: Path, run_id: str) -> Path:
    """Returns the file of the figures of a run."""
    return store / FOLDER / FIGURES / f"{run_id}.json"


def of_run(store: Path, reader: RunReader, head: str) -> dict[str, Any]:
    """Returns the key figures of a finished run of plans or of a queue by name; `head` is its chain head.

    Raises:
        DamageError: the log is not what was written.
    """
    path = path_of(store, reader.run_dir.name)
    made_of = {"schema": SCHEMA, "head": head, "sources": code_version()["sources"]}
    known = _read(path)
    if known is not None and {name: known[name] for name in made_of} == made_of:
        return dict(known["figures"])
    if reader.header()["policy"] == QUEUE:
        found = queue_figures(reader.events())
    else:
        found = of_events(reader.events()).to_json()
    with suppress(StorageError):  # a store that cannot be written can still be read
        durable.replace(path, integrity.sealed({**made_of, "figures": found}))
    return found


def queue_figures(events: Iterable[Event]) -> dict[str, Any]:
    """Returns the figures that a queue run ends with, those of a run of an older version as far as it has
    them."""
    last: dict[str, Any] = {}
    for event in events:
        if event.type == "run_finished":
            last = event.payload["totals"].get("figures", {})
    return {name: last.get(name) for name in QUEUE_NAMES}


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = integrity.read_optional(path)
    except DamageError:
        return None
    known = None if data is None else integrity.unsealed(data, SCHEMA, TYPES)
    if known is None:
        return None
    names = known["figures"].keys()
    return known if names >= {*PLAN_NAMES} or names >= {*QUEUE_NAMES} else None
