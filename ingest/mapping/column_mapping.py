"""What each column of a mapped table becomes: canonical name, type, unit, time; and values for all rows."""

import re
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ingest.core import units
from ingest.core.config import suggestion
from ingest.core.errors import InputError, UsageError
from ingest.lake.schema import TABLES, TIME_COLUMN
from ingest.lake.validate import ADDED
from ingest.mapping import time_axis
from ingest.parsing import cell_conversion
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.source import Source

OWN = (*ADDED, "source_row")
_TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SPELT = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_YEAR_S = 365.25 * 86400
_COMMA = r"^[-+]?(\d{1,3}(\.\d{3})+|\d+)?(,\d+)?([eE][-+]?\d+)?$"
_WITH_UNIT = re.compile(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*([A-Za-z%][A-Za-z/%]*)")
"""A number and what it counts, such as `800 Mb/s`."""


def columns(
    source: Source,
    table: str,
    names: Sequence[str],
    options: DatasetOptions,
    record: Sequence[str],
    counted: bool = False,
) -> list[ColumnMapping]:
    """The mapping of every canonical column that the file has.

    record: cells of one row, which show how times are written. counted: the time column holds nanoseconds
    since the start.

    Raises:
        InputError: a column is missing, named twice or in an unknown unit.
    """
    if len(set(names)) != len(names):
        raise InputError(f"{source.shown}: two columns have one name in the header {', '.join(names)}")
    made, given = [], constants(table, names, options)
    for field in TABLES[table]:
        if field.name in OWN:
            continue
        name = options.columns.get(field.name, field.name)
        if name in names:
            at = list(names).index(name)
            sample = record[at] if at < len(record) else ""
            made.append(_column(source, field, name, options, sample, counted))
        elif field.name in options.columns or (not field.nullable and field.name not in given):
            raise InputError(f"{source.shown}: no column {name!r} for {field.name}{suggestion(name, names)}")
    return made


def _column(
    source: Source, field: pa.Field, name: str, options: DatasetOptions, sample: str, counted: bool
) -> ColumnMapping:
    unit = options.units.get(field.name)
    if pa.types.is_timestamp(field.type):
        return _axis(source, field.name, name, options, counted) or _time(
            source, field.name, name, unit, options.timezone, sample
        )
    if pa.types.is_string(field.type):
        return cell_conversion.text(field.name, name)
    factors = units.units_of(field.name)
    if unit is not None and unit not in factors:
        raise InputError(f"{source.shown}: {field.name} in {unit!r} is unknown{suggestion(unit, factors)}")
    factor = 1.0 if unit is None else factors[unit]
    made = (cell_conversion.whole if pa.types.is_integer(field.type) else cell_conversion.number)(
        field.name, name, factor
    )
    made = replace(made, hint=partial(_unit_hint, field.name))
    return _comma(made) if options.decimal == "," else made


def _comma(made: ColumnMapping) -> ColumnMapping:
    """The mapping of numbers with a decimal comma; points stand between groups of three digits."""

    def convert(cells: pa.Array) -> pa.Array:
        trimmed = pc.utf8_trim_whitespace(cells)
        if not pc.all(pc.fill_null(pc.match_substring_regex(trimmed, _COMMA), True)).as_py():
            raise pa.ArrowInvalid("a number without a decimal comma")
        return made.convert(pc.replace_substring(pc.replace_substring(trimmed, ".", ""), ",", "."))

    def one(cell: str) -> object:
        raise ValueError(cell)

    reason = f"{made.reason} with a decimal comma"
    return replace(made, direct=pa.string(), convert=convert, one=one, reason=reason)


def _axis(
    source: Source, target: str, name: str, options: DatasetOptions, counted: bool
) -> ColumnMapping | None:
    """The mapping of a time that is counted or written in a stated way; None for others."""
    is_axis = target == TIME_COLUMN.get(options.table or "", "ts")
    if is_axis and counted:
        start = time_axis.start_ns(options, source.shown, target)
        return cell_conversion.epoch(target, name, 1e-9, start)
    if options.time is not None and options.time.mode == "elapsed":
        start = time_axis.start_ns(options, source.shown, target)
        return time_axis.elapsed(target, name, options.time.unit_s, start)
    if options.time_format is not None:
        return time_axis.formatted(target, name, options.time_format, options.timezone)
    return None


def _time(
    source: Source, target: str, name: str, unit: str | None, timezone: str, sample: str
) -> ColumnMapping:
    if unit is not None and unit not in _TIME_UNITS:
        raise InputError(f"{source.shown}: {target} in {unit!r} is unknown{suggestion(unit, _TIME_UNITS)}")
    if unit is not None:
        return cell_conversion.epoch(target, name, _TIME_UNITS[unit])
    if sample.strip().replace(".", "", 1).isdigit():
        made = cell_conversion.epoch(target, name)
    else:
        made = cell_conversion.instant(target, name, timezone, sample)
    return replace(made, hint=partial(_time_hint, target))


def _time_hint(target: str, cell: str) -> str:
    """The unit in which a number would be a time of 1990 to 2100, if it is none in seconds."""
    try:
        value = float(cell)
    except ValueError:
        return ""
    fitting = [unit for unit, factor in _TIME_UNITS.items() if 20 * _YEAR_S <= value * factor < 130 * _YEAR_S]
    if not fitting or fitting == ["s"]:
        return ""
    return f'; as {_SPELT[fitting[0]]} it would be: say [units] {target} = "{fitting[0]}" in dataset.toml'


def _unit_hint(target: str, cell: str) -> str:
    """Advice for a number with its unit beside it."""
    found = _WITH_UNIT.fullmatch(cell.strip())
    if found is None:
        return ""
    said, known = found[1], units.units_of(target)
    near = said if said in known else next(iter(get_close_matches(said, known, n=1)), next(iter(known)))
    return f'; leave only the number in the cell and say [units] {target} = "{near}" in dataset.toml'


def constants(table: str, names: Sequence[str], options: DatasetOptions) -> dict[str, object]:
    """Values of dataset.toml for all rows, of columns that the file lacks.

    Raises:
        UsageError: a value does not fit its column.
    """
    given: dict[str, object] = dict(options.values)
    if table == "link_samples":
        stated = {"streams": options.streams, "kind": options.kind}
        given = {name: value for name, value in stated.items() if value is not None} | given
    return {
        name: _fit(TABLES[table].field(name), value)
        for name, value in given.items()
        if name in TABLES[table].names and options.columns.get(name, name) not in names
    }


def _fit(field: pa.Field, value: object) -> object:
    """The value in the type of its column; numbers are in the unit of the column's name."""
    try:
        return pa.scalar(str(value) if pa.types.is_string(field.type) else value, _wide(field.type))
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(f"dataset.toml values.{field.name}: {value!r} does not fit: {error}") from error


def _wide(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_integer(kind) else kind
