"""Markdown with a section a date and tables of mean RTTs in ms, as IBM Cloud documents its regions.

A section begins with `## 9 Apr 2023`. In it, a table whose first cell speaks of latency in ms has the
destinations in its header and the source in the first cell of each line: between regions, and between the
zones of each region. A row of the lake is one filled cell (`source_row` = line of the file); blank cells are
no measurements. A week that stands in two files is a row of each: the same instant, so means are right.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePath

from ingest.core.units import MS, to_ns
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, text
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source
from ingest.parsing.text_lines import numbered

_WINDOW_S = 30 * 86_400.0
"""The figures are means over the 30 days that end with the date."""
_DATE = re.compile(r"##\s+(\d{1,2} \w{3} \d{4})\s*")
_TITLE = re.compile(r"latency\s*\(ms\)", re.IGNORECASE)
_RULE = re.compile(r"[\s|:-]+")
_BATCH = 50_000
_COLUMNS = ("ts", "src", "dst", "rtt_s")


class LatencyTables:
    """Dated tables of mean RTTs."""

    name = "latency-tables"
    version = 1
    text_only = True
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if there is a dated section, and in it a table of latencies in ms."""
        if b"##" not in head:
            return False
        lines = head.decode("utf-8", "replace").splitlines()
        dated = any(_DATE.fullmatch(line.strip()) for line in lines)
        return dated and any(_TITLE.search(cells[0]) for cells in map(_cells, lines) if cells)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each filled cell."""
        rows = RowBuilder("link_samples", _COLUMNS, kind="ping", duration_s=_WINDOW_S)
        date_ns: int | None = None
        sites: list[str] = []
        for line, content in numbered(source):
            if content.startswith("##") and not content.startswith("###"):
                date_ns, sites = _date_ns(content), []
                if date_ns is None:
                    rows.reject(line, "date", content, "not a date such as 9 Apr 2023")
            cells = _cells(content)
            if not cells:
                sites = []
            elif _TITLE.search(cells[0]):
                sites = cells[1:]
            elif sites and date_ns is not None and not _RULE.fullmatch(content):
                _take(rows, line, date_ns, sites, cells)
            if len(rows) >= _BATCH:
                yield rows.batch()
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "latency-tables: a figure is the mean of the 30 days up to the date of its section, and is dated "
            "to that day, 00:00 UTC; neighbouring weeks share most of their days",
        )


def _cells(line: str) -> list[str]:
    """Cells of a line of a table without bold marks; none if it is no such line."""
    line = line.strip()
    if not line.startswith("|"):
        return []
    return [cell.strip().strip("*").strip() for cell in line.strip("|").split("|")]


def _date_ns(heading: str) -> int | None:
    found = _DATE.fullmatch(heading)
    if found is None:
        return None
    try:
        return to_ns(datetime.strptime(found[1], "%d %b %Y").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def _take(rows: RowBuilder, line: int, date_ns: int, sites: list[str], cells: list[str]) -> None:
    """The filled cells of one line of a table."""
    if len(cells) - 1 > len(sites):
        rows.reject(line, "", " | ".join(cells), f"{len(cells) - 1} values for {len(sites)} destinations")
        return
    for dst, cell in zip(sites, cells[1:], strict=False):
        if cell:
            rows.take(line, dst, cell, _row, date_ns, cells[0], dst, cell)


def _row(date_ns: int, src: str, dst: str, cell: str) -> tuple[int, str, str, float]:
    return date_ns, text(src), text(dst), amount(cell) * MS  # ms
