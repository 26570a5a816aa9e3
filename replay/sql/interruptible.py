"""The rows of a query that DuckDB computes in a thread, so that Ctrl-C and a timeout work meanwhile."""

import threading
import time
from collections.abc import Generator
from contextlib import suppress
from queue import Empty, Full, Queue

import duckdb
import pyarrow as pa

from ingest.core.errors import UsageError

_ROWS = 10_000
_AHEAD = 8
"""Batches that are computed before they are taken."""
_PATIENCE_S = 1.0
"""How long an interrupted query may take to end. One that sees no interruption (a long computation on one
value) is left behind then, and ends with the process."""
_CHECK_S = 0.2
_KINDS: dict[str, type[duckdb.Error]] = {
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "IO Error": duckdb.IOException,
}
"""Errors of DuckDB that callers tell apart, by how their messages begin."""


class Rows:
    """Batches of the rows of one query; the connection is closed when they end, by whatever.

    Attributes:
        schema: names and types of the columns.

    Raises:
        UsageError: `timeout_s` have passed.
        duckdb.Error: DuckDB refuses the query, or fails.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, text: str, timeout_s: float | None = None):
        self._connection, self._timeout_s, self._began = connection, timeout_s, time.monotonic()
        self._items: Queue[pa.Schema | pa.RecordBatch | BaseException | None] = Queue(_AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(text,), name="sql", daemon=True)
        self._thread.start()
        self.schema: pa.Schema = self._next()

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Returns the batches, once; closing it stops the query."""
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:
            self._stop()

    def _next(self) -> pa.Schema | pa.RecordBatch | None:
        try:
            item = self._item()
        except BaseException:
            self._stop()
            raise
        if isinstance(item, BaseException):
            raise item
        return item

    def _item(self) -> pa.Schema | pa.RecordBatch | BaseException | None:
        """Waits in slices: a signal that another thread received is seen between two of them."""
        while True:
            with suppress(Empty):
                return self._items.get(timeout=_CHECK_S)
            if self._timeout_s is not None and time.monotonic() > self._began + self._timeout_s:
                raise UsageError(
                    f"SQL: stopped after {self._timeout_s:g} s unanswered; narrow the query or give more time"
                )

    def _stop(self) -> None:
        self._stopped.set()
        with suppress(duckdb.ConnectionException):  # the thread has just closed it
            if self._thread.is_alive():
                self._connection.interrupt()
        self._thread.join(_PATIENCE_S)

    def _run(self, text: str) -> None:
        try:
            reader = self._connection.sql(text).to_arrow_reader(_ROWS)
            self._put(reader.schema)
            if all(self._put(batch) for batch in reader):
                self._put(None)
        except (OSError, pa.ArrowException) as error:  # one between two batches comes through Arrow
            kind = _KINDS.get(str(error).split(":")[0], duckdb.Error)
            self._put(kind(str(error)))
        except BaseException as error:  # noqa: BLE001  # raised again by `_next`
            self._put(error)
        finally:
            self._connection.close()

    def _put(self, item: pa.Schema | pa.RecordBatch | BaseException | None) -> bool:
        """Waits until there is room; False: nobody wants more."""
        while not self._stopped.is_set():
            with suppress(Full):
                self._items.put(item, timeout=_CHECK_S)
                return True
        return False
