"""Rows that wait to be made into Arrow columns: those of many small files, and rejects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.lake.schema import TABLES
from ingest.parsing.reader import Reject

_RAW_LENGTH = 1000
"""Letters of an offending cell that are kept, and of the reason."""


class RowLists:
    """Rows as Python lists, column by column, with the source of each run of rows."""

    def __init__(self) -> None:
        self.origins: list[tuple[int, int]] = []
        self._batches: list[Any] = []
        self.rows = 0

    def extend(self, index: int, columns: Any) -> None:
        """Append the rows of one batch."""
        count = len(columns["source_row"])
        self.origins.append((index, count))
        self._batches.append(columns)
        self.rows += count

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` batches."""
        self.rows -= sum(count for _, count in self.origins[length:])
        del self.origins[length:], self._batches[length:]

    def columns(self) -> dict[str, list[Any]]:
        """All batches joined; a column that a batch lacks is null there."""
        names = {name for batch in self._batches for name in batch}
        joined: dict[str, list[Any]] = {name: [] for name in sorted(names)}
        for (_, count), batch in zip(self.origins, self._batches, strict=True):
            for name, values in joined.items():
                values.extend(batch.get(name) or [None] * count)
        return joined

    def indices(self) -> np.ndarray:
        """Index of the source of every row."""
        index, count = np.array(self.origins, np.int64).T
        return np.repeat(index.astype(np.int32), count)


class RejectList:
    """Rejected rows waiting to be written."""

    def __init__(self) -> None:
        self._held: list[tuple[int, Reject]] = []

    @property
    def rows(self) -> int:
        """Number of waiting rejects."""
        return len(self._held)

    def add(self, index: int, reject: Reject) -> None:
        """Keep one reject of the source with this index."""
        texts = _storable(reject.column), _storable(reject.raw), _storable(reject.reason)
        self._held.append((index, Reject(reject.row, *texts)))

    def truncate(self, length: int) -> None:
        """Forget all but the first `length`."""
        del self._held[length:]

    def table(self, dataset: str, files: Sequence[str], ids: Sequence[str]) -> pa.Table:
        """The rejects in the canonical schema; file and `ingest_id` of each source are given by its index."""
        columns = {
            "dataset": [dataset] * self.rows,
            "source_file": [files[index] for index, _ in self._held],
            "source_row": [reject.row for _, reject in self._held],
            "column": [reject.column for _, reject in self._held],
            "raw": [reject.raw for _, reject in self._held],
            "reason": [reject.reason for _, reject in self._held],
            "ingest_id": [ids[index] for index, _ in self._held],
        }
        return pa.table(columns, schema=TABLES["rejects"])


def _storable(text: str) -> str:
    """The beginning of a text; lone surrogates, which no file can hold, become question marks."""
    return text[:_RAW_LENGTH].encode("utf-8", "replace").decode()
