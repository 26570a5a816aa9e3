"""One-way delay as `owping` and `owstats` print it: a block of statistics for each direction.

`--- owping statistics from [A]:port to [B]:port ---`, then `first:` (the time of the first packet), `N
sent, M lost (...)`, and `one-way delay min/median/max = a/b/c ms, (err=...)`. A row is one block: the
median delay as `one_way_s`, never a round trip, and the loss. Definition: perfSONAR, owping(1).
`source_row` is the line at which a block begins.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePath
from typing import Any
from zoneinfo import ZoneInfo

from ingest.core.units import MS, US, to_ns
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source

_ENDS = re.compile(r"--- owping statistics from \[?([^\]\s]+)\]?(?::\S+)? to \[?([^\]\s]+)\]?(?::\S+)? ---")
_FIRST = re.compile(r"first:\s+(\S+)")
_SENT = re.compile(r"(\d{1,12}) sent, (\d{1,12}) lost")
_DELAY = re.compile(r"one-way delay min/median/max = ([^/\s]+)/([^/\s]+)/([^/\s]+) (ns|us|ms|s)\b")
_UNITS = {"ns": 1e-9, "us": US, "ms": MS, "s": 1.0}
_COLUMNS = ("ts", "src", "dst", "one_way_s", "loss")


class Owamp:
    """Statistics of owping."""

    name = "owamp"
    version = 1
    text_only = True
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the beginning has a block of statistics."""
        return b"--- owping statistics from " in head

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each direction."""
        rows = RowBuilder("link_samples", _COLUMNS, kind="ping")
        zone, begun, block = ZoneInfo(options.timezone), 0, list[str]()
        for line, content in text_lines.numbered(source):
            if content.startswith("--- owping statistics"):
                if block:
                    rows.take(begun, "block", block[0], _row, block, zone)
                begun, block = line, [content]
            elif block:
                block.append(content)
        if block:
            rows.take(begun, "block", block[0], _row, block, zone)
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (f"owamp: the delay is the median of a block; times are {options.timezone}",)


def _row(block: list[str], zone: ZoneInfo) -> tuple[Any, ...]:
    ends, joined = _ENDS.fullmatch(block[0]), "\n".join(block)
    first, sent, delay = (pattern.search(joined) for pattern in (_FIRST, _SENT, _DELAY))
    if ends is None or first is None or sent is None:
        raise ValueError("a block without its ends, its first packet or its count")
    count, lost = int(sent[1]), int(sent[2])
    if not 0 <= lost <= count or not count:
        raise ValueError(f"{lost} of {count} packets lost")
    moment = datetime.fromisoformat(first[1])
    ts_ns = to_ns((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp())
    one_way_s = None if delay is None or lost == count else amount(delay[2]) * _UNITS[delay[4]]
    return ts_ns, text(ends[1]), text(ends[2]), one_way_s, lost / count
