"""A DuckDB that can read given files and nothing else, and answers a statement within limits.

Configuration alone does not protect these files: `COPY ... (use_tmp_file false)` overwrites a file that may
be read. So only statements that passed `statement.checked` run here.
"""

import os
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from ingest.core.errors import UsageError
from ingest.lake import duckdb_literals
from replay.sql.statement import Statement

_SIZE = re.compile(r"\d+(\.\d+)? ?([KMGT]i?B|%)", re.IGNORECASE)
_ROWS = 10_000
_ANSWER_SHARE = 4
"""The rows of an answer may take one part in so many of the memory."""
_PATIENCE_S = 1.0
"""How long an interrupted query may take to end before it is left to itself."""
_OUT_OF_MEMORY = "Out of Memory Error"
_INPUT_OUTPUT = "IO Error"
_ADVICE = re.compile(r"^(Possible solutions|Please try installing|Stack Trace|\* SET )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one query: seconds (None: any number), and memory, `4GB` or a share of the machine's.

    Raises:
        UsageError: not a positive time or not a size.
    """

    timeout_s: float | None = None
    memory: str = "50%"

    def __post_init__(self) -> None:
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise UsageError(f"timeout {self.timeout_s}: give a positive number of seconds")
        if not _SIZE.fullmatch(self.memory):
            raise UsageError(f"memory {self.memory!r}: give a size as 500MB, 4GB or 50%")


def bound(connection: duckdb.DuckDBPyConnection, limits: Limits, folder: Path | None) -> None:
    """Sets the memory limit, and the folder for what exceeds it (None: nothing may exceed it)."""
    try:
        connection.execute(f"SET memory_limit = {duckdb_literals.text(limits.memory)}")
        connection.execute(f"SET temp_directory = {duckdb_literals.text(str(folder or ''))}")
        if folder is not None:
            disk = os.statvfs(folder)
            half = disk.f_bavail * disk.f_frsize // 2_000_000  # the other half is for runs being written
            connection.execute(f"SET max_temp_directory_size = '{half}MB'")
    except duckdb.Error as error:
        raise UsageError(f"memory {limits.memory!r}: DuckDB refuses it ({message(error, 1)})") from error


def lock(connection: duckdb.DuckDBPyConnection, files: Iterable[Path]) -> None:
    """Takes the network, extensions and all files but these away from a connection, for good."""
    connection.execute(f"SET allowed_paths = {duckdb_literals.readable(files)}")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def answer(connection: duckdb.DuckDBPyConnection, statement: Statement, limits: Limits) -> pa.Table:
    """Returns the rows of a statement and closes the connection.

    The query runs in a thread, so that Ctrl-C works while DuckDB computes: one that cannot be interrupted (a
    long computation on one value) is left behind and ends with the process.

    Raises:
        UsageError: it took longer than `timeout_s`, or its rows take too much memory.
        duckdb.Error: DuckDB refuses it.
    """
    query = _Query(connection, statement, limits)
    query.start()
    try:
        query.join(limits.timeout_s)
        if query.is_alive():
            raise UsageError(
                f"SQL: stopped after {limits.timeout_s:g} s unanswered; narrow the query, or give more time"
            )
    finally:
        if query.is_alive():
            connection.interrupt()
            query.join(_PATIENCE_S)
    return query.result()


class _Query(threading.Thread):
    """The run of one statement; ends with the process."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, statement: Statement, limits: Limits):
        super().__init__(name="sql", daemon=True)
        self._connection, self._statement, self._limits = connection, statement, limits
        self._table: pa.Table | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Reads all rows; DuckDB's limit does not count them, so that they are counted here."""
        try:
            most = _bytes_of_memory(self._connection) // _ANSWER_SHARE
            reader = self._connection.sql(self._statement.text).to_arrow_reader(_ROWS)
            batches = []
            for batch in reader:
                batches.append(batch)
                most -= batch.get_total_buffer_size()
                if most < 0:
                    raise UsageError(
                        "SQL: the answer is too large for the memory of a query; aggregate it, add LIMIT, "
                        "or give --memory"
                    )
            self._table = pa.Table.from_batches(batches, reader.schema)
        except BaseException as error:  # noqa: BLE001  # raised again by `result`
            self._error = error
        finally:
            self._connection.close()

    def result(self) -> pa.Table:
        """Returns the rows, or raises what stopped the query."""
        if _begins(self._error, _OUT_OF_MEMORY):  # an error between two batches comes through Arrow
            raise duckdb.OutOfMemoryException(str(self._error)) from self._error
        if _begins(self._error, _INPUT_OUTPUT):
            raise duckdb.IOException(str(self._error)) from self._error
        if isinstance(self._error, OSError | pa.ArrowException):
            raise duckdb.Error(str(self._error)) from self._error
        if self._error is not None:
            raise self._error
        assert self._table is not None, "a query has ended with rows or an error"
        return self._table


def _begins(error: BaseException | None, words: str) -> bool:
    return isinstance(error, OSError | pa.ArrowException) and str(error).startswith(words)


def _bytes_of_memory(connection: duckdb.DuckDBPyConnection) -> int:
    """Returns the memory limit that is set, which DuckDB tells as `11.7 GiB`."""
    ((limit,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = str(limit).split()
    return int(float(number) * 1024 ** (" KMGTP".find(unit[0]) if unit.endswith("iB") else 0))


def message(error: BaseException, lines: int = 4) -> str:
    """Returns the beginning of DuckDB's message, without its advice on settings and extensions."""
    said = _ADVICE.split(str(error), maxsplit=1)[0].splitlines()
    return "\n".join([line for line in said if line.strip()][:lines])
