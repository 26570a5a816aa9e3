"""Text cells to typed columns, a column at a time; the cells that do not parse are told apart, not dropped.

A whole column is converted at once; only where that fails is it halved until the cells at fault stand alone,
so a few bad cells cost little.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.csvfile import Texts
from ingest.reader import Batch, Reject
from ingest.schema import TS

_ALONE = 64
"""Cells that are converted one by one when together they fail."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Convert = Callable[[pa.Array], pa.Array]
"""Text to values of one type; raises `ArrowInvalid` when some cell does not fit. Null stays null."""


@dataclass(frozen=True, slots=True)
class Column:
    """How one canonical column is made from a column of the file."""

    target: str
    source: str
    convert: Convert
    one: Callable[[str], Any]
    """The same for a single cell; raises ValueError."""
    kind: pa.DataType
    reason: str


def batch(
    table: str, texts: Texts, columns: Sequence[Column], constants: dict[str, Any] | None = None
) -> Batch:
    """Typed rows of a block: rows with a cell that does not parse become rejects, with the first such cell.

    constants: canonical columns that have one value in all rows.
    """
    made: dict[str, pa.Array] = {}
    bad = np.zeros(len(texts.rows), bool)
    rejects = list(texts.rejects)
    for column in columns:
        cells = texts.columns[column.source]
        made[column.target], wrong = _converted(cells, column)
        for at in np.flatnonzero(wrong & ~bad):
            rejects.append(
                Reject(texts.rows[int(at)].as_py(), column.source, cells[int(at)].as_py(), column.reason)
            )
        bad |= wrong
    raw = {column.target: texts.columns[column.source] for column in columns}
    made["source_row"] = texts.rows
    if bad.any():
        keep = pa.array(~bad)
        made = {name: values.filter(keep) for name, values in made.items()}
        raw = {name: values.filter(keep) for name, values in raw.items()}
    count = len(made["source_row"])
    for name, value in (constants or {}).items():
        made[name] = pa.repeat(value, count)
    return Batch(table, made, texts.rows_in, rejects, raw)


def number(target: str, source: str, factor: float = 1.0, offset: float = 0.0) -> Column:
    """A float column; `factor` converts the unit in the file to the unit in the column's name."""

    def convert(cells: pa.Array) -> pa.Array:
        return _scaled(cells.cast(pa.float64()), factor, offset)

    return Column(target, source, convert, lambda c: float(c) * factor + offset, pa.float64(), "not a number")


def whole(target: str, source: str, factor: float = 1.0) -> Column:
    """An integer column; after `factor` the value is rounded."""

    def convert(cells: pa.Array) -> pa.Array:
        if factor == 1.0:
            return cells.cast(pa.int64())
        return pc.round(_scaled(cells.cast(pa.float64()), factor, 0.0)).cast(pa.int64())

    def one(cell: str) -> int:
        value = float(cell) * factor
        if abs(value) >= 2**63 or (factor == 1.0 and not value.is_integer()):
            raise ValueError(cell)
        return round(value)

    return Column(target, source, convert, one, pa.int64(), "not a whole number")


def text(target: str, source: str) -> Column:
    """A text column, as it stands but for blanks around it."""

    def convert(cells: pa.Array) -> pa.Array:
        coded = cells.dictionary_encode()
        names = pc.utf8_trim_whitespace(coded.dictionary)
        return names.take(coded.indices)

    return Column(target, source, convert, str.strip, pa.string(), "not a text")


def instant(target: str, source: str, timezone: str = "UTC") -> Column:
    """ISO 8601 times; those without a zone are in `timezone`, and rejected where its clock was turned."""
    zone = ZoneInfo(timezone)

    def convert(cells: pa.Array) -> pa.Array:
        try:
            return cells.cast(TS)
        except pa.ArrowInvalid:
            naive = cells.cast(pa.timestamp("ns"))
            return naive.cast(TS) if timezone == "UTC" else pc.assume_timezone(naive, timezone).cast(TS)

    def one(cell: str) -> int:
        moment = datetime.fromisoformat(cell.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
            if moment.utcoffset() != moment.replace(fold=1).utcoffset():
                raise ValueError("the hour occurs twice or never")
        return _ns(moment)

    return Column(target, source, convert, one, TS, "not a time (ISO 8601)")


def epoch(target: str, source: str, unit_s: float = 1.0) -> Column:
    """Times counted from 1970 in units of `unit_s` seconds, kept to the microsecond if they have a fraction."""

    def convert(cells: pa.Array) -> pa.Array:
        if unit_s < 1:
            return pc.multiply(cells.cast(pa.int64()), round(unit_s * 1e9)).cast(TS)
        # A double holds today's seconds to 0.24 us: rounding to microseconds gives back the decimal digits.
        micro = pc.round(pc.multiply(cells.cast(pa.float64()), 1e6)).cast(pa.int64())
        return pc.multiply_checked(micro, 1000).cast(TS)

    def one(cell: str) -> int:
        micro = round(float(cell) * unit_s * 1e6)
        if abs(micro) >= 2**63 // 1000:
            raise ValueError(cell)
        return micro * 1000

    return Column(target, source, convert, one, TS, "not a time (seconds since 1970)")


def _ns(moment: datetime) -> int:
    value = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    if abs(value) >= 2**63:
        raise ValueError("outside the years of the clock")
    return value


def _scaled(values: pa.Array, factor: float, offset: float) -> pa.Array:
    if factor != 1.0:
        values = pc.multiply(values, factor)
    return pc.add(values, offset) if offset else values


def _converted(cells: pa.Array, column: Column) -> tuple[pa.Array, np.ndarray]:
    """The typed column, null where a cell does not parse, and the mask of those cells."""
    try:
        values = column.convert(cells)
        return values, np.zeros(len(cells), bool)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values = _piecewise(cells, column)
    wrong = np.asarray(pc.and_(pc.is_null(values), pc.is_valid(cells)))
    blank = np.asarray(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(cells), ""), False))
    return values, wrong & ~blank


def _piecewise(cells: pa.Array, column: Column) -> pa.Array:
    if len(cells) <= _ALONE:
        return pa.array([_one(cell, column) for cell in cells.to_pylist()], column.kind)
    middle = len(cells) // 2
    parts = []
    for part in (cells[:middle], cells[middle:]):
        try:
            parts.append(column.convert(part))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            parts.append(_piecewise(part, column))
    return pa.concat_arrays(parts)


def _one(cell: str | None, column: Column) -> Any:
    try:
        return None if cell is None else column.one(cell)
    except (ValueError, OverflowError):
        return None
