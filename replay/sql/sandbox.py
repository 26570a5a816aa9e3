"""A DuckDB that can read given files and nothing else, and answers a statement within limits.

Configuration alone does not protect these files: `COPY ... (use_tmp_file false)` overwrites a file that may
be read. So only statements that passed `statement.checked` run here.
"""

import os
import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from ingest.core.errors import UsageError
from ingest.lake import duckdb_literals
from replay.sql.interruptible import Rows
from replay.sql.statement import Statement

_SIZE = re.compile(r"\d+(\.\d+)? ?([KMGT]i?B|%)", re.IGNORECASE)
_ANSWER_SHARE = 4
"""The rows of an answer may take one part in so many of the memory."""
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

    DuckDB's memory limit does not count rows that it has handed over, so they are counted here.

    Raises:
        UsageError: it took longer than `timeout_s`, or its rows take too much memory.
        duckdb.Error: DuckDB refuses it.
    """
    left = _bytes_of_memory(connection) // _ANSWER_SHARE
    rows = Rows(connection, statement.text, limits.timeout_s)
    batches = []
    with closing(rows.batches()) as coming:
        for batch in coming:
            batches.append(batch)
            left -= batch.get_total_buffer_size()
            if left < 0:
                raise UsageError(
                    "SQL: the answer is too large for the memory of a query; aggregate it, add LIMIT, "
                    "or give --memory"
                )
    return pa.Table.from_batches(batches, rows.schema)


def _bytes_of_memory(connection: duckdb.DuckDBPyConnection) -> int:
    """Returns the memory limit that is set, which DuckDB tells as `11.7 GiB`."""
    ((limit,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = str(limit).split()
    return int(float(number) * 1024 ** (" KMGTP".find(unit[0]) if unit.endswith("iB") else 0))


def message(error: BaseException, lines: int = 4) -> str:
    """Returns the beginning of DuckDB's message, without its advice on settings and extensions."""
    said = _ADVICE.split(str(error), maxsplit=1)[0].splitlines()
    return "\n".join([line for line in said if line.strip()][:lines])
