"""SkyPilot's spot traces: `{"metadata": {"gap_seconds": s}, "data": [n, ...]}`, one file a zone.

The file's name is `<zone>_<gpu>_<GPUs of an instance>.json`, a folder bears the day (`aws-02-15-2023`). A
value is the number of instances that could be had. `source_row` is the position in `data`, from 1.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from ingest.core.units import to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import BOM, Source

_TABLE = "availability"
_START = re.compile(rb'\{\s*"metadata"\s*:\s*\{[^}]{0,400}"gap_seconds"')
_NAME = re.compile(r"(.+?)_([A-Za-z0-9-]+)_(\d{1,4})\.json")
_DAY = re.compile(r"(?:^|[^\d])(\d\d)-(\d\d)-(20\d\d)(?:$|[^\d])")


class SpotAvailability:
    """Spot instances that could be had in a zone."""

    name = "spot-availability"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the document begins with its step."""
        return bool(_START.match(head.removeprefix(BOM).lstrip()))

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each sample."""
        return from_document(source, _TABLE, lambda document: [_batch(document, source, options)])

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "spot-availability: samples begin at 00:00 UTC of the day in the folder's name, without one at "
            f"{options.start_or_default().isoformat()}",
            "spot-availability: found by trying to launch, so a value is a lower bound; GPUs are instances "
            "times the GPUs in the file's name",
        )


def _batch(document: dict[str, Any], source: Source, options: DatasetOptions) -> RowBatch:
    named = _NAME.fullmatch(source.path.name)
    domain, each = (named[1], int(named[3])) if named else (source.path.stem, 1)
    gap_s = amount(document["metadata"]["gap_seconds"])
    start_ns = to_ns(_day(source, options).timestamp())
    rows = RowBuilder(_TABLE, ("ts", "gpus_available"), domain=domain)
    for row, value in enumerate(document["data"], 1):
        rows.take(row, "data", value, _sample, start_ns, (row - 1) * gap_s, value, each)
    return rows.batch()


def _sample(start_ns: int, since_s: float, value: Any, each: int) -> tuple[int, int]:
    return whole(start_ns + to_ns(since_s)), whole(value) * each


def _day(source: Source, options: DatasetOptions) -> datetime:
    """The day in the nearest folder that bears one, month first."""
    for part in reversed(source.path.parts[:-1]):
        found = _DAY.search(part)
        if found:
            return datetime(int(found[3]), int(found[1]), int(found[2]), tzinfo=UTC)
    return options.start_or_default()
