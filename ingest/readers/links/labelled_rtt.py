"""CSV `epoch;rtt;cp` of one RIPE Atlas probe: RTT in ms to one target, change points marked by a person.

The file is named after the probe. `epoch` is a UTC time as text, either `2016-11-19 23:57:45` or
`14/10/2016 21:17`, day first. An RTT below 0 is a failure code whose meaning is not documented: such rows are
rejected, with the code. The mark `cp` is an opinion about the series and is not kept.
"""

from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.core.units import MS
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.csv_blocks import Texts
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

TARGET = "atlas-1010"
"""The target of RIPE Atlas's built-in measurement 1010, which the files leave out."""
_DELIMITER = ";"
_NAMES = ["epoch", "rtt", "cp"]
_DAY_FIRST = r"^(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d)(:\d\d)?$"
_FAILED = "a failure code, no RTT"


def _answered(value: pa.Array) -> pa.Array:
    made = value.cast(pa.float64())
    if pc.any(pc.less(made, 0)).as_py():
        raise pa.ArrowInvalid("some pings failed")
    return pc.multiply(made, MS)


def _one(cell: str) -> float:
    value = float(cell) if cell.isascii() and "_" not in cell else float("nan")
    if not value >= 0:
        raise ValueError(cell)
    return value * MS


_RTT = cell_conversion.ColumnMapping(
    "rtt_s", "rtt", pa.string(), _answered, _one, pa.float64(), f"{_FAILED}, or not a number"
)


class LabelledRtt:
    """RTT series with change points that a person marked."""

    name = "labelled-rtt"
    version = 1
    text_only = True
    by_name = True
    tables = ("link_samples",)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True if the header is `epoch;rtt;cp`."""
        return csv_blocks.header(head, _DELIMITER) == _NAMES

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each line."""
        if not self.can_read(source.path, source.head):
            raise InputError(f"{source.shown}: the header must be {_DELIMITER.join(_NAMES)}")
        columns = [cell_conversion.instant("ts", "epoch"), _RTT]
        constants = {"src": f"probe-{source.path.stem}", "dst": TARGET, "kind": options.kind or "ping"}
        yield from csv_blocks.side_by_side(
            source,
            lambda block: cell_conversion.from_texts(
                "link_samples", _year_first(csv_blocks.texts(block, _NAMES)), columns, constants
            ),
            _DELIMITER,
        )

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (
            f"labelled-rtt: the file's name is the probe, the target is called {TARGET}; times are UTC, "
            "dates with slashes have the day first",
            "labelled-rtt: an RTT below 0 is a failure code of unknown meaning and rejected",
        )


def _year_first(texts: Texts) -> Texts:
    made = texts.columns | {
        "epoch": pc.replace_substring_regex(texts.columns["epoch"], _DAY_FIRST, r"\3-\2-\1 \4\5")
    }
    return Texts(made, texts.rows, texts.rows_in, texts.rejects)
