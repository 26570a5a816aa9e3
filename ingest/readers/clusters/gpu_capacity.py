"""JSON of GPUs over time: a list of `{"Time": seconds, "GPUs": number}`.

Times count from a start that the file does not state; their steps are irregular. The file's name is the
domain.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import BOM, Source

_TABLE = "availability"
_START = re.compile(rb'\[\s*\{\s*"Time"\s*:\s*[^,}]{1,40},\s*"GPUs"\s*:')


class GpuCapacity:
    """GPUs that could be had."""

    name = "gpu-capacity"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the document begins with a time and a number of GPUs."""
        return bool(_START.match(head.removeprefix(BOM).lstrip()))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each entry."""
        return from_document(source, _TABLE, lambda document: [_batch(document, source, options)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"gpu-capacity: seconds are taken to count from {options.start_or_default().isoformat()}; the "
            "domain is the file's name",
        )


def _batch(document: list[Any], source: Source, options: DatasetOptions) -> RowBatch:
    start_ns = to_ns(options.start_or_default().timestamp())
    rows = RowBuilder(_TABLE, ("ts", "gpus_available"), domain=source.path.stem)
    for row, entry in enumerate(document, 1):
        rows.take(row, "entry", entry, _entry, entry, start_ns)
    return rows.batch()


def _entry(entry: dict[str, Any], start_ns: int) -> tuple[int, int]:
    return whole(start_ns + to_ns(amount(entry["Time"]))), whole(entry["GPUs"])
