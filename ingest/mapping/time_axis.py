"""Time where a file has no dates: a column that counts from a start, or rows at equal distances."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError
from ingest.core.units import to_ns
from ingest.lake.schema import TS
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.csv_blocks import Texts
from ingest.parsing.dataset import DatasetOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_S = 100 * 365.25 * 86_400
_QUICK = set("dmYHMSybB%")
"""Directives that Arrow reads as Python does."""


def start_ns(options: DatasetOptions, shown: str, column: str) -> int:
    """Returns the first instant of a file without dates.

    Raises:
        InputError: it is not stated, and nobody said that this is meant: no year is invented.
    """
    start = (options.time and options.time.start) or options.start
    if start is None and f"{column}.undated" not in options.accept:
        raise InputError(
            f"{shown}: no dates, and no start to count from; say [time] start = 2024-03-01T00:00:00Z in "
            f'dataset.toml, or accept = ["{column}.undated"] to lay the series at the year 2000'
        )
    return to_ns((start or options.start_or_default()).timestamp())


def elapsed(target: str, source: str, unit_s: float, start: int) -> ColumnMapping:
    """Times counted in units of `unit_s` seconds from `start`, in ns since 1970."""

    def convert(cells: pa.Array) -> pa.Array:
        ticks = pc.round(pc.multiply(cells.cast(pa.float64()), unit_s * 1e9)).cast(pa.int64())
        return pc.add_checked(ticks, start).cast(TS)

    def one(cell: str) -> int:
        value = start + round(float(cell) * unit_s * 1e9)
        if abs(value) >= 2**63:
            raise ValueError(cell)
        return value

    return ColumnMapping(target, source, pa.float64(), convert, one, TS, "not a time that has passed")


def formatted(target: str, source: str, form: str, timezone: str) -> ColumnMapping:
    """Times written as `form` says, in `timezone` if they bear no zone."""
    zone = ZoneInfo(timezone)
    quick = {letter[:1] for letter in form.split("%")[1:]} <= _QUICK

    def convert(cells: pa.Array) -> pa.Array:
        if not quick:
            return pa.array([None if cell is None else one(cell) for cell in cells.to_pylist()], TS)
        local = pc.strptime(pc.utf8_trim_whitespace(cells), format=form, unit="s", error_is_null=False)
        return pc.assume_timezone(local, timezone).cast(TS)

    def one(cell: str) -> int:
        try:
            moment = datetime.strptime(cell.strip(), form)
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from error
        moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        return round((moment - _EPOCH).total_seconds() * 1e6) * 1000

    return ColumnMapping(
        target, source, pa.string(), convert, _as_value_error(one), TS, f"not a time like {form}"
    )


def _as_value_error(one: Callable[[str], int]) -> Callable[[str], int]:
    def made(cell: str) -> int:
        try:
            return one(cell)
        except pa.ArrowInvalid as error:
            raise ValueError(cell) from error

    return made


def from_intervals(blocks: Iterable[Texts], name: str, unit_s: float, shown: str) -> Iterator[Texts]:
    """The blocks with the seconds since the row before as nanoseconds since the start.

    Raises:
        InputError: a cell is no number: nothing after it would have a time.
    """
    passed = 0
    for block in blocks:
        try:
            steps = np.asarray(block.columns[name].cast(pa.float64()), float)
        except pa.ArrowInvalid as error:
            raise InputError(f"{shown}: column {name}: {error}; all later rows would have no time") from error
        if not np.isfinite(steps).all() or (steps < 0).any():
            row = block.rows[int(np.flatnonzero(~(steps >= 0) | ~np.isfinite(steps))[0])].as_py()
            raise InputError(f"{shown}:{row} {name}: blank or negative; all later rows would have no time")
        if steps.sum() * unit_s > _LONGEST_S:
            raise InputError(f"{shown}: column {name} adds up to more than a century; are these intervals?")
        ticks = passed + np.cumsum(np.round(steps * unit_s * 1e9)).astype(np.int64)
        passed = int(ticks[-1]) if len(ticks) else passed
        yield replace(block, columns={**block.columns, name: pa.array(ticks).cast(pa.string())})


def numbered(blocks: Iterable[Texts], name: str, interval_s: float) -> Iterator[Texts]:
    """The blocks with a column of the nanoseconds since the start, from the number of the row."""
    for block in blocks:
        ticks = pc.multiply_checked(pc.subtract(block.rows, 1), to_ns(interval_s))
        yield replace(block, columns={**block.columns, name: ticks.cast(pa.string())})


Turn = Callable[[Iterable[Texts]], Iterable[Texts]]


def turned(
    options: DatasetOptions, names: list[str], target: str, shown: str
) -> tuple[Turn | None, str | None]:
    """Returns what makes times of rows before they are melted, if that needs their order, and its column."""
    source = options.columns.get(target, target)
    if options.time is not None and options.time.mode == "interval" and source in names:
        return partial(from_intervals, name=source, unit_s=options.time.unit_s, shown=shown), source
    if (
        source not in names
        and target not in options.columns
        and options.interval_s
        and target not in options.values
    ):
        return partial(numbered, name=target, interval_s=options.interval_s), target
    return None, None
