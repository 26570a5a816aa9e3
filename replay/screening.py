"""Which stored events are none that a writer would have accepted; many at once where they are alike."""

import json
from collections.abc import Iterator

import pyarrow as pa

from ingest.errors import DamageError
from replay.events import EventError, canonical, check, upcast
from replay.segment import rows_of


def faults(table: pa.Table, where: str) -> Iterator[tuple[int, str]]:
    """(number, problem) of every event whose type, version, form or fields are wrong; `where` names the
    file."""
    for row in rows_of(table):
        problem = _problem(row[2], row[3], row[5], row[6], where)
        if problem:
            yield row[0], problem


def _problem(name: str, version: int, text: str, wall: str, where: str) -> str | None:
    """Why this is no event that a writer would have accepted."""
    try:
        payload = json.loads(text)
        if canonical(payload) != text or canonical(json.loads(wall)) != wall:
            return "the payload is not in its canonical form"
        check(name, upcast(name, version, payload, where)[1])
    except (ValueError, RecursionError, EventError, DamageError) as error:
        return str(error)
    return None
