"""Rows to Parquet parts: sorted by time, compressed, put into the lake while the next rows are being read."""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.core import durable
from ingest.lake import lake
from ingest.lake.manifests import Part
from ingest.lake.schema import TIME_COLUMN

ROW_GROUP = 1 << 17


class PartWriter:
    """Writes the parts of one data set in the background, one at a time, in order.

    A part is no part of the lake until a manifest names it, so what a failed ingest has written is harmless.
    """

    def __init__(self, store: Path, dataset: str):
        self._store, self._dataset = store, dataset
        self._pool = ThreadPoolExecutor(1)
        self._written: list[Future[Part]] = []

    def write(self, table: str, make: Callable[[], pa.Table]) -> None:
        """Write what `make` returns as a part of `table`; waits for the part before, so memory is bounded."""
        if self._written:
            self._written[-1].result()
        self._written.append(self._pool.submit(lambda: self._put(table, make())))

    def finish(self) -> list[Part]:
        """All parts, when the last one is on the disk."""
        self._pool.shutdown()
        return [part.result() for part in self._written]

    def give_up(self) -> None:
        """Stop; what was written is left for the next ingest to clean."""
        self._pool.shutdown(cancel_futures=True)

    def _put(self, table: str, rows: pa.Table) -> Part:
        data = encoded(in_time_order(table, rows))
        digest = hashlib.sha256(data).hexdigest()
        name = f"{table}/dataset={self._dataset}/{digest}.parquet"
        durable.put(lake.folder(self._store) / name, data, idempotent=True)
        return Part(table, name, rows.num_rows, len(data), digest)


def in_time_order(table: str, rows: pa.Table) -> pa.Table:
    """The rows sorted by the table's time column, equal times in the order they came."""
    column = TIME_COLUMN.get(table, "ts")
    if column not in rows.column_names or rows.num_rows < 2:
        return rows
    ticks = rows.column(column).cast(pa.int64())
    times = np.asarray(ticks.fill_null(np.iinfo(np.int64).min) if ticks.null_count else ticks)
    if (times[1:] >= times[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(times, kind="stable")))


def encoded(rows: pa.Table) -> bytes:
    """The rows as Parquet: zstd, row groups of about 128 k, a checksum in every page."""
    sink = pa.BufferOutputStream()
    # Without the Arrow schema the file says only what Parquet can: text stays text, not "dictionary".
    texts, integers = _kinds(rows.schema)
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        row_group_size=ROW_GROUP,
        store_schema=False,
        use_dictionary=texts,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def _kinds(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """Columns with few different values, and columns of integers and instants, which grow in small steps."""
    texts = [f.name for f in schema if pa.types.is_dictionary(f.type) or pa.types.is_string(f.type)]
    steps = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_timestamp(f.type)]
    return texts, steps
