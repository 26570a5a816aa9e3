"""The rows of a CSV, a Parquet file or a JSON document as columns of text, so that all forms mean the same.

JSON is one document of at most 16 MiB, or one document a line (NDJSON) of any size. Its rows lie at the path
`rows`, else they are the list itself, or the lines. An object whose values are lists of one length is a table
by columns: a row for each position. `source_row` counts rows from 1; a line that is no JSON is one, too.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa

from ingest.core import safe_json
from ingest.core.errors import InputError
from ingest.mapping.json_paths import MISSING, JsonColumn, JsonRow, rows, steps
from ingest.parsing import csv_blocks, parquet_input, text_lines
from ingest.parsing.csv_blocks import LINE_LIMIT_BYTES, Texts
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import Reject
from ingest.parsing.source import BOM, HEAD_BYTES, Source

PARQUET = parquet_input.MAGIC
_BATCH = 1 << 16
_LOOKED_AT = 200
"""Rows of a JSON document whose names count as its columns."""


@dataclass(frozen=True, slots=True)
class TextRows:
    """Rows of a file: the names of its columns, cells of one row to look at, and the rows block by block."""

    names: Sequence[str]
    sample: Sequence[str]
    blocks: Iterable[Texts]


def frame(source: Source, options: DatasetOptions) -> TextRows:
    """Returns the rows of a file, whichever form it has.

    Raises:
        InputError: it is no table.
    """
    if source.head.startswith(PARQUET):
        return _parquet(source)
    if is_json(source.head):
        return _json(source, options)
    names = csv_blocks.header(source.head, options.delimiter)
    sample = csv_blocks.first_record(source.head, options.delimiter)
    blocks = csv_blocks.blocks(source, options.delimiter)
    return TextRows(names, sample, (csv_blocks.texts(block, names) for block in blocks))


def is_json(head: bytes) -> bool:
    """True if a file with this beginning is JSON and no CSV."""
    return head.removeprefix(BOM).lstrip()[:1] in (b"{", b"[")


def without_lines(source: Source, count: int) -> Source:
    """The source without its first lines."""
    if not count:
        return source

    def opened() -> BinaryIO:
        stream = source.open()
        for _ in range(count):
            stream.readline(LINE_LIMIT_BYTES)
        return stream

    with opened() as stream:
        return replace(source, head=stream.read(HEAD_BYTES), opener=opened, local=None)


def by_line(head: bytes) -> bool:
    """True if a file with this beginning holds a JSON document a line, and more than one line."""
    first, _, rest = head.removeprefix(BOM).lstrip().partition(b"\n")
    if not rest.strip():
        return False
    try:
        safe_json.parsed(first)
    except ValueError:
        return False
    return True


def _parquet(source: Source) -> TextRows:
    first = next(parquet_input.batches(source), None)
    row = None if first is None else _as_text(source, first.slice(0, 1))
    sample = [] if row is None else [column[0].as_py() or "" for column in row.values()]
    return TextRows(parquet_input.schema(source).names, sample, _parquet_blocks(source))


def _parquet_blocks(source: Source) -> Iterator[Texts]:
    row = 1
    for batch in parquet_input.batches(source):
        yield Texts(_as_text(source, batch), pa.array(range(row, row + len(batch))), len(batch), ())
        row += len(batch)


def _as_text(source: Source, batch: pa.RecordBatch) -> dict[str, pa.Array]:
    plain = (
        values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        for values in batch.columns
    )
    try:
        return {
            name: values.cast(pa.string()) for name, values in zip(batch.schema.names, plain, strict=True)
        }
    except pa.ArrowException as error:
        raise InputError(f"{source.shown}: no table of texts and numbers: {error}") from error


def _json(source: Source, options: DatasetOptions) -> TextRows:
    way = steps(options.rows) if options.rows else None
    looked = [
        row for row, _ in zip(_rows(source, way), range(_LOOKED_AT), strict=False) if isinstance(row, JsonRow)
    ]
    way = way if way is not None else _default_way(looked)
    names = [*_names(looked), *options.columns.values()]
    columns = {name: JsonColumn(name, way) for name in dict.fromkeys(names)}
    present = {n: c for n, c in columns.items() if any(c.value(r) is not MISSING for r in looked)}
    zipped = bool(looked) and _by_columns(looked[0], present)
    sample = (
        [_cell(_first(column.value(looked[0]), zipped)) or "" for column in present.values()]
        if looked
        else []
    )
    return TextRows(list(present), sample, _json_blocks(source, options, present, zipped))


def _default_way(looked: Sequence[JsonRow]) -> tuple[str, ...]:
    return ("[]",) if looked and len(looked[0].chain) > 1 else ()


def _names(looked: Sequence[JsonRow]) -> list[str]:
    """Names of the values in the rows; those of objects inside them joined by dots."""
    found: dict[str, None] = {}
    for row in looked:
        found.update(dict.fromkeys(_flat(row.node, "")))
    return list(found)


def _flat(node: Any, before: str) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            name = f'"{key}"' if any(mark in key for mark in ".[]*@") or not key else key
            yield from _flat(value, f"{before}.{name}" if before else name)
    elif isinstance(node, list) and not before:
        yield from map(str, range(len(node)))
    elif before and not (isinstance(node, list) and node and isinstance(node[0], dict)):  # rows of their own
        yield before


def _first(value: Any, zipped: bool) -> Any:
    return value[0] if zipped and isinstance(value, list) and value else value


def _by_columns(row: JsonRow, columns: dict[str, JsonColumn]) -> bool:
    """True if a row is a table by columns: some of its values are lists, all those of one length."""
    values = [column.value(row) for column in columns.values() if column.relative]
    lengths = {len(value) for value in values if isinstance(value, list)}
    return isinstance(row.node, dict) and len(lengths) == 1 and lengths != {0}


def _rows(source: Source, way: tuple[str, ...] | None) -> Iterator[JsonRow | str]:
    """The rows; a line that is no JSON as its text."""
    if not by_line(source.head):
        try:
            found = safe_json.parsed(source.data())
        except ValueError as error:
            raise InputError(f"{source.shown}: not a complete JSON document: {error}") from error
        yield from rows(found, way if way is not None else ("[]",) if isinstance(found, list) else ())
        return
    for _, line in text_lines.numbered(source):
        try:
            yield from rows(safe_json.parsed(line), way or ())
        except ValueError:
            yield line


def _json_blocks(
    source: Source, options: DatasetOptions, columns: dict[str, JsonColumn], zipped: bool
) -> Iterator[Texts]:
    way = steps(options.rows) if options.rows else None
    cells: dict[str, list[str | None]] = {name: [] for name in columns}
    numbers: list[int] = []
    rejects: list[Reject] = []
    at = 0
    for row in _rows(source, way):
        if isinstance(row, str):
            at += 1
            rejects.append(Reject(at, "", row, "not JSON"))
        else:
            values = {name: column.value(row) for name, column in columns.items()}
            for made in _positions(values, columns) if zipped else (values,):
                at += 1
                numbers.append(at)
                for name, value in made.items():
                    cells[name].append(_cell(value))
        if len(numbers) + len(rejects) >= _BATCH:
            yield _texts(cells, numbers, rejects)
            cells, numbers, rejects = {name: [] for name in columns}, [], []
    yield _texts(cells, numbers, rejects)


def _positions(values: dict[str, Any], columns: dict[str, JsonColumn]) -> Iterator[dict[str, Any]]:
    lists = {name for name, value in values.items() if columns[name].relative and isinstance(value, list)}
    for at in range(max((len(values[name]) for name in lists), default=0)):
        yield {
            name: (value[at] if at < len(value) else None) if name in lists else value
            for name, value in values.items()
        }


def _texts(cells: dict[str, list[str | None]], numbers: list[int], rejects: list[Reject]) -> Texts:
    columns = {name: pa.array(values, pa.string()) for name, values in cells.items()}
    return Texts(columns, pa.array(numbers, pa.int64()), len(numbers) + len(rejects), tuple(rejects))


def _cell(value: Any) -> str | None:
    """A JSON value as the cell of a CSV; an empty text is blank."""
    if value is MISSING or value is None or value == "":
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return json.dumps(value)
