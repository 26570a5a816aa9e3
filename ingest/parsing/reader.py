"""The contract of a reader, which turns files of one format into canonical rows and rejects.

A reader adds `source_row` and the columns of its table; `dataset` and `source_file` are added by the
ingest. Missing columns are null. Rules that hold for every table (finite, not negative, required values
present) are checked once for all readers in `ingest.lake.validate`.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Protocol

from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import Source


@dataclass(frozen=True, slots=True)
class Reject:
    """One row that is not stored: `row` as in `source_row`, the offending cell as text, and why."""

    row: int
    column: str
    raw: str
    reason: str


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Some rows of one canonical table.

    columns: canonical column name (and `source_row`) to a list or an Arrow array, all of one length.
    rejects: rows that are not among `columns`.
    rows_in: rows of the source that this batch accounts for, counted on the raw input.
    raw: text of the cells behind a column, where the reader has it; rejects of the common rules quote it.
    assumed: what had to be assumed for these rows and not for every file of the format, a sentence each.
    """

    table: str
    columns: Mapping[str, Any]
    rows_in: int
    rejects: Sequence[Reject] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


class Reader(Protocol):
    """Reads one format. `name` is stable; a change of `version` makes old files be read again.

    A reader with `by_name = True` takes facts from the name of the file; one with `text_only = True` reads no
    file that begins with a brace or a bracket, as JSON does, and is not asked about it. `settings` are the
    parts of dataset.toml that only some readers use: `table`, `columns`, `units`, `values`, `values.COLUMN`;
    what is stated there for a reader that does not name it is refused.
    """

    @property
    def name(self) -> str:
        """Stable name, as in dataset.toml and in the lake."""
        ...

    @property
    def version(self) -> int:
        """Raised with every change of what rows the reader makes."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Canonical tables it may fill."""
        ...

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if a file of this name that begins with `head` (some kilobytes) has this format."""
        ...

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields all rows of the source.

        Raises:
            InputError: the file is not what `can_read` took it for; nothing of it is stored.
        """
        ...

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what no file says and the reader assumes, a sentence each; kept in the lake."""
        ...


def identified(source: Source, reader: Reader) -> Source:
    """Returns the source with its identity in the lake.

    Content that is there already is a copy - but not for a reader with `by_name = True`, which takes facts
    from the file's name: two hosts may measure the same. There the name belongs to the identity.
    """
    if not getattr(reader, "by_name", False):
        return source
    return replace(source, sha256=hashlib.sha256(f"{source.sha256} {source.name}".encode()).hexdigest())


def rejected_file(table: str, column: str, raw: str, reason: str) -> RowBatch:
    """Returns the batch of a document that cannot be used: one row in, one rejected."""
    return RowBatch(table, {"source_row": []}, 1, (Reject(0, column, raw, reason),))
