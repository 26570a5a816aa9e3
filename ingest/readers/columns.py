"""Any CSV, Parquet or JSON file: columns are the canonical ones by name, or by a mapping in dataset.toml.

Without a `table` in dataset.toml the header must fit exactly one canonical table: only known columns, all
required ones, and one more at least. Times are ISO 8601 (zone `timezone` if they bear none) or seconds since
1970; `[units]` says what else. `[values]` gives columns that the file lacks one value for all rows. How JSON,
wide tables and series without dates are mapped stands in `ingest/mapping/`.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import PurePath

from ingest.core.errors import InputError
from ingest.lake.schema import TABLES, TIME_COLUMN
from ingest.mapping import column_mapping, plausible, text_rows, time_axis
from ingest.mapping.melting import Melting, melted_options
from ingest.parsing import cell_conversion, csv_blocks
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import RowBatch
from ingest.parsing.source import Source


class Columns:
    """The generic reader."""

    name = "columns"
    version = 1
    tables = tuple(table for table in TABLES if table != "rejects")
    settings = ("table", "columns", "units", "values")

    def can_read(self, path: PurePath, head: bytes) -> bool:
        """Returns True for a CSV whose header fits exactly one table.

        Other CSVs, Parquet and JSON need a `table` in dataset.toml.
        """
        return len(_fitting(csv_blocks.header(head))) == 1

    def read(self, source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
        """Yields typed columns, block by block, of each table that the file holds.

        Raises:
            InputError: it is no such table, or the mapping is wrong for it.
        """
        source = text_rows.without_lines(source, options.skip_lines)
        for one in options.each_table():
            yield from _one_table(source, one)

    def assumptions(self, options: DatasetOptions) -> tuple[str, ...]:
        """Returns what the files do not say and the reader assumes, a sentence each."""
        dated = any(one.start or (one.time and one.time.start) for one in options.each_table())
        if dated or not any(word.endswith(".undated") for word in options.accept):
            return ()
        return (f"columns: no dates; laid at {options.start_or_default().isoformat()}, an arbitrary year",)


def _one_table(source: Source, options: DatasetOptions) -> Iterator[RowBatch]:
    frame = text_rows.frame(source, options)
    names = list(frame.names)
    table = _table(source, names, options)
    target = TIME_COLUMN.get(table, "ts")
    turn, counted = time_axis.turned(options, names, target, source.shown)
    if counted is not None and counted not in names:
        names.append(counted)
    melting = Melting(options.melt, names, source.shown) if options.melt else None
    if melting is not None:
        options, names = melted_options(options, melting), melting.names
    cells = dict(zip(frame.names, frame.sample, strict=False))
    sample = [cells.get(name, "") for name in names]
    columns = column_mapping.columns(source, table, names, options, sample, counted is not None)
    constants = column_mapping.constants(table, names, options)
    if turn is None and melting is None and not _read_whole(source):
        typed = cell_conversion.Typed(table, names, columns, constants)
        batches = csv_blocks.side_by_side(source, typed, options.delimiter)
    else:
        blocks = frame.blocks if turn is None else turn(frame.blocks)
        blocks = blocks if melting is None else melting.long(blocks)
        batches = (cell_conversion.from_texts(table, block, columns, constants) for block in blocks)
    if not options.renames:
        yield from batches
        return
    plausible.check_sources(source.shown, {c.target: c.source for c in columns}, options.accept)
    yield from plausible.checked(source.shown, table, batches, options.accept)


def _read_whole(source: Source) -> bool:
    """True for forms that the CSV parser does not take."""
    return source.head.startswith(text_rows.PARQUET) or text_rows.is_json(source.head)


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
        fields = [field for field in TABLES[table] if field.name not in column_mapping.OWN]
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
