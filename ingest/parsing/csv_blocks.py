"""CSV as columns of text, block by block: the records of a wrong shape are reported, the others are read.

A block ends at the end of a record, so that blocks can be parsed side by side. Rows count from 1 after the
header; blank lines are no rows.
"""

import csv
import io
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ingest.core.errors import InputError
from ingest.parsing.reader import Reject
from ingest.parsing.source import BOM, Source

BLOCK_BYTES = 4 * 1024**2
LINE_LIMIT_BYTES = 8 * 1024**2
"""A longer line is not a record of measurements."""
_JOIN_LINES = 20
"""Lines that a quoted cell may span before its quote is taken for a stray one."""
_WORKERS = min(4, os.cpu_count() or 1)
"""Blocks parsed at a time; Arrow works outside the interpreter's lock."""
_PARSE_BYTES = 1 << 16
T = TypeVar("T")
_LINE_END, _QUOTE = b'\n"'


@dataclass(frozen=True, slots=True)
class Block:
    """Some records as bytes, the number of the first, and the records already rejected among them."""

    first_row: int
    data: bytes
    count: int
    rejects: tuple[Reject, ...] = ()
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class Texts:
    """Parsed records: columns by header name (text unless said otherwise, blank cells null), row numbers, and
    the records rejected."""

    columns: dict[str, pa.Array]
    rows: pa.Int64Array
    rows_in: int
    rejects: tuple[Reject, ...]


def header(head: bytes, delimiter: str = ",") -> list[str]:
    """Names in the first line, trimmed; empty if it is not text."""
    end = head.find(b"\n")
    return list(_names(head if end < 0 else head[:end], delimiter))


