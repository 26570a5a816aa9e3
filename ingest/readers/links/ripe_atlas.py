"""RIPE Atlas ping results: the JSON array of the API, or one result a line (`format=txt`).

A row is one result: mean RTT of its packets in ms (`avg`, -1 without an answer), loss from `sent` and `rcvd`.
The near end is `probe-<id>`, the far end the name that was measured, else its address. `source_row` is the
position in the array or the line.
"""

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ingest.core.units import MS, NS_PER_S
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder, from_document
from ingest.parsing.source import BOM, Source
from ingest.parsing.text_lines import numbered

_COLUMNS = ("ts", "src", "dst", "rtt_s", "loss")
_BATCH = 50_000
_LAST_S = 2**33
"""Seconds since 1970 that still fit the clock."""

Row = tuple[int, str, str, float | None, float]


class RipeAtlas:
    """Ping results of RIPE Atlas."""

    name = "ripe-atlas"
    version = 1
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if it is JSON with a probe, a measurement and packets received."""
        start = head.removeprefix(BOM).lstrip()
        return start[:1] in (b"[", b"{") and all(
            key in head for key in (b'"prb_id"', b'"msm_id"', b'"rcvd"', b'"timestamp"')
        )

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each result."""
        if source.head.removeprefix(BOM).lstrip().startswith(b"["):
            yield from from_document(source, "link_samples", _array)
            return
        rows = _rows()
        for line, content in numbered(source):
            rows.take(line, "result", content, _line, content)
            if len(rows) >= _BATCH:
                yield rows.batch()
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ("ripe-atlas: the near end is probe-<id>; the RTT is the mean of the packets that came back",)


def _rows() -> RowBuilder:
    return RowBuilder("link_samples", _COLUMNS, kind="ping")


def _array(results: Any) -> list[RowBatch]:
    rows = _rows()
    for row, result in enumerate(results, 1):
        rows.take(row, "result", result, _result, result)
    return [rows.batch()]


def _line(content: str) -> Row:
    return _result(json.loads(content))


def _result(result: dict[str, Any]) -> Row:
    if result.get("type", "ping") != "ping":
        raise ValueError(f"a {result['type']} result, not a ping")
    sent, back = whole(result["sent"]), whole(result["rcvd"])
    if sent < 1 or not 0 <= back <= sent:
        raise ValueError(f"{back} answers to {sent} packets")
    rtt_s = amount(result["avg"]) * MS if back else None  # ms
    dst = result.get("dst_name") or result.get("dst_addr")
    src = f"probe-{whole(result['prb_id'])}"
    return whole(result["timestamp"], _LAST_S) * NS_PER_S, src, text(dst), rtt_s, 1 - back / sent
