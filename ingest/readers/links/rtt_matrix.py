"""CSV matrix of RTTs in ms: the header names the destinations, the first cell of a row the source.

A row of the lake is one filled cell (`source_row` = line of the matrix); blank cells - the diagonal, unknown
pairs - are no measurements. One value a pair: a table, not a series.
"""

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np
import pyarrow as pa

from ingest.parsing import cell_conversion as cells, csv_blocks as csvfile
from ingest.parsing.csv_blocks import Texts
from ingest.parsing.dataset import DatasetOptions
from ingest.core.errors import InputError
from ingest.parsing.reader import Batch
from ingest.lake.schema import TS
from ingest.parsing.source import Source
from ingest.core.units import MS, to_ns

_TABLE = "link_samples"
_LEAST = 2
"""Destinations that make a matrix."""


class RttMatrix:
    """A table of round-trip times, as cloud providers publish them."""

    name = "rtt-matrix"
    version = 1
    tables = (_TABLE,)

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """The corner says `Source`, and the first row is named like a column and holds numbers or blanks."""
        names, record = csvfile.header(head), csvfile.first_record(head)
        if len(names) <= _LEAST or names[0].lower() != "source" or not record:
            return False
        return record[0].strip() in names[1:] and all(_number_or_blank(cell) for cell in record[1:])

    def read(self, source: Source, options: DatasetOptions) -> Iterator[Batch]:
        """A row for each filled cell."""
        names = csvfile.header(source.head)
        if len(set(names)) != len(names) or len(names) <= _LEAST:
            raise InputError(f"{source.shown}: the header must name each destination once")
        columns = [cells.text("src", "src"), cells.text("dst", "dst"), cells.number("rtt_s", "rtt", MS)]  # ms
        constants = {"kind": "ping", "ts": pa.scalar(to_ns(options.start_or_default().timestamp()), TS)}
        for block in csvfile.blocks(source):
            yield cells.from_texts(_TABLE, _long(csvfile.texts(block, names), names), columns, constants)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """The table bears no date."""
        return (f"rtt-matrix: not dated; taken to be of {options.start_or_default().isoformat()}",)


def _number_or_blank(cell: str) -> bool:
    try:
        float(cell.strip() or 0)
    except ValueError:
        return False
    return True


def _long(texts: Texts, names: list[str]) -> Texts:
    """The matrix as one row for each filled cell, line by line."""
    count, destinations = len(texts.rows), names[1:]
    line = np.repeat(np.arange(count), len(destinations))
    grid = pa.concat_arrays([texts.columns[name] for name in destinations])
    by_line = np.arange(len(grid)).reshape(len(destinations), count).T.ravel()
    values = grid.take(pa.array(by_line))
    filled = values.is_valid()
    made = {
        "src": texts.columns[names[0]].take(pa.array(line)).filter(filled),
        "dst": pa.array(destinations * count, pa.string()).filter(filled),
        "rtt": values.filter(filled),
    }
    rows = texts.rows.take(pa.array(line)).filter(filled)
    return Texts(made, rows, len(rows) + len(texts.rejects), texts.rejects)
