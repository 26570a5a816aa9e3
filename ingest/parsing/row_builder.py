"""Rows that a reader finds one by one, collected in a batch; those at fault become rejects."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ingest.lake.schema import TABLES, TS
from ingest.parsing.archive import SUFFIXES
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import document
from ingest.parsing.reader import Reject, RowBatch, rejected_file
from ingest.parsing.source import Source

FAULTS = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)
"""Exceptions of plain code for a document of another form."""


class RowBuilder:
    """Rows of one table: canonical columns in a fixed order, and one value everywhere for some others.

    Raises:
        ValueError: one of those values does not fit its column.
    """

    def __init__(self, table: str, names: Sequence[str], **constants: Any):
        self.table, self._names = table, ("source_row", *names)
        self._kinds = tuple(_KINDS[TABLES[table].field(name).type] for name in names)
        self._constants = {name: value for name, value in constants.items() if value is not None}
        for name, value in self._constants.items():
            if not _fits(value, _KINDS[TABLES[table].field(name).type]):
                raise ValueError(f"{value!r} as {name}")
        self._rows: list[tuple[Any, ...]] = []
        self._rejects: list[Reject] = []

    def __len__(self) -> int:
        return len(self._rows) + len(self._rejects)

    def add(self, row: int, *values: Any) -> None:
        """Keep one row: `source_row`, then the values in the order of the names.

        A value that its column cannot hold makes it a reject.
        """
        for at, (value, kind) in enumerate(zip(values, self._kinds, strict=True)):
            if value is not None and not _fits(value, kind):
                self.reject(row, self._names[at + 1], value, f"not {kind.said}")
                return
        self._rows.append((row, *values))

    def reject(self, row: int, column: str, raw: Any, reason: str | Exception) -> None:
        """Keep what was wrong with one row."""
        self._rejects.append(Reject(row, column, raw if isinstance(raw, str) else repr(raw), said(reason)))

    def take(self, row: int, column: str, raw: Any, make: Callable[..., Sequence[Any]], *given: Any) -> None:
        """Keep the row that `make` gives for what is `given`, or reject it for what `make` raises."""
        try:
            self.add(row, *make(*given))
        except FAULTS as error:
            self.reject(row, column, raw, error)

    def batch(self) -> RowBatch:
        """All rows so far; the next batch begins empty."""
        rows, rejects = self._rows, tuple(self._rejects)
        self._rows, self._rejects = [], []
        columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(self._names)}
        columns.update({name: [value] * len(rows) for name, value in self._constants.items()})
        return RowBatch(self.table, columns, len(rows) + len(rejects), rejects)


def said(reason: str | Exception) -> str:
    """A reason in words."""
    return f"no {reason}" if isinstance(reason, KeyError) else str(reason)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Type of a column."""

    type: type
    said: str


_TEXT = _Kind(str, "a text that can be stored")
_WHOLE = _Kind(int, "a whole number of 64 bits")
_REAL = _Kind(float, "a number")
_KINDS = {pa.string(): _TEXT, pa.int32(): _WHOLE, pa.int64(): _WHOLE, TS: _WHOLE, pa.float64(): _REAL}


def _fits(value: Any, kind: _Kind) -> bool:
    """True if a column of this kind can hold the value; its size is checked later, with all rules."""
    if kind is _TEXT:
        return isinstance(value, str) and (value.isascii() or _storable(value))
    if type(value) is int:
        return -(2**63) <= value < 2**63
    return kind is _REAL and isinstance(value, float)


def _storable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def from_document(
    source: Source, table: str, make: Callable[[Any], Iterable[RowBatch]]
) -> Iterator[RowBatch]:
    """The batches that `make` gives for a JSON document; one reject if it is not what it should be."""
    try:
        batches = list(make(document(source)))
    except FAULTS as error:
        shown = source.head[:80].decode("utf-8", "replace")
        batches = [rejected_file(table, "document", shown, f"not a complete document: {said(error)}")]
    yield from batches


def folder(source: Source, options: DatasetOptions, up: int = 1) -> str | None:
    """The folder `up` levels above the file; the outermost is the data set, archives do not count."""
    inside = [part for part in source.path.parts[:-1] if not part.lower().endswith(SUFFIXES)]
    folders = [options.name, *inside]
    return folders[-up] if up <= len(folders) else None
