"""A unit of ingest: the rows of some sources on their way into the lake, committed as one or not at all.

Thousands of small files share one unit, hence a few Parquet parts and one manifest; a large file has a unit
of its own, whose parts are written while it is read, so memory stays bounded.
"""

import csv
import lzma
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.core.errors import InputError, TwinError
from ingest.lake import lake, validate
from ingest.lake.manifests import SourceEntry
from ingest.lake.part_writer import ROW_GROUP, PartWriter
from ingest.lake.schema import SITES, TABLES, TIME_COLUMN
from ingest.lake.undated import UNDATED, is_dated
from ingest.parsing.dataset import DatasetOptions
from ingest.parsing.reader import Reader, Reject, RowBatch
from ingest.parsing.row_buffer import RejectList, RowLists
from ingest.parsing.source import Source

PART_ROWS = 1 << 19
"""Rows of a part; a unit of small files is closed at this size."""
UNIT_SOURCES = 20_000
"""Sources of a unit at most, so that manifests stay small."""
_REJECTS = 1 << 16
"""Rejects of a large source that wait at most; they are Python objects."""
EXAMPLES = 3
"""Rejects of a source that the report quotes."""
_UNREADABLE = (pa.ArrowException, csv.Error, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)
"""Exceptions of libraries for content of another format."""


@dataclass(slots=True)
class Taken:
    """Counts of one source in this transaction."""

    source: Source
    reader: Reader
    rows_in: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    rejected: int = 0
    examples: list[Reject] = field(default_factory=list)
    undated: bool = False

    @property
    def ingest_id(self) -> str:
        """Identity of a reading of a source, for its rejects; the same in every run."""
        return f"{self.source.sha256[:12]}-{self.reader.name}-{self.reader.version}"

    def entry(self, options: str) -> SourceEntry:
        """The source's line in the manifest."""
        return SourceEntry(
            self.source.name,
            self.source.sha256,
            self.source.size_bytes,
            self.reader.name,
            self.reader.version,
            options,
            tuple(sorted(self.rows.items())),
            self.rejected,
        )


