"""Any CSV or Parquet file whose columns are the canonical ones, by name or by a mapping in dataset.toml.

Without a `table` in dataset.toml the header must fit exactly one canonical table: only known columns, all
required ones, and one more at least. Times are ISO 8601 (zone `timezone` if they bear none) or seconds since
1970; `[units]` says what else. `[values]` gives columns that the file lacks one value for all rows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, partial
from pathlib import PurePath

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core import units
from ingest.core.config import suggestion
from ingest.core.errors import InputError, UsageError
from ingest.lake.schema import TABLES
from ingest.lake.validate import ADDED
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.cell_conversion import ColumnMapping
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source

_PARQUET = b"PAR1"
_OWN = (*ADDED, "source_row")
_PARQUET_ROWS = 1 << 16
_TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SPELT = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_YEAR_S = 365.25 * 86400
_WITH_UNIT = re.compile(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*([A-Za-z%][A-Za-z/%]*)")
"""A number and what it counts, such as `800 Mb/s`."""


class Columns:
    """The generic reader."""

    name = "columns"
    version = 1
    tables = tuple(table for table in TABLES if table != "rejects")
    settings = ("table", "columns", "units", "values")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for a CSV whose header fits exactly one table.

        Other CSVs, and Parquet, need a `table` in dataset.toml.
        """
        return len(_fitting(csv_blocks.header(head))) == 1

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields typed columns, block by block."""
        if source.head.startswith(_PARQUET):
            yield from _read_parquet(source, options)
            return
        mark = options.delimiter
        names = csv_blocks.header(source.head, mark)
        table = _table(source, names, options)
        columns = _columns(source, table, names, options, csv_blocks.first_record(source.head, mark))
        constants = _constants(table, names, options)
        yield from csv_blocks.side_by_side(
            source, cell_conversion.Typed(table, names, columns, constants), mark
        )

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        return ()


def _fitting(names: Sequence[str]) -> list[str]:
    """Tables whose columns include all these names and whose required columns are among them."""
    given = set(names)
    if len(given) < len(names):
        return []
    return [table for table, required, allowed in _shapes() if required < given <= allowed]


@cache
def _shapes() -> tuple[tuple[str, set[str], set[str]], ...]:
    """Each table with the names that a file for it must have, and may have."""
    shapes = []
    for table in Columns.tables:
        fields = [field for field in TABLES[table] if field.name not in _OWN]
        required = {field.name for field in fields if not field.nullable}
        shapes.append((table, required, {field.name for field in fields}))
    return tuple(shapes)


def _table(source: Source, names: Sequence[str], options: DatasetOptions) -> str:
    """The table the file goes to.

    Raises:
        InputError: neither dataset.toml nor the header determines it.
    """
    if options.table is not None:
        return options.table
    mapped = {own: canonical for canonical, own in options.columns.items()}
    fitting = _fitting([mapped.get(name, name) for name in names])
    if len(fitting) != 1:
        raise InputError(
            f"{source.shown}: its columns fit {fitting or 'no table'}; set table in dataset.toml"
        )
    return fitting[0]


def _columns(
    source: Source, table: str, names: Sequence[str], options: DatasetOptions, record: Sequence[str]
) -> list[ColumnMapping]:
    """The mapping of every canonical column that the file has.

    Raises:
        InputError: a column is missing, named twice or in an unknown unit.
    """
    if len(set(names)) != len(names):
        raise InputError(f"{source.shown}: two columns have one name in the header {', '.join(names)}")
    made, constants = [], _constants(table, names, options)
    for field in TABLES[table]:
        if field.name in _OWN:
            continue
        name = options.columns.get(field.name, field.name)
        if name in names:
            at = list(names).index(name)
            sample = record[at] if at < len(record) else ""
            made.append(_column(source, field, name, options, sample))
        elif field.name in options.columns or (not field.nullable and field.name not in constants):
            raise InputError(f"{source.shown}: no column {name!r} for {field.name}{suggestion(name, names)}")
    return made


def _column(
    source: Source, field: pa.Field, name: str, options: DatasetOptions, sample: str
) -> ColumnMapping:
    unit = options.units.get(field.name)
    if pa.types.is_timestamp(field.type):
        return _time(source, field.name, name, unit, options.timezone, sample)
    if pa.types.is_string(field.type):
        return cell_conversion.text(field.name, name)
    factors = units.units_of(field.name)
    if unit is not None and unit not in factors:
        raise InputError(f"{source.shown}: {field.name} in {unit!r} is unknown{suggestion(unit, factors)}")
    factor = 1.0 if unit is None else factors[unit]
    made = (cell_conversion.whole if pa.types.is_integer(field.type) else cell_conversion.number)(
        field.name, name, factor
    )
    return replace(made, hint=partial(_unit_hint, field.name))


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


def _constants(table: str, names: Sequence[str], options: DatasetOptions) -> dict[str, object]:
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


def _read_parquet(source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
    """Parquet takes the way of text, so that both forms of a file mean the same."""
    try:
        with source.seekable() as stream:
            file = pq.ParquetFile(stream)
            names = file.schema_arrow.names
            table = _table(source, names, options)
            row = 1
            columns: list[ColumnMapping] = []
            for rows in file.iter_batches(_PARQUET_ROWS):
                texts = csv_blocks.Texts(_as_text(rows), pa.array(range(row, row + len(rows))), len(rows), ())
                row += len(rows)
                columns = columns or _columns(source, table, names, options, _first(texts))
                yield cell_conversion.from_texts(table, texts, columns, _constants(table, names, options))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{source.shown}: not a readable Parquet file: {error}") from error


def _as_text(rows: pa.RecordBatch) -> dict[str, pa.StringArray]:
    plain = (
        values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        for values in rows.columns
    )
    return {name: values.cast(pa.string()) for name, values in zip(rows.schema.names, plain, strict=True)}


def _first(texts: csv_blocks.Texts) -> list[str]:
    return [column[0].as_py() or "" for column in texts.columns.values()]
