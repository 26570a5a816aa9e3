"""Reader of the CSV files of a fictitious speed test."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePath
from typing import Any

import twin


def parsed(line: str) -> tuple[int, str, str, float]:
    """Time in ns, source, destination and bit/s of one line."""
    stamp, src, dst, megabits = line.split(";")
    return int(datetime.fromisoformat(stamp).timestamp()) * 10**9, src, dst, float(megabits) * 1e6


class MegaTest:
    """Lines such as `2026-03-01T00:00:00Z;paris;berlin;812.4` with megabits per second."""

    name = "megatest"
    version = 1
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """True for files that begin as the tool begins them."""
        return head.startswith(b"#megatest")

    def read(self, source: twin.Source, options: Any) -> Iterator[twin.RowBatch]:
        """One batch: a row a line; a line that `parsed` cannot read becomes a reject with its reason."""
        rows = twin.RowBuilder("link_samples", ("ts", "src", "dst", "bandwidth_bps"))
        for number, line in enumerate(source.data().decode().splitlines()[1:], 2):
            rows.take(number, "line", line, parsed, line)
        yield rows.batch()

    def assumptions(self, options: Any) -> tuple[str, ...]:
        """What the files do not say; kept in the lake with the rows."""
        return ("megatest: one TCP connection a sample",)
