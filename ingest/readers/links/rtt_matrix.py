"""CSV matrix of RTTs in ms: the header names the destinations, the first cell of a row the source.

A row of the lake is one filled cell (`source_row` = line of the matrix); blank cells - the diagonal, unknown
pairs - are no measurements. One value a pair: a table, not a series.
"""

from collections.abc import Iterator
from pathlib import PurePath

import pyarrow as pa

from ingest.core.errors import InputError
from ingest.core.units import MS, to_ns
from ingest.lake.schema import TS
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source
from ingest.parsing.wide_table import unpivoted

_TABLE = "link_samples"
_LEAST = 2
"""Destinations that make a matrix."""


class RttMatrix:
    """A table of round-trip times, as cloud providers publish them."""

    name = "rtt-matrix"
    version = 1
    text_only = True
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """True if the corner is `Source` and the first row, named as a column, has numbers or blanks."""
        names, record = csv_blocks.header(head), csv_blocks.first_record(head)
        if len(names) <= _LEAST or names[0].lower() != "source" or not record:
            return False
        return record[0].strip() in names[1:] and all(_number_or_blank(cell) for cell in record[1:])

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields a row for each filled cell."""
        names = csv_blocks.header(source.head)
        if len(set(names)) != len(names) or len(names) <= _LEAST:
            raise InputError(f"{source.shown}: the header must name each destination once")
        columns = [
            cell_conversion.text("src", "src"),
            cell_conversion.text("dst", "dst"),
            cell_conversion.number("rtt_s", "rtt", MS),
        ]  # ms
        constants = {"kind": "ping", "ts": pa.scalar(to_ns(options.start_or_default().timestamp()), TS)}
        for block in csv_blocks.blocks(source):
            long = unpivoted(csv_blocks.texts(block, names), names, ("src", "dst", "rtt"))
            yield cell_conversion.from_texts(_TABLE, long, columns, constants)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return (f"rtt-matrix: not dated; taken to be of {options.start_or_default().isoformat()}",)


def _number_or_blank(cell: str) -> bool:
    try:
        float(cell.strip() or 0)
    except ValueError:
        return False
    return True
