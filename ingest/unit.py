"""A unit of ingest: the rows of some sources on their way into the lake, committed by one manifest or not at all.

Thousands of small files share one unit, hence a few Parquet parts and one manifest; a large file has a unit
of its own, whose parts are written while it is read, so memory stays bounded.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ingest import durable, lake, validate
from ingest.dataset import DatasetOptions
from ingest.reader import Batch, Reader, Reject
from ingest.schema import TABLES, TIME_COLUMN
from ingest.source import Source

PART_ROWS = 1 << 20
"""Rows of a part; a unit of small files is closed at this size."""
ROW_GROUP = 1 << 17
UNIT_SOURCES = 20_000
"""Sources of a unit at most, so that manifests stay small."""
_RAW_LENGTH = 1000
"""How much of an offending cell is kept."""
_SITES = ("src", "dst", "domain", "host")
"""Columns whose values `sites` in dataset.toml renames."""


@dataclass(slots=True)
class Taken:
    """What became of one source in this unit."""

    source: Source
    reader: Reader
    rows_in: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    rejected: int = 0

    def entry(self, options: str) -> lake.SourceEntry:
        """The source's line in the manifest."""
        return lake.SourceEntry(
            self.source.name,
            self.source.sha256,
            self.source.size_bytes,
            self.reader.name,
            self.reader.version,
            options,
            tuple(sorted(self.rows.items())),
            self.rejected,
        )


class Unit:
    """Collects rows source by source; `commit` makes them part of the lake."""

    def __init__(self, store: Path, options: DatasetOptions):
        self.store, self.options = store, options
        self.taken: list[Taken] = []
        self.rows = 0
        self._lists: dict[str, _Lists] = defaultdict(_Lists)
        self._chunks: dict[str, list[pa.Table]] = defaultdict(list)
        self._rejects = _Rejects()
        self._parts: list[lake.Part] = []
        self._kept: list[lake.SourceEntry] = []
        self._assumptions: set[str] = set(options.assumptions)

    @property
    def full(self) -> bool:
        """Whether the unit should be committed before it takes another source."""
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
        try:
            for batch in reader.read(source, self.options):
                self._add(index, batch)
                if not source.small:
                    self._write(PART_ROWS)
        except BaseException:
            self._roll_back(mark)
            raise
        self._assumptions.update(reader.assumptions(self.options))
        self.rows += taken.rows_in
        for lists in self._lists.values():
            if lists.rows >= ROW_GROUP:
                self._convert()
                break
        return taken

    def retain(self, entries: Iterable[lake.SourceEntry], rows: Iterable[tuple[str, pa.Table]]) -> None:
        """Take over sources of a manifest that this unit replaces, with their rows as they lie in the lake."""
        self._kept.extend(entries)
        for table, part in rows:
            self._parts.append(self._store(table, part))

    def commit(self, replaces: Sequence[str]) -> None:
        """Write what is left and the manifest; after this the rows are in the lake."""
        self._convert()
        self._write(1)
        self._check()
        meta = self.options.to_json() | {"assumptions": sorted(self._assumptions)}
        entries = [*self._kept, *(taken.entry(self.options.digest()) for taken in self.taken)]
        lake.commit(self.store, self.options.name, meta, self._parts, entries, replaces)

    def _check(self) -> None:
        for taken in self.taken:
            out = taken.rows.total() + taken.rejected
            assert out == taken.rows_in, f"{taken.source.shown}: {taken.rows_in} rows in, {out} out"

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

    def _add(self, index: int, batch: Batch) -> None:
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
        for reject in rejects:
            self._rejects.add(index, reject)
            self.taken[index].rejected += 1

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
            self._chunks[table].append(rows.append_column("_source", pa.array(origin)))

    def _write(self, least: int) -> None:
        """Write a part of every table that has at least `least` rows waiting."""
        for table, chunks in self._chunks.items():
            if sum(chunk.num_rows for chunk in chunks) >= least:
                self._parts.append(self._store(table, self._finished(table, pa.concat_tables(chunks))))
                chunks.clear()
        if self._rejects.rows >= least:
            self._parts.append(self._store("rejects", self._rejects.table(self.options.name, self.taken)))
            self._rejects = _Rejects()

    def _finished(self, table: str, rows: pa.Table) -> pa.Table:
        """The rows with their origin, sorted by time."""
        rows = _sorted(rows, TIME_COLUMN.get(table, "ts"))
        names = pa.array([taken.source.name for taken in self.taken])
        origin = rows.column("_source").combine_chunks()
        added = {
            "dataset": pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(rows.num_rows, np.int8)), pa.array([self.options.name])
            ),
            "source_file": pa.DictionaryArray.from_arrays(origin, names),
        }
        arrays = [added.get(name) or rows.column(name) for name in TABLES[table].names]
        return pa.Table.from_arrays(arrays, names=TABLES[table].names)

    def _store(self, table: str, rows: pa.Table) -> lake.Part:
        data = encoded(rows)
        digest = hashlib.sha256(data).hexdigest()
        name = f"{table}/dataset={self.options.name}/{digest}.parquet"
        durable.put(lake.folder(self.store) / name, data, idempotent=True)
        return lake.Part(table, name, rows.num_rows, len(data), digest)