class Transaction:
    """Collects rows source by source; `commit` makes them part of the lake."""

    def __init__(self, store: Path, options: DatasetOptions):
        self.store, self.options = store, options
        self.taken: list[Taken] = []
        self.rows = 0
        self._lists: dict[str, RowLists] = defaultdict(RowLists)
        self._chunks: dict[str, list[pa.Table]] = defaultdict(list)
        self._rejects = RejectList()
        self._writer = PartWriter(store, options.name)
        self._kept: list[SourceEntry] = []
        self._assumptions: set[str] = set(options.assumptions)

    @property
    def full(self) -> bool:
        """True if it should be committed before it takes another source."""
        return self.rows >= PART_ROWS or len(self.taken) >= UNIT_SOURCES

    def take(self, source: Source, reader: Reader) -> Taken:
        """Read all of a source into the unit; if the reader fails, the unit is as before.

        Raises:
            InputError: the reader could not read the source.
        """
        taken = Taken(source, reader)
        index = len(self.taken)
        self.taken.append(taken)
        mark = self._mark()
        assumed = set(reader.assumptions(self.options))
        try:
            for batch in reader.read(source, self.options):
                self._add(index, batch)
                assumed.update(batch.assumed)
                if not source.small:
                    self._write(PART_ROWS)
        except _UNREADABLE as error:
            self._roll_back(mark)
            raise InputError(f"{source.shown}: not readable as {reader.name}: {error}") from error
        except BaseException:
            self._roll_back(mark)
            raise
        self._assumptions.update(assumed)
        self.rows += taken.rows_in
        for lists in self._lists.values():
            if lists.rows >= ROW_GROUP:
                self._convert()
                break
        return taken

    def retain(self, entries: Iterable[SourceEntry], rows: Iterable[tuple[str, pa.Table]]) -> None:
        """Take over sources of a manifest that this unit replaces, with their rows as they are there."""
        self._kept.extend(entries)
        for table, part in rows:
            self._writer.write(table, partial(_same, part))

    def commit(self, replaces: Sequence[str]) -> None:
        """Write what is left and the manifest; after this the rows are in the lake."""
        self._convert()
        self._write(1)
        self._check()
        parts = self._writer.finish()
        meta = self.options.to_json() | {"assumptions": sorted(self._assumptions)}
        options = self.options.digest()
        entries = [*self._kept, *(taken.entry(options) for taken in self.taken)]
        lake.commit(self.store, self.options.name, meta, parts, entries, replaces)

    def give_up(self) -> None:
        """Leave the lake as it is."""
        self._writer.give_up()

    def _check(self) -> None:
        for taken in self.taken:
            out = taken.rows.total() + taken.rejected
            if out != taken.rows_in:
                raise TwinError(
                    f"{taken.source.shown}: {taken.rows_in} rows in, {out} out: an error of the reader "
                    f"{taken.reader.name}; nothing was stored, please report it"
                )

    def _mark(self) -> tuple[dict[str, int], dict[str, int], int]:
        return (
            {table: len(chunks) for table, chunks in self._chunks.items()},
            {table: len(lists.origins) for table, lists in self._lists.items()},
            self._rejects.rows,
        )

    def _roll_back(self, mark: tuple[dict[str, int], dict[str, int], int]) -> None:
        chunks, origins, rejects = mark
        for table in self._chunks:
            del self._chunks[table][chunks.get(table, 0) :]
        for table in self._lists:
            self._lists[table].truncate(origins.get(table, 0))
        self._rejects.truncate(rejects)
        self.taken.pop()

    def _add(self, index: int, batch: RowBatch) -> None:
        taken = self.taken[index]
        taken.rows_in += batch.rows_in
        self._reject(index, batch.rejects)
        columns = batch.columns
        if not len(columns["source_row"]):
            return
        if isinstance(columns["source_row"], list):
            self._lists[batch.table].extend(index, columns)
        else:
            rows = validate.canonical(batch.table, columns)
            self._keep(batch.table, rows, np.full(rows.num_rows, index, np.int32), batch.raw)

    def _reject(self, index: int, rejects: Iterable[Reject]) -> None:
        taken = self.taken[index]
        for reject in rejects:
            self._rejects.add(index, reject)
            taken.rejected += 1
            if len(taken.examples) < EXAMPLES:
                taken.examples.append(reject)

    def _convert(self) -> None:
        """Turn collected Python lists into checked Arrow chunks."""
        for table, lists in self._lists.items():
            if lists.rows:
                self._keep(table, validate.canonical(table, lists.columns()), lists.indices(), {})
        self._lists.clear()

    def _keep(self, table: str, rows: pa.Table, origin: np.ndarray, raw: Mapping[str, Any]) -> None:
        """Store the rows that keep the rules, reject the others, with the first rule each breaks."""
        rows = _renamed(rows, self.options.sites)
        bad = np.zeros(rows.num_rows, bool)
        for column, mask, reason in validate.faults(table, rows):
            broken = np.asarray(mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask) & ~bad
            bad |= broken
            for at in np.flatnonzero(broken):
                text = _text((raw[column] if column in raw else rows.column(column))[int(at)])
                row = rows.column("source_row")[int(at)].as_py()
                self._reject(int(origin[at]), [Reject(row, column, text, reason)])
        if bad.any():
            rows, origin = rows.filter(pa.array(~bad)), origin[~bad]
        counts = np.bincount(origin, minlength=0)
        for index in np.flatnonzero(counts):
            self.taken[index].rows[table] += int(counts[index])
        if rows.num_rows:
            if self._is_undated(table, rows):
                self._assumptions.add(UNDATED)
                for index in np.flatnonzero(counts):
                    self.taken[index].undated = True
            rows = validate.settled(table, rows)
            self._chunks[table].append(rows.append_column("_source", pa.array(origin)))

    def _is_undated(self, table: str, rows: pa.Table) -> bool:
        """True if the rows begin on the day at which series without dates and stated start are laid."""
        column = TIME_COLUMN.get(table, "ts")
        if column not in rows.column_names:
            return False
        first_ns = pc.min(rows.column(column).cast(pa.int64())).as_py()
        return first_ns is not None and not is_dated(first_ns, self.options.start)

    def _write(self, least: int) -> None:
        """Write a part of every table that has at least `least` rows waiting."""
        for table, chunks in self._chunks.items():
            if sum(chunk.num_rows for chunk in chunks) >= least:
                self._writer.write(table, self._finisher(table, chunks))
                self._chunks[table] = []
        if self._rejects.rows >= min(least, _REJECTS):
            rejects = self._rejects.table(
                self.options.name, [t.source.name for t in self.taken], [t.ingest_id for t in self.taken]
            )
            self._writer.write("rejects", lambda: rejects)
            self._rejects = RejectList()

    def _finisher(self, table: str, chunks: list[pa.Table]) -> Callable[[], pa.Table]:
        """Makes one table of the chunks, with data set and file of every row."""
        files = pa.array([taken.source.name for taken in self.taken])
        dataset = pa.array([self.options.name])

        def finished() -> pa.Table:
            rows = pa.concat_tables(chunks).unify_dictionaries()
            origin = rows.column("_source").combine_chunks()
            none = pa.array(np.zeros(rows.num_rows, np.int8))
            added = {
                "dataset": pa.DictionaryArray.from_arrays(none, dataset),
                "source_file": pa.DictionaryArray.from_arrays(origin, files),
            }
            names = TABLES[table].names
            arrays = [added[name] if name in added else rows.column(name) for name in names]
            return pa.Table.from_arrays(arrays, names=names)

        return finished


def _same(rows: pa.Table) -> pa.Table:
    return rows


def _text(cell: pa.Scalar) -> str:
    """A cell as it is quoted in a reject; instants as their nanoseconds, which always exist."""
    if not cell.is_valid:
        return ""
    return str(cell.value if pa.types.is_timestamp(cell.type) else cell.as_py())


def _renamed(rows: pa.Table, sites: Mapping[str, str]) -> pa.Table:
    """Sites replaced by the domains that `dataset.toml` names."""
    for column in SITES if sites else ():
        if column in rows.column_names:
            coded = rows.column(column).combine_chunks()
            coded = coded if isinstance(coded, pa.DictionaryArray) else coded.chunk(0)
            names = pa.array([sites.get(name, name) for name in coded.dictionary.to_pylist()], pa.string())
            at = rows.column_names.index(column)
            rows = rows.set_column(at, column, names.take(coded.indices).dictionary_encode())
    return rows
