"""Parquet files from outside, bounded by what they state about themselves before a row is read.

A column chunk can repeat one text of a megabyte, or one number, a million times in a few bytes. So rows,
cells and bytes after decoding are held to the limit of archives (`archive.MAX_RATIO`), by the sizes in the
footer and before the pages, the larger counts. What they do not state, the length of repeated texts, is
measured without repeating them. Batches are cut so that each holds at most `BATCH_BYTES` of text.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.core.errors import InputError
from ingest.parsing import parquet_pages
from ingest.parsing.archive import MAX_RATIO, RATIO_FLOOR_BYTES
from ingest.parsing.csv_blocks import LINE_LIMIT_BYTES
from ingest.parsing.parquet_pages import (
    BIT_PACKED,
    DELTA_BYTE_ARRAY,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE,
    RLE_DICTIONARY,
)
from ingest.parsing.source import Source

MAGIC = b"PAR1"
"""First bytes of a Parquet file."""
BATCH_ROWS = 1 << 16
BATCH_BYTES = 32 * 1024**2
BATCH_CELLS = 1 << 22
CELL_BYTES = 8
"""Bytes that a number is counted with."""
_REPEATED_BYTES = 256 * 1024**2
"""Most that a batch of texts may decode to that Arrow repeats, or that share beginnings."""
_DICTIONARY = {PLAIN_DICTIONARY, RLE_DICTIONARY}
_PLAIN_OR_DICTIONARY = {PLAIN, RLE, BIT_PACKED, *_DICTIONARY}
"""Encodings whose texts Arrow reads as a dictionary, without repeating them."""
_REPEATING = {*_DICTIONARY, DELTA_BYTE_ARRAY}
"""Encodings that state a text, or its beginning, once for many values."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column chunk: its column, values, the bytes of its pages before decoding, and their encodings."""

    column: int
    values: int
    size_bytes: int
    encodings: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Table:
    """An opened file and its column chunks."""

    file: pq.ParquetFile
    chunks: tuple[_Chunk, ...]


def schema(source: Source) -> pa.Schema:
    """Returns the columns with their types.

    Raises:
        InputError: it is no Parquet file, or decodes to more than it may.
    """
    with _opened(source) as table:
        return table.file.schema_arrow


