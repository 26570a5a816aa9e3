"""Text tables of `dcgmi dmon` and `nvidia-smi dmon`: a header of short names, then a line a GPU and
interval.

`dcgmi dmon -e ...` begins its header with `#Entity`, a line with GPUs with `GPU 0` (or the number alone);
`nvidia-smi dmon` with `# gpu` or, with `-o DT`, `#Date Time gpu`. Headers are repeated. Without date and
time, lines of one GPU are `interval_s` (1 s, the default of both tools) apart from the start of the data
set. Definitions: NVIDIA, DCGM field identifiers; nvidia-smi manual, section device monitoring.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePath
from typing import Any
from zoneinfo import ZoneInfo

from ingest.core.units import MIB, to_ns
from ingest.parsing import text_lines
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.json_values import amount, whole
from ingest.parsing.reader import RowBatch
from ingest.parsing.row_builder import RowBuilder
from ingest.parsing.source import Source

INTERVAL_S = 1.0
"""Assumed spacing of lines that bear no time."""
_FIELDS: dict[str, tuple[str, float]] = {
    "power": ("power_w", 1.0),
    "pwr": ("power_w", 1.0),
    "tmptr": ("temp_c", 1.0),
    "gtemp": ("temp_c", 1.0),
    "gputl": ("util", 0.01),  # per cent
    "sm": ("util", 0.01),  # per cent: NVML's utilisation
    "smclk": ("sm_clock_mhz", 1.0),
    "pclk": ("sm_clock_mhz", 1.0),
    "fbusd": ("mem_used_bytes", MIB),
    "fb": ("mem_used_bytes", MIB),
    "fbttl": ("mem_total_bytes", MIB),
    "smact": ("sm_active", 1.0),
    "tenso": ("tensor_active", 1.0),
    "drama": ("dram_active", 1.0),
    "pcitx": ("pcie_tx_bytes_s", 1.0),
    "pcirx": ("pcie_rx_bytes_s", 1.0),
    "nvltx": ("nvlink_tx_bytes_s", 1.0),
    "nvlrx": ("nvlink_rx_bytes_s", 1.0),
    "totec": ("energy_j", 1e-3),  # mJ since the driver was loaded
}
"""Short name, lower case: canonical column and factor to its unit."""
_COLUMNS = tuple(dict.fromkeys(column for column, _ in _FIELDS.values()))
_BYTES = ("mem_used_bytes", "mem_total_bytes")
_HEADER = re.compile(r"#\s*(?:entity\b|gpu\b|date\s+time\s+gpu\b).*", re.IGNORECASE)
_START = re.compile(rb"^#\s*(?:entity\b|gpu\b|date\s+time\s+gpu\b)", re.IGNORECASE | re.MULTILINE)
_ABSENT = ("-", "N/A")
_FLUSH = 1 << 15


class Dmon:
    """GPUs as dmon prints them."""

    name = "dmon"
    version = 1
    by_name = True
    text_only = True
    tables = ("gpu_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if a line at the beginning is a header of dmon with a known column."""
        found = _START.search(head)
        if found is None:
            return False
        names = head[found.end() :].partition(b"\n")[0].decode("utf-8", "replace").lower().split()
        return any(name in _FIELDS for name in names)

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each line of a GPU."""
        rows = RowBuilder(
            "gpu_samples", ("ts", "gpu", *_COLUMNS), host=source.path.stem, gpu_model=options.gpu_model
        )
        lines = _Lines(options)
        for line, content in text_lines.numbered(source):
            if content.startswith("#") or content.split()[0].lower() in ("id", "idx"):
                lines.header(content)
            else:
                rows.take(line, "line", content, lines.row, content.split())
            if len(rows) >= _FLUSH:
                yield rows.batch()
        yield rows.batch()

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            "dmon: the host is the file's name; lines without a time are "
            f"{options.interval_s or INTERVAL_S:g} s apart from {options.start_or_default().isoformat()}",
        )


class _Lines:
    """State of a file: the header in force, and how many lines each GPU had."""

    def __init__(self, options: DatasetOptions):
        self._start_ns = to_ns(options.start_or_default().timestamp())
        self._step_ns = to_ns(options.interval_s or INTERVAL_S)
        self._zone = ZoneInfo(options.timezone)
        self._names: list[str] = []
        self._dated = False
        self._count: Counter[str] = Counter()

    def header(self, line: str) -> None:
        """Takes the names of a header; the line of units below it has none."""
        if _HEADER.fullmatch(line):
            names = line.lstrip("# ").lower().split()
            self._dated = names[0] == "date"
            self._names = names[3:] if self._dated else names[1:]

    def row(self, cells: list[str]) -> tuple[Any, ...]:
        """The row of a line."""
        if not self._names:
            raise ValueError("a line before the header")
        day, cells = (cells[:2], cells[2:]) if self._dated else ([], cells)
        if cells[0].upper() == "GPU":
            cells = cells[1:]
        gpu = str(whole(cells[0]))
        if len(cells) != len(self._names) + 1:
            raise ValueError(f"expected {len(self._names) + 1} cells, found {len(cells)}")
        values: dict[str, float] = {}
        for name, cell in zip(self._names, cells[1:], strict=True):
            if name in _FIELDS and cell not in _ABSENT:
                column, factor = _FIELDS[name]
                value = amount(cell) * factor
                values[column] = round(value) if column in _BYTES else value
        ts_ns = self._instant(day) if day else self._start_ns + self._count[gpu] * self._step_ns
        self._count[gpu] += 1
        return ts_ns, gpu, *(values.get(column) for column in _COLUMNS)

    def _instant(self, day: list[str]) -> int:
        moment = datetime.strptime(" ".join(day), "%Y%m%d %H:%M:%S")
        return to_ns(moment.replace(tzinfo=self._zone).timestamp())
