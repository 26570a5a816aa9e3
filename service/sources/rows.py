"""Observations from the lines of a followed file: JSON as clients push it, or a table with a header.

A table has the columns of an observation (`kind`, `epoch_ns`, `src`, `dst`, `bandwidth_bps`, `latency_s`,
...) or of link samples as `twin ingest` takes them (`ts`, `src`, `dst`, `bandwidth_bps`, `rtt_s`); without
`kind` a row is a link sample. Other columns are passed over by the session.
"""

import csv
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from ingest.core import safe_json
from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S
from service.sources.feeder import SourceBatch
from service.sources.tail import Chunk, FilePosition, FileTail

TABLES, OBJECTS = (".csv", ".tsv"), (".jsonl", ".ndjson")
POLL_S = 0.5
_WHOLE = frozenset({"epoch_ns", "step", "gpus", "order", "memory_peak_bytes"})
_NUMBERS = frozenset({"bandwidth_bps", "latency_s", "seconds", "slowdown", "pause_s"})
_SAID = frozenset({"kind", "src", "dst", "domain", "state", "reason", "job"})


class FollowedFile:
    """A file of telemetry as a source of the service.

    Raises:
        UsageError: its name does not say what is in it.
    """

    def __init__(self, path: Path, every_s: float = POLL_S) -> None:
        if path.suffix not in (*TABLES, *OBJECTS):
            raise UsageError(f"--follow {path}: a name in {', '.join((*TABLES, *OBJECTS))} is needed")
        shown = str(path.resolve())
        self.name = f"follow/{path.name}/{sha256(shown.encode()).hexdigest()[:12]}"
        self.every_s, self.problem = every_s, ""
        self._path, self._tail = path, FileTail(path)

    def go_on(self, key: str | None, since_ns: int, now_ns: Callable[[], int]) -> None:
        """Goes on behind the batch of this key; None: with what was written since the run began."""
        self._tail = FileTail(self._path, None if key is None else FilePosition.parsed(key), since_ns)

    def fetch(self) -> SourceBatch | None:
        """Returns the observations of the next lines; None: there are none now.

        Raises:
            InputError: the file cannot be read now.
        """
        chunk = self._tail.read()
        self.problem = self._tail.lost
        return None if chunk is None else SourceBatch(chunk.position.text(), items(chunk, self._path.suffix))

    def close(self) -> None:
        """Closes the file."""
        self._tail.close()


def items(chunk: Chunk, suffix: str) -> list[Any]:
    """Returns an observation a line, None for a line that is none; `suffix` is that of the file."""
    if suffix in OBJECTS:
        return [_parsed(line) for line in chunk.lines if line.strip()]
    split = "\t" if suffix == ".tsv" else ","
    (header,) = _cells([chunk.header.removeprefix(b"\xef\xbb\xbf")], split)
    rows = _cells(chunk.lines[1:] if chunk.at_start else chunk.lines, split)
    names = [name.strip() for name in header]
    return [_observation(dict(zip(names, row, strict=False))) for row in rows if any(row)]


def _parsed(line: bytes) -> Any:
    try:
        return safe_json.parsed(line)
    except ValueError:
        return None  # no object: refused with its number


def _cells(lines: list[bytes], split: str) -> list[list[str]]:
    found = []
    for line in lines:
        try:
            found += list(csv.reader([line.decode("utf-8", "replace")], delimiter=split)) or [[]]
        except csv.Error:
            found.append(["?"])  # no row of the table: refused for what it lacks
    return found


def _observation(row: dict[str, str]) -> dict[str, Any]:
    seen: dict[str, Any] = {"kind": "link"}
    for name, text in row.items():
        cell = text.strip()
        if not cell:
            continue
        if name == "ts":
            seen["epoch_ns"] = _converted(cell, _instant_ns)
        elif name == "rtt_s":
            seen["latency_s"] = _converted(cell, lambda text: float(text) / 2)  # one way, of a round trip
        elif name in _WHOLE or name in _NUMBERS:
            seen[name] = _converted(cell, int if name in _WHOLE else float)
        elif name in _SAID and (name != "kind" or cell in ("link", "step", "domain")):
            seen[name] = cell  # `kind` of a link sample of `twin ingest` is its protocol
    return seen


def _converted(cell: str, make: Callable[[str], int | float]) -> int | float | str:
    """Returns the number, or the text as it is: the session refuses it and says why."""
    try:
        return make(cell)
    except (ValueError, OverflowError):
        return cell


def _instant_ns(text: str) -> int:
    at = datetime.fromisoformat(text)
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1_000