def batches(source: Source, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows in their order, all columns or those named; texts may be dictionary arrays.

    Raises:
        InputError: it is no Parquet file, decodes to more than it may, or a row holds more than a line of a
            CSV may.
    """
    with _opened(source) as table:
        named = None if columns is None else {*columns}
        texts = _texts(table.file, named)
        if _bound_of_texts(table, texts) > _limit(source):
            _measure(source, table, texts)
        rows = _batch_rows(table, named)
        for batch in table.file.iter_batches(rows, columns=None if columns is None else list(columns)):
            yield from _cut(source, batch)


@contextmanager
def _opened(source: Source) -> Iterator[_Table]:
    try:
        with source.seekable() as stream:
            plain = pq.ParquetFile(stream)
            chunks = tuple(_chunks(plain.metadata, stream))
            _refuse_bomb(source, plain.metadata, chunks)
            file = pq.ParquetFile(stream, read_dictionary=_without_repeating(plain.metadata, chunks))
            yield _Table(file, chunks)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{source.shown}: not a readable Parquet file: {error}") from error


def _limit(source: Source) -> int:
    return max(RATIO_FLOOR_BYTES, MAX_RATIO * source.disk_bytes)


def _refuse_bomb(source: Source, footer: pq.FileMetaData, chunks: Sequence[_Chunk]) -> None:
    """Refuses a file whose footer and pages state too many rows, values or bytes.

    Raises:
        InputError.
    """
    width = [max(CELL_BYTES, footer.schema.column(at).length) for at in range(footer.num_columns)]
    content = sum(chunk.size_bytes for chunk in chunks)
    values = sum(chunk.values * width[chunk.column] for chunk in chunks)
    # Each row has its number, too; columns may hold fewer values than there are rows.
    rows = max(0, footer.num_rows) * CELL_BYTES * (footer.num_columns + 1)
    if max(content, values, rows) > _limit(source):
        raise _bomb(source, f"states {footer.num_rows:,} rows and {max(content, values, rows):,} bytes")


def _bomb(source: Source, what: str) -> InputError:
    return InputError(
        f"{source.shown}: {what} after decoding, more than {MAX_RATIO:,} times its "
        f"{source.disk_bytes:,} bytes and more than {RATIO_FLOOR_BYTES // 1024**2} MiB; refused as a bomb"
    )


def _chunks(footer: pq.FileMetaData, stream: BinaryIO) -> Iterator[_Chunk]:
    """The column chunks, by their pages.

    Raises:
        ValueError: the footer states a negative size, or there are no pages where it says.
    """
    for group in range(footer.num_row_groups):
        held = footer.row_group(group)
        for at in range(footer.num_columns):
            stated = held.column(at)
            length, start = stated.total_compressed_size, stated.data_page_offset
            if stated.has_dictionary_page and 0 < stated.dictionary_page_offset < start:
                start = stated.dictionary_page_offset
            if min(stated.num_values, stated.total_uncompressed_size, length, start) < 0:
                raise ValueError("the footer states a negative size")
            found = parquet_pages.pages(stream, start, length, stated.num_values)
            size = max(found.size_bytes, stated.total_uncompressed_size)
            yield _Chunk(at, stated.num_values, size, found.encodings)


def _without_repeating(footer: pq.FileMetaData, chunks: Sequence[_Chunk]) -> list[str]:
    """Paths of the text columns that Arrow can read as dictionaries in every row group."""
    texts = {
        at: footer.schema.column(at).path
        for at in range(footer.num_columns)
        if footer.schema.column(at).physical_type == "BYTE_ARRAY"
    }
    for chunk in chunks:
        if not chunk.encodings <= _PLAIN_OR_DICTIONARY:
            texts.pop(chunk.column, None)
    return list(texts.values())


def _wanted(path: str, columns: Collection[str] | None) -> bool:
    """True for a column of that name, and for a part of it; names may have dots themselves."""
    if columns is None or path in columns:
        return True
    parts = path.split(".")
    return any(".".join(parts[:count]) in columns for count in range(1, len(parts)))


def _texts(file: pq.ParquetFile, columns: Collection[str] | None) -> dict[int, str]:
    """Number and path of the text columns to read."""
    schema = file.metadata.schema
    named = {at: schema.column(at) for at in range(file.metadata.num_columns)}
    return {
        at: column.path
        for at, column in named.items()
        if column.physical_type == "BYTE_ARRAY" and _wanted(column.path, columns)
    }


def _bound_of_texts(table: _Table, texts: dict[int, str]) -> int:
    """Bytes that the texts cannot exceed: no value is longer than its column chunk before decoding."""
    return sum(chunk.values * chunk.size_bytes for chunk in table.chunks if chunk.column in texts)


def _measure(source: Source, table: _Table, texts: dict[int, str]) -> None:
    """Adds up the bytes of all texts without repeating any.

    Raises:
        InputError: they are more than the file may decode to.
    """
    decoded, rows = 0, _batch_rows(table, {*texts.values()})
    for batch in table.file.iter_batches(rows, columns=list(texts.values())):
        decoded += int(sum(_lengths(column).sum() for column in batch.columns if _is_text(column.type)))
        if decoded > _limit(source):
            raise _bomb(source, f"holds over {decoded:,} bytes of text")


def _batch_rows(table: _Table, columns: Collection[str] | None) -> int:
    """Rows to decode at a time."""
    footer = table.file.metadata
    wanted = {at for at in range(footer.num_columns) if _wanted(footer.schema.column(at).path, columns)}
    width = sum(max(CELL_BYTES, footer.schema.column(at).length) for at in wanted)
    rows = min(BATCH_ROWS, CELL_BYTES * BATCH_CELLS // max(CELL_BYTES, width))
    read_whole = {*_without_repeating(footer, table.chunks)}
    for chunk in table.chunks:
        text = footer.schema.column(chunk.column)
        repeats = text.physical_type == "BYTE_ARRAY" and text.path not in read_whole
        if chunk.column in wanted and repeats and chunk.encodings & _REPEATING:
            rows = min(rows, _REPEATED_BYTES // max(1, chunk.size_bytes))
    return int(max(1, rows))


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    )  # fmt: skip


def _lengths(values: pa.Array) -> NDArray[np.int64]:
    """Bytes of each text (rows,); a missing one has none."""
    if pa.types.is_dictionary(values.type):
        each = pc.binary_length(values.dictionary).cast(pa.int64())
        return np.asarray(each.take(values.indices).fill_null(0))
    return np.asarray(pc.binary_length(values).cast(pa.int64()).fill_null(0))


def _cut(source: Source, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of at most `BATCH_BYTES` of text."""
    length = np.zeros(len(batch), np.int64)
    for column in batch.columns:
        if _is_text(column.type):
            length += _lengths(column)
    if len(batch) and length.max() > LINE_LIMIT_BYTES:
        raise InputError(
            f"{source.shown}: a row longer than {LINE_LIMIT_BYTES // 1024**2} MiB; no table of measurements"
        )
    ends, start = np.cumsum(length), 0
    while start < len(batch):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BATCH_BYTES, side="right")))
        yield batch.slice(start, end - start)
        start = end
