"""Parquet tables of OpenDT as canonical rows."""

from collections.abc import Iterator, Sequence

from ingest.core.errors import InputError
from ingest.mapping import text_rows
from ingest.parsing import cell_conversion
from ingest.parsing.cell_conversion import NONE, ColumnMapping, Constants
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

PARQUET = text_rows.PARQUET


def typed_rows(
    source: Source, options: DatasetOptions, table: str, columns: Sequence[ColumnMapping],
    constants: Constants = NONE,
) -> Iterator[RowBatch]:  # fmt: skip
    """Yields the rows of a Parquet file, converted; `constants` have one value in all rows.

    Raises:
        InputError: it is no Parquet file, or lacks a column.
    """
    frame = text_rows.frame(source, options)
    missing = [column.source for column in columns if column.source not in frame.names]
    if missing:
        raise InputError(f"{source.shown}: no column {', '.join(missing)}")
    for block in frame.blocks:
        yield cell_conversion.from_texts(table, block, columns, constants)