def _text(cell: pa.Scalar) -> str:
    """A cell as it is quoted in a reject; instants as their nanoseconds, which always exist."""
    if not cell.is_valid:
        return ""
    return str(cell.value if pa.types.is_timestamp(cell.type) else cell.as_py())


def encoded(rows: pa.Table) -> bytes:
    """The rows as Parquet: zstd, row groups of about 128 k."""
    sink = pa.BufferOutputStream()
    # Without the Arrow schema the file says only what Parquet can: text stays text, not "dictionary".
    pq.write_table(rows, sink, compression="zstd", row_group_size=ROW_GROUP, store_schema=False)
    return bytes(sink.getvalue())


def _sorted(rows: pa.Table, column: str) -> pa.Table:
    if column not in rows.column_names or rows.num_rows < 2:
        return rows
    ticks = rows.column(column).cast(pa.int64())
    times = np.asarray(ticks.fill_null(np.iinfo(np.int64).min) if ticks.null_count else ticks)
    if (times[1:] >= times[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(times, kind="stable")))


def _renamed(rows: pa.Table, sites: Any) -> pa.Table:
    """Sites replaced by the domains that `dataset.toml` names."""
    if not sites:
        return rows
    for column in _SITES:
        if column in rows.column_names:
            at = rows.column_names.index(column)
            coded = pc.dictionary_encode(rows.column(column)).combine_chunks()
            if isinstance(coded, pa.ChunkedArray):
                coded = coded.chunk(0)
            names = pa.array([sites.get(v, v) for v in coded.dictionary.to_pylist()], pa.string())
            rows = rows.set_column(at, column, names.take(coded.indices))
    return rows


class _Lists:
    """Rows as Python lists, column by column, with the source of each run of rows."""

    def __init__(self) -> None:
        self.origins: list[tuple[int, int]] = []
        self._batches: list[Any] = []
        self.rows = 0

    def extend(self, index: int, columns: Any) -> None:
        """Append the rows of one batch."""
        count = len(columns["source_row"])
        self.origins.append((index, count))
        self._batches.append(columns)
        self.rows += count

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` batches."""
        self.rows -= sum(count for _, count in self.origins[length:])
        del self.origins[length:], self._batches[length:]

    def columns(self) -> dict[str, list[Any]]:
        """All batches joined; a column that a batch lacks is null there."""
        names = {name for batch in self._batches for name in batch}
        joined: dict[str, list[Any]] = {name: [] for name in sorted(names)}
        for (_, count), batch in zip(self.origins, self._batches, strict=True):
            for name, values in joined.items():
                values.extend(batch.get(name) or [None] * count)
        return joined

    def indices(self) -> np.ndarray:
        """Index of the source of every row."""
        index, count = np.array(self.origins, np.int64).T
        return np.repeat(index.astype(np.int32), count)


class _Rejects:
    """Rejected rows waiting to be written."""

    def __init__(self) -> None:
        self._held: list[tuple[int, Reject]] = []

    @property
    def rows(self) -> int:
        """How many wait."""
        return len(self._held)

    def add(self, index: int, reject: Reject) -> None:
        """Keep one reject of the source with this index."""
        self._held.append((index, reject))

    def truncate(self, length: int) -> None:
        """Forget all but the first `length`."""
        del self._held[length:]

    def table(self, dataset: str, taken: Sequence[Taken]) -> pa.Table:
        """The rejects in the canonical schema; `ingest_id` names content, reader and version."""
        sources = [taken[index].source.name for index, _ in self._held]
        ids = [f"{t.source.sha256[:12]}-{t.reader.name}-{t.reader.version}" for t in taken]
        columns = {
            "dataset": [dataset] * self.rows,
            "source_file": sources,
            "source_row": [reject.row for _, reject in self._held],
            "column": [reject.column for _, reject in self._held],
            "raw": [reject.raw[:_RAW_LENGTH] for _, reject in self._held],
            "reason": [reject.reason for _, reject in self._held],
            "ingest_id": [ids[index] for index, _ in self._held],
        }
        return pa.table(columns, schema=TABLES["rejects"])
