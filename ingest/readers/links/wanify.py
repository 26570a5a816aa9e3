"""WANify JSON: the throughput of all links between some regions at once, numbers written as text.

`dynamic<N>_20.json` is a run of 20 s in Mb/s, `snapshot<N>_1.json` the 1 s run before it in kbyte/s. There
are no time stamps; N is the only order. A row is one entry of `readings`; `source_row` counts them from 1.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import KBYTE_PER_S, MBPS, to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, document, text, whole
from ingest.parsing.reader import Reject, RowBatch, rejected_file
from ingest.parsing.source import Source

_TABLE = "link_samples"
_NAME = re.compile(r"(dynamic|snapshot)(\d{1,9})_(\d{1,6})\.json")
_COLUMNS = ("source_row", "src", "dst", "bandwidth_bps", "retransmits")
INTERVAL_S = 21.0
"""Assumed spacing of measurements: a snapshot of 1 s and a run of 20 s, back to back."""


class Wanify:
    """The data sets of WANify."""

    name = "wanify"
    version = 1
    by_name = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """True if the name has kind and order, and the document readings of a number of data centres."""
        return bool(_NAME.fullmatch(path.name)) and b'"numDCs"' in head and b'"readings"' in head

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields one batch: a row for each reading."""
        named = _NAME.fullmatch(source.path.name)
        if named is None:
            yield rejected_file(
                _TABLE, "path", source.name, "not called dynamic<N>_<s>.json or snapshot<N>_<s>.json"
            )
            return
        try:
            readings = document(source)["readings"]
            if not isinstance(readings, list):
                raise TypeError("readings are not a list")
        except (ValueError, KeyError, TypeError) as error:
            shown = source.head[:80].decode("utf-8", "replace")
            yield rejected_file(_TABLE, "readings", shown, f"not a WANify document: {error}")
            return
        yield _batch(readings, named[1], int(named[2]), int(named[3]), options)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        start, interval = options.start_or_default(), options.interval_s or INTERVAL_S
        return (
            f"wanify: no time stamps; measurement N is taken to begin {interval:g} s x N after "
            f"{start.isoformat()}, its snapshot first, the run right after it",
            f"wanify: {options.streams or 1} TCP stream a link",
        )


def _batch(readings: list[Any], kind: str, order: int, duration_s: int, options: DatasetOptions) -> RowBatch:
    start_ns = to_ns(options.start_or_default().timestamp())
    begins_ns = start_ns + to_ns(order * (options.interval_s or INTERVAL_S))
    if kind == "dynamic":
        begins_ns += to_ns(1)  # the snapshot before it takes one second
    rows, rejects = [], []
    for row, reading in enumerate(readings, 1):
        try:
            rows.append((row, *_reading(reading, kind)))
        except (ValueError, KeyError, TypeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            rejects.append(Reject(row, "readings", str(reading), reason))
    count = len(rows)
    row_numbers, src, dst, rate, retransmits = (
        (list(c) for c in zip(*rows, strict=True)) if rows else ([] for _ in range(5))
    )
    columns: dict[str, Any] = {
        "source_row": row_numbers,
        "ts": [begins_ns] * count,
        "src": src,
        "dst": dst,
        "bandwidth_bps": rate,
        "retransmits": retransmits,
        "streams": [options.streams or 1] * count,
        "kind": ["tcp"] * count,
        "duration_s": [float(duration_s)] * count,
    }
    return RowBatch(_TABLE, columns, len(readings), rejects)


def _reading(reading: dict[str, Any], kind: str) -> tuple[str, str, float, int | None]:
    """Source, destination, b/s received, retransmits."""
    ends = text(reading["srcRegion"]), text(reading["destRegion"])
    if kind == "dynamic":
        return *ends, amount(reading["received_mbps"]) * MBPS, None  # Mb/s
    rate_bps = amount(reading["received_Kbytes_per_second"]) * KBYTE_PER_S  # kbyte/s
    return *ends, rate_bps, whole(reading["num_retransmits"])