@lru_cache(maxsize=256)
def _names(line: bytes, delimiter: str) -> tuple[str, ...]:
    """The names in a line; a dozen readers ask for those of every file."""
    line = line.removeprefix(BOM).rstrip(b"\r")
    try:
        names = next(csv.reader([line.decode()], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        return ()
    return tuple(name.strip() for name in names)


def blocks(source: Source, delimiter: str = ",") -> Iterator[Block]:
    """The records after the header; cells are parted by `delimiter`, one byte.

    Raises:
        InputError: a line is absurdly long.
    """
    row = 0
    rest = b""
    first = True
    with source.open() as stream:
        while True:
            chunk = stream.read(BLOCK_BYTES)
            data = rest + chunk
            if first and b"\n" in data:
                data = data.split(b"\n", 1)[1]
                first = False
            elif first and chunk:
                rest = _short(source, data)
                continue
            elif first:
                return
            cut = data.rfind(b"\n") + 1 if chunk else len(data)
            block, rest = data[:cut], _short(source, data[cut:])
            if b'"' in block:
                block, rest = _balanced(block, rest, last=not chunk)
            if block:
                made = _block(row + 1, block, delimiter)
                row += made.count
                if made.count:
                    yield made
            if not chunk:
                return


def _short(source: Source, rest: bytes) -> bytes:
    if len(rest) > LINE_LIMIT_BYTES:
        raise InputError(
            f"{source.shown}: a line longer than {LINE_LIMIT_BYTES // 1024**2} MiB; not a CSV file"
        )
    return rest


def texts(block: Block, names: Sequence[str], wanted: Sequence[str] = ()) -> Texts:
    """Parse one block into text columns, all or those wanted."""
    data = block.data
    if not _is_text(data):
        data = data.decode("utf-8", "replace").encode()
    kinds = dict.fromkeys(wanted or names, pa.string())
    parsed = _parsed(block, data, names, kinds)
    return parsed if data is block.data else _without_replaced(parsed)


def typed(block: Block, names: Sequence[str], kinds: Mapping[str, pa.DataType]) -> Texts:
    """Parse the columns of `kinds` straight into these types.

    Raises:
        ArrowInvalid: some cell does not fit its type; `texts` finds it.
    """
    if not _is_text(block.data):
        raise pa.ArrowInvalid("not UTF-8")
    return _parsed(block, block.data, names, kinds)


def side_by_side(source: Source, work: Callable[[Block], T], delimiter: str = ",") -> Iterator[T]:
    """`work` on every block of the source, on a few blocks at a time, in order."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        waiting: deque[Future[T]] = deque()
        for block in blocks(source, delimiter):
            waiting.append(pool.submit(work, block))
            if len(waiting) > _WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parsed(block: Block, data: bytes, names: Sequence[str], kinds: Mapping[str, pa.DataType]) -> Texts:
    wrong: list[tuple[int, str]] = []

    def note(row: pacsv.InvalidRow) -> str:
        wrong.append((row.number, row.text))
        return "skip"

    if not data:  # every record was rejected for its quotes
        empty = {name: pa.array([], kind) for name, kind in kinds.items()}
        return _numbered(block, empty, 0, [], len(names))
    if data.startswith(BOM):  # only the file may begin with one; the parser would drop it, and a row with it
        data = b"\n" + data
    table = pacsv.read_csv(
        pa.BufferReader(data),
        pacsv.ReadOptions(
            use_threads=False, block_size=max(len(data) + 1, _PARSE_BYTES), column_names=list(names)
        ),
        pacsv.ParseOptions(delimiter=block.delimiter, newlines_in_values=True, invalid_row_handler=note),
        pacsv.ConvertOptions(
            column_types=kinds,
            include_columns=list(kinds),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    columns = {name: _whole(table.column(name)) for name in kinds}
    return _numbered(block, columns, table.num_rows, wrong, len(names))


def _numbered(
    block: Block, columns: dict[str, pa.Array], count: int, wrong: list[tuple[int, str]], fields: int
) -> Texts:
    """Row numbers of what was parsed, rejects for the rest."""
    numbers = np.arange(block.first_row, block.first_row + block.count, dtype=np.int64)
    if block.rejects:
        numbers = numbers[~np.isin(numbers, [reject.row for reject in block.rejects])]
    rejects = list(block.rejects)
    for at, raw in wrong:
        rejects.append(
            Reject(int(numbers[at - 1]), "", raw, f"expected {fields} fields, found another number")
        )
    if wrong:
        numbers = np.delete(numbers, [at - 1 for at, _ in wrong])
    if len(numbers) != count:
        raise InputError(
            f"{len(numbers)} records were counted and {count} parsed; not a CSV that can be read"
        )
    return Texts(columns, pa.array(numbers), block.count, tuple(rejects))


def _without_replaced(parsed: Texts) -> Texts:
    """Leave out the rows that hold bytes which are no text."""
    numbers = np.asarray(parsed.rows)
    bad = np.zeros(len(numbers), bool)
    rejects = list(parsed.rejects)
    for name, column in parsed.columns.items():
        hit = np.asarray(pc.fill_null(pc.match_substring(column, "\ufffd"), False)) & ~bad
        bad |= hit
        rejects += [
            Reject(int(numbers[at]), name, column[int(at)].as_py(), "not UTF-8 text")
            for at in np.flatnonzero(hit)
        ]
    keep = pa.array(~bad)
    columns = {name: column.filter(keep) for name, column in parsed.columns.items()}
    return Texts(columns, pa.array(numbers[~bad]), parsed.rows_in, tuple(rejects))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _block(first_row: int, data: bytes, delimiter: str) -> Block:
    """Count the records; those with a quote out of place are rejected here, one by one."""
    if b"\r" in data:  # the parser would take a stray one for the end of a record
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    raw = np.frombuffer(data, np.uint8)
    if b'"' in data and not _orderly(raw, delimiter):
        return _repaired(first_row, data, delimiter)
    return Block(first_row, data, _records(raw), delimiter=delimiter)


def _records(raw: np.ndarray) -> int:
    """Lines that are not blank."""
    ends = np.concatenate(([-1], np.flatnonzero(raw == _LINE_END), [len(raw)]))
    return int((np.diff(ends) > 1).sum())


def _orderly(raw: np.ndarray, delimiter: str) -> bool:
    """True if every quote bounds a whole cell or is one of a pair inside, and all close in their line."""
    quotes = np.flatnonzero(raw == _QUOTE)
    lines = np.concatenate((np.flatnonzero(raw == _LINE_END), [len(raw)]))
    if (np.searchsorted(quotes, lines) % 2).any():
        return False
    padded = np.concatenate(([_LINE_END], raw, [_LINE_END]))
    edge = np.isin(padded, (ord(delimiter), _LINE_END, _QUOTE))
    return bool(edge[quotes[0::2]].all() and edge[quotes[1::2] + 2].all())


@cache
def _record(delimiter: str) -> re.Pattern[bytes]:
    """Cells that are quoted as a whole, or do not begin with a quote."""
    mark = re.escape(delimiter.encode())
    cell = rb'(?:"(?:[^"]|"")*"|[^"\n' + mark + rb"][^\n" + mark + rb"]*|)"
    return re.compile(cell + rb"(?:" + mark + cell + rb")*")


def _repaired(first_row: int, data: bytes, delimiter: str) -> Block:
    """Join lines of a cell that spans several; reject lines with a stray quote."""
    kept: list[bytes] = []
    rejects: list[Reject] = []
    lines = [line for line in data.split(b"\n") if line]
    row, at = first_row, 0
    while at < len(lines):
        span = _span(lines, at, _record(delimiter))
        if span:
            kept.append(b"\n".join(lines[at : at + span]))
        else:
            rejects.append(Reject(row, "", lines[at].decode("utf-8", "replace"), "a quote is not closed"))
        at, row = at + max(span, 1), row + 1
    return Block(first_row, b"\n".join(kept), row - first_row, tuple(rejects), delimiter)


def _span(lines: list[bytes], at: int, whole: re.Pattern[bytes]) -> int:
    """Number of lines of the record at `at`; 0 if its quotes do not match."""
    for span in range(1, _JOIN_LINES + 1) if b'"' in lines[at] else (1,):
        record = b"\n".join(lines[at : at + span])
        if b'"' not in record or whole.fullmatch(record):
            return span
        if at + span >= len(lines):
            return 0
    return 0


def _balanced(block: bytes, rest: bytes, *, last: bool) -> tuple[bytes, bytes]:
    """Move the last lines of a block to the next one while a quote is open at its end."""
    if last or block.count(b'"') % 2 == 0:
        return block, rest
    cut = len(block)
    for _ in range(_JOIN_LINES):
        cut = block.rfind(b"\n", 0, cut - 1) + 1
        if cut <= 0:
            return b"", block + rest
        if block.count(b'"', 0, cut) % 2 == 0:
            return block[:cut], block[cut:] + rest
    return block, rest


def first_record(head: bytes, delimiter: str = ",") -> list[str]:
    """Cells of the first record after the header, for looking at types."""
    _, _, records = head.removeprefix(BOM).partition(b"\n")
    line = next((line for line in io.BytesIO(records) if line.strip()), b"")
    if not line:
        return []
    try:
        return next(csv.reader([line.decode("utf-8", "replace").rstrip("\r\n")], delimiter=delimiter), [])
    except csv.Error:
        return []
