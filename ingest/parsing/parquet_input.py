"""Parquet files from outside, bounded by what they state about themselves before a row is read.

A column chunk can repeat one text of a megabyte, or one number, a million times in a few bytes. So rows,
cells and bytes after decoding are held to the limit of archives (`archive.MAX_RATIO`), by the sizes in the
footer; what the footer does not state, the length of repeated texts, is measured without repeating them.
Batches are cut so that each holds at most `BATCH_BYTES` of text.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ingest.core.errors import InputError
from ingest.parsing.archive import MAX_RATIO, RATIO_FLOOR_BYTES
from ingest.parsing.csv_blocks import LINE_LIMIT_BYTES
from ingest.parsing.source import Source

MAGIC = b"PAR1"
"""First bytes of a Parquet file."""
BATCH_ROWS = 1 << 16
BATCH_BYTES = 32 * 1024**2
BATCH_CELLS = 1 << 22
CELL_BYTES = 8
"""Bytes that a number is counted with."""
_PREFIX_BYTES = 256 * 1024**2
"""Most that a batch of texts that share prefixes may decode to."""
_PREFIXED = "DELTA_BYTE_ARRAY"
_PLAIN_OR_DICTIONARY = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings whose texts Arrow reads as a dictionary, without repeating them."""


def schema(source: Source) -> pa.Schema:
    """Returns the columns with their types.

    Raises:
        InputError: it is no Parquet file, or decodes to more than it may.
    """
    with _opened(source) as file:
        return file.schema_arrow


def batches(source: Source, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the rows in their order, all columns or those named; texts may be dictionary arrays.

    Raises:
        InputError: it is no Parquet file, decodes to more than it may, or a row holds more than a line of a
            CSV may.
    """
    with _opened(source) as file:
        texts = _texts(file, columns)
        if _stated_bound(file, texts) > _limit(source):
            _measure(source, file, texts)
        rows = _batch_rows(file, columns)
        for batch in file.iter_batches(rows, columns=None if columns is None else list(columns)):
            yield from _cut(source, batch)


@contextmanager
def _opened(source: Source) -> Iterator[pq.ParquetFile]:
    try:
        with source.seekable() as stream:
            plain = pq.ParquetFile(stream)
            _refuse_bomb(source, plain.metadata)
            yield pq.ParquetFile(stream, read_dictionary=_repeating(plain.metadata))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{source.shown}: not a readable Parquet file: {error}") from error


def _limit(source: Source) -> int:
    return max(RATIO_FLOOR_BYTES, MAX_RATIO * source.disk_bytes)


def _refuse_bomb(source: Source, footer: pq.FileMetaData) -> None:
    """Refuses a file whose footer states too many rows, values or bytes.

    Raises:
        InputError.
    """
    width = [max(CELL_BYTES, footer.schema.column(at).length) for at in range(footer.num_columns)]
    content = values = 0
    for _, at, chunk in _chunks(footer):
        if min(chunk.num_values, chunk.total_uncompressed_size) < 0:
            raise InputError(f"{source.shown}: its footer states a negative size; the file is damaged")
        content += chunk.total_uncompressed_size
        values += chunk.num_values * width[at]
    # Each row has its number, too; columns may hold fewer values than there are rows.
    rows = max(0, footer.num_rows) * CELL_BYTES * (footer.num_columns + 1)
    if max(content, values, rows) > _limit(source):
        raise _bomb(source, f"states {footer.num_rows:,} rows and {max(content, values, rows):,} bytes")


def _bomb(source: Source, what: str) -> InputError:
    return InputError(
        f"{source.shown}: {what} after decoding, more than {MAX_RATIO:,} times its "
        f"{source.disk_bytes:,} bytes and more than {RATIO_FLOOR_BYTES // 1024**2} MiB; refused as a bomb"
    )


def _chunks(footer: pq.FileMetaData) -> Iterator[tuple[int, int, pq.ColumnChunkMetaData]]:
    """The column chunks: row group, column, what is stated of it."""
    for group in range(footer.num_row_groups):
        held = footer.row_group(group)
        for at in range(footer.num_columns):
            yield group, at, held.column(at)


def _repeating(footer: pq.FileMetaData) -> list[str]:
    """Paths of the text columns that Arrow can read as dictionaries in every row group."""
    texts = {
        at: footer.schema.column(at).path
        for at in range(footer.num_columns)
        if footer.schema.column(at).physical_type == "BYTE_ARRAY"
    }
    for _, at, chunk in _chunks(footer):
        if not {*chunk.encodings} <= _PLAIN_OR_DICTIONARY:
            texts.pop(at, None)
    return list(texts.values())


def _wanted(path: str, columns: Sequence[str] | None) -> bool:
    return columns is None or any(path == name or path.startswith(f"{name}.") for name in columns)


def _texts(file: pq.ParquetFile, columns: Sequence[str] | None) -> dict[int, str]:
    """Number and path of the text columns to read."""
    schema = file.metadata.schema
    named = {at: schema.column(at) for at in range(file.metadata.num_columns)}
    return {
        at: column.path
        for at, column in named.items()
        if column.physical_type == "BYTE_ARRAY" and _wanted(column.path, columns)
    }


def _stated_bound(file: pq.ParquetFile, texts: dict[int, str]) -> int:
    """Bytes that the texts cannot exceed: no value is longer than its column chunk before decoding."""
    return sum(
        chunk.num_values * chunk.total_uncompressed_size
        for _, at, chunk in _chunks(file.metadata)
        if at in texts
    )


def _measure(source: Source, file: pq.ParquetFile, texts: dict[int, str]) -> None:
    """Adds up the bytes of all texts without repeating any.

    Raises:
        InputError: they are more than the file may decode to.
    """
    names = [path.split(".")[0] for path in texts.values()]
    decoded = 0
    for batch in file.iter_batches(_batch_rows(file, names), columns=list(texts.values())):
        decoded += int(sum(_lengths(column).sum() for column in batch.columns if _is_text(column.type)))
        if decoded > _limit(source):
            raise _bomb(source, f"holds over {decoded:,} bytes of text")


def _batch_rows(file: pq.ParquetFile, columns: Sequence[str] | None) -> int:
    """Rows to decode at a time."""
    footer = file.metadata
    wanted = [at for at in range(footer.num_columns) if _wanted(footer.schema.column(at).path, columns)]
    width = sum(max(CELL_BYTES, footer.schema.column(at).length) for at in wanted)
    rows = min(BATCH_ROWS, CELL_BYTES * BATCH_CELLS // max(CELL_BYTES, width))
    for _, at, chunk in _chunks(footer):
        if at in wanted and _PREFIXED in chunk.encodings:
            rows = min(rows, _PREFIX_BYTES // max(1, chunk.total_uncompressed_size))
    return max(1, rows)


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
