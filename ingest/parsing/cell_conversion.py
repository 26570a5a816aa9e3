"""Text cells to typed columns, a column at a time; cells that do not parse become rejects, none is dropped.

A whole column is converted at once; only where that fails is it cut into parts until the cells at fault stand
alone, so a few bad cells cost little.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.lake.schema import TS
from ingest.parsing import csv_blocks
from ingest.parsing.csv_blocks import Block, Texts
from ingest.parsing.reader import Reject, RowBatch

_ALONE = 4
"""Cells that are converted one by one when together they fail."""
_PARTS = 32
"""Parts into which cells are cut that fail together."""
_LINE_END = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_ZONED = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$")
_FAULTY = re.compile(r"^In CSV column #(\d+):")
"""Message of the CSV parser about a cell that does not fit, with its column."""
TEXT = pa.dictionary(pa.int32(), pa.string())
"""Type of text columns: few different values, many rows."""
Constants = Mapping[str, Any]
NONE: Constants = {}


def no_hint(cell: str) -> str:
    """Nothing to say beyond the reason."""
    return ""


Convert = Callable[[pa.Array], pa.Array]
"""Text to values of one type; raises `ArrowInvalid` when some cell does not fit. Null stays null."""


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """Mapping of a column of the file to a canonical column.

    direct: type into which the CSV parser may turn the cells itself; `convert` takes that type or text.
    one: the same for a single cell of text; raises ValueError.
    hint: what else the reject of a cell says, such as the way out.
    """

    target: str
    source: str
    direct: pa.DataType
    convert: Convert
    one: Callable[[str], Any]
    kind: pa.DataType
    reason: str
    hint: Callable[[str], str] = no_hint


class Typed:
    """Blocks of one CSV file to typed rows; rows with a cell that does not parse become rejects.

    The CSV parser makes typed columns itself. Where a block has a column with faults, that column is read as
    text from then on and converted here, which finds the faulty cells; all ways give the same rows.

    constants: canonical columns that have one value in all rows.
    """

    def __init__(
        self, table: str, names: Sequence[str], columns: Sequence[ColumnMapping], constants: Constants = NONE
    ):
        self.table, self.names, self.columns, self.constants = table, names, columns, constants
        self._kinds = {column.source: column.direct for column in columns}

    def __call__(self, block: Block) -> RowBatch:
        """The rows of a block."""
        kinds = dict(self._kinds)
        while True:
            try:
                parsed = csv_blocks.typed(block, self.names, kinds)
                break
            except pa.ArrowInvalid as error:
                at = _FAULTY.search(str(error))
                name = self.names[int(at[1])] if at and int(at[1]) < len(self.names) else None
                if name is None or kinds.get(name, pa.string()) == pa.string():
                    return from_texts(self.table, self._texts(block), self.columns, self.constants)
                kinds[name] = self._kinds[name] = pa.string()
        text = _BlockText(block, self.names, parsed.rows, lambda: self._texts(block))
        return _typed(self.table, parsed, self.columns, self.constants, text)

    def _texts(self, block: Block) -> Texts:
        return csv_blocks.texts(block, self.names, list(self._kinds))


def from_texts(
    table: str, texts: Texts, columns: Sequence[ColumnMapping], constants: Constants = NONE
) -> RowBatch:
    """Typed rows of text columns; rows with a cell that does not parse become rejects, with the first such.

    constants: canonical columns that have one value in all rows.
    """
    return _typed(table, texts, columns, constants, _Text(lambda: texts))


def _typed(
    table: str, parsed: Texts, columns: Sequence[ColumnMapping], constants: Constants, text: "_Text"
) -> RowBatch:
    """Columns of text or of their direct type made canonical; `text` has what stands behind them all."""
    made: dict[str, pa.Array] = {}
    bad = np.zeros(len(parsed.rows), bool)
    rejects = list(parsed.rejects)
    for column in columns:
        made[column.target], wrong = _converted(parsed.columns[column.source], column)
        if wrong is None:
            continue
        cells = parsed.columns[column.source]
        for at in np.flatnonzero(wrong & ~bad):
            row = parsed.rows[int(at)].as_py()
            raw = (
                cells[int(at)] if pa.types.is_string(cells.type) else text.cell(column.source, int(at))
            ).as_py()
            rejects.append(Reject(row, column.source, raw, column.reason + column.hint(raw)))
        bad |= wrong
    made["source_row"] = parsed.rows
    kept = np.arange(len(bad))
    if bad.any():
        keep, kept = pa.array(~bad), kept[~bad]
        made = {name: values.filter(keep) for name, values in made.items()}
    for name, value in constants.items():
        made[name] = pa.repeat(value, len(made["source_row"]))
    sources = {column.target: column.source for column in columns}
    return RowBatch(table, made, parsed.rows_in, rejects, _Raw(text, sources, kept))


def number(target: str, source: str, factor: float = 1.0) -> ColumnMapping:
    """A float column; `factor` converts the unit in the file to the unit in the column's name."""

    def convert(cells: pa.Array) -> pa.Array:
        return _scaled(cells.cast(pa.float64()), factor)

    def one(cell: str) -> float:
        return _plain(cell) * factor

    return ColumnMapping(target, source, pa.float64(), convert, one, pa.float64(), "not a number")


def whole(target: str, source: str, factor: float = 1.0) -> ColumnMapping:
    """An integer column; after `factor` the value is rounded."""

    def convert(cells: pa.Array) -> pa.Array:
        if factor == 1.0:
            return cells.cast(pa.int64())
        return pc.round(_scaled(cells.cast(pa.float64()), factor)).cast(pa.int64())

    def one(cell: str) -> int:
        value = _plain(cell) * factor
        if not abs(value) < 2**63 or (factor == 1.0 and not value.is_integer()):
            raise ValueError(cell)
        return round(value)

    direct = pa.int64() if factor == 1.0 else pa.float64()
    return ColumnMapping(target, source, direct, convert, one, pa.int64(), "not a whole number")


def text(target: str, source: str) -> ColumnMapping:
    """A text column, as it stands but for blanks around it."""

    def convert(cells: pa.Array) -> pa.Array:
        coded = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
        names = pc.utf8_trim_whitespace(coded.dictionary)
        if names.equals(coded.dictionary):
            return coded
        return names.take(coded.indices).dictionary_encode()  # two names may have become one

    return ColumnMapping(target, source, TEXT, convert, str.strip, TEXT, "not a text")


def instant(target: str, source: str, timezone: str = "UTC", sample: str = "Z") -> ColumnMapping:
    """ISO 8601 times; those without a zone are in `timezone`, and rejected where its clock was turned.

    sample: a cell of the column, which shows whether most have a zone.
    """
    zone = ZoneInfo(timezone)
    naive = pa.timestamp("ns")

    def convert(cells: pa.Array) -> pa.Array:
        if cells.type == TS:
            return cells
        try:
            local = cells.cast(naive)
        except pa.ArrowInvalid:
            return cells.cast(TS)
        return local.cast(TS) if timezone == "UTC" else pc.assume_timezone(local, timezone).cast(TS)

    def one(cell: str) -> int:
        moment = datetime.fromisoformat(cell.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
            if moment.utcoffset() != moment.replace(fold=1).utcoffset():
                raise ValueError("the hour occurs twice or never")
        return _ns(moment)

    direct = TS if _ZONED.search(sample.strip()) else naive
    return ColumnMapping(target, source, direct, convert, one, TS, "not a time (ISO 8601)")


def epoch(target: str, source: str, unit_s: float = 1.0, start_ns: int = 0) -> ColumnMapping:
    """Times counted in units of `unit_s` seconds from `start_ns` (1970); fractions to the microsecond."""
    ticks = round(unit_s * 1e9)

    def convert(cells: pa.Array) -> pa.Array:
        if unit_s < 1:
            return shifted(pc.multiply_checked(cells.cast(pa.int64()), ticks))
        # A double holds today's seconds to 0.24 us: rounding to microseconds gives back the decimal digits.
        micro = pc.round(pc.multiply(cells.cast(pa.float64()), 1e6)).cast(pa.int64())
        return shifted(pc.multiply_checked(micro, 1000))

    def shifted(ticks_ns: pa.Array) -> pa.Array:
        return (pc.add_checked(ticks_ns, start_ns) if start_ns else ticks_ns).cast(TS)

    def one(cell: str) -> int:
        value = start_ns + (int(cell) * ticks if unit_s < 1 else round(_plain(cell) * 1e6) * 1000)
        if abs(value) >= 2**63:
            raise ValueError(cell)
        return value

    direct = pa.int64() if unit_s < 1 else pa.float64()
    return ColumnMapping(target, source, direct, convert, one, TS, "not a time (counted from 1970)")


class _Text:
    """Rows as text, made at most once and only when somebody asks."""

    def __init__(self, make: Callable[[], Texts]):
        self._make = make
        self._made: Texts | None = None

    def cell(self, column: str, at: int) -> pa.Scalar:
        """The cell of a column in the row at this position."""
        if self._made is None:
            self._made = self._make()
        return self._made.columns[column][at]


class _BlockText(_Text):
    """The text of a block: a cell is cut out of its line, which costs less than to parse all again."""

    def __init__(self, block: Block, names: Sequence[str], rows: pa.Int64Array, make: Callable[[], Texts]):
        super().__init__(make)
        self._block, self._names, self._rows = block, list(names), rows
        self._plain = b'"' not in block.data and not block.rejects
        self._starts: np.ndarray | None = None

    def cell(self, column: str, at: int) -> pa.Scalar:
        """The cell of a column in the row at this position."""
        cells = self._line(at).split(self._block.delimiter) if self._plain else []
        if len(cells) != len(self._names):
            return super().cell(column, at)
        return pa.scalar(cells[self._names.index(column)] or None, pa.string())

    def _line(self, at: int) -> str:
        """The line of the row at this position; blank lines are no rows."""
        if self._starts is None:
            raw = np.frombuffer(self._block.data, np.uint8)
            starts = np.concatenate(([0], np.flatnonzero(raw == _LINE_END) + 1))
            blank = np.diff(np.concatenate((starts, [len(raw) + 1]))) <= 1
            self._starts = starts[~blank]
        start = int(self._starts[self._rows[at].as_py() - self._block.first_row])
        end = self._block.data.find(b"\n", start)
        return self._block.data[start : end if end >= 0 else len(self._block.data)].decode("utf-8", "replace")


class _RawColumn:
    """The text of a column, cell by cell."""

    def __init__(self, text: _Text, column: str, kept: np.ndarray):
        self._text, self._column, self._kept = text, column, kept

    def __getitem__(self, at: int) -> pa.Scalar:
        return self._text.cell(self._column, int(self._kept[at]))

    def filter(self, keep: pa.BooleanArray) -> "_RawColumn":
        """The column without the rows that are not kept."""
        return _RawColumn(self._text, self._column, self._kept[np.asarray(keep)])


class _Raw(Mapping[str, Any]):
    """The text behind the columns of a batch, for the rejects that quote it."""

    def __init__(self, text: _Text, sources: Mapping[str, str], kept: np.ndarray):
        self._text, self._sources, self._kept = text, sources, kept

    def __getitem__(self, target: str) -> _RawColumn:
        return _RawColumn(self._text, self._sources[target], self._kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def _plain(cell: str) -> float:
    """A number as files write it; Python alone would also take `1_000` and digits of other scripts."""
    if "_" in cell or not cell.isascii():
        raise ValueError(cell)
    return float(cell)


def _ns(moment: datetime) -> int:
    value = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    if abs(value) >= 2**63:
        raise ValueError("outside the years of the clock")
    return value


def _scaled(values: pa.Array, factor: float) -> pa.Array:
    return values if factor == 1.0 else pc.multiply(values, factor)


def _converted(cells: pa.Array, column: ColumnMapping) -> tuple[pa.Array, np.ndarray | None]:
    """The typed column, null where a cell does not parse, and the mask of those cells (None: no such)."""
    try:
        return column.convert(cells), None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = _piecewise(cells, column)
    wrong = pc.and_(pc.is_null(values), pc.is_valid(cells))
    if pa.types.is_string(cells.type):  # a cell of nothing but blanks is blank, not wrong
        wrong = pc.and_not(wrong, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(cells), ""), False))
    return values, np.asarray(wrong)


def _piecewise(cells: pa.Array, column: ColumnMapping) -> pa.Array:
    if len(cells) <= _ALONE:
        return pa.array([_one(cell, column) for cell in cells.to_pylist()], column.kind)
    size = -(-len(cells) // _PARTS)
    parts = []
    for part in (cells[start : start + size] for start in range(0, len(cells), size)):
        try:
            parts.append(column.convert(part))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            parts.append(_piecewise(part, column))
    whole = pa.chunked_array(parts)
    return (whole.unify_dictionaries() if column.kind == TEXT else whole).combine_chunks()


def _one(cell: Any, column: ColumnMapping) -> Any:
    """One value: as the whole column would have it, else by the more patient way, else null."""
    if cell is None:
        return None
    try:
        return column.convert(pa.array([str(cell)], pa.string())).cast(column.kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    try:
        return column.one(str(cell))
    except (ValueError, OverflowError):
        return None
