"""A log in the Standard Workload Format as arrays, for the simulator of queues: no lake is needed.

`swf.py` reads the same format into the lake. Here every one of the 18 fields is kept, and the header says how
large the machine is. Definition: D. Feitelson, the Parallel Workloads Archive, version 2.2.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.core.errors import InputError
from ingest.parsing import archive, source, text_lines
from ingest.parsing.reader import Reject
from ingest.parsing.source import Source

FIELDS = (
    "job", "submit_s", "wait_s", "run_s", "processors", "cpu_s", "memory_kb", "processors_requested",
    "estimate_s", "memory_requested_kb", "status", "user", "group", "executable", "queue", "partition",
    "preceding_job", "think_s",
)  # fmt: skip
"""The fields of a line in their order; -1 is unknown."""
LARGEST = 2.0**53
"""Numbers up to it are whole numbers without loss."""
_HEADER = re.compile(r";\s*([A-Za-z][A-Za-z ]{0,40}?)\s*:\s*(.*)")


@dataclass(frozen=True, eq=False)
class SwfLog:
    """One log: its header, its lines as an array (rows, 18), the line number of each row, what was rejected,
    and how many rows it had.

    A log of another format may name its jobs and users (`ids`, `users`, by number) and know deadlines
    (rows,), nan where there is none.
    """

    name: str
    header: Mapping[str, str]
    table: NDArray[np.float64]
    line: NDArray[np.int64]
    rejects: tuple[Reject, ...]
    rows_in: int
    ids: Mapping[int, str] = field(default_factory=dict)
    users: Mapping[int, str] = field(default_factory=dict)
    deadline_s: NDArray[np.float64] | None = None

    def column(self, name: str) -> NDArray[np.float64]:
        """Returns one of `FIELDS` (rows,)."""
        return self.table[:, FIELDS.index(name)]

    @property
    def processors(self) -> int | None:
        """Size of the machine: MaxProcs of the header, else MaxNodes; None if neither says it."""
        for key in ("MaxProcs", "MaxNodes"):
            found = re.match(r"\d{1,9}", self.header.get(key, ""))
            if found and int(found[0]):
                return int(found[0])
        return None


def read(path: Path) -> SwfLog:
    """Reads a log; one that is compressed (gzip, xz, bzip2) is read in place.

    Rows that are no jobs (fields missing, not numbers, a number that was there before) are rejected with
    their line and the reason.

    Raises:
        InputError: it cannot be read, or holds no job.
    """
    return of_source(opened(path))


def of_source(log: Source) -> SwfLog:
    """Reads a log that was opened.

    Raises:
        InputError: it holds no job.
    """
    header: dict[str, str] = {}
    numbers, rows = [], []
    for number, text in text_lines.numbered(log):
        if text.startswith(";"):
            if said := _HEADER.match(text):
                header.setdefault(said[1], said[2].strip())
        else:
            numbers.append(number)
            rows.append(text.split())
    return _checked(log, header, numbers, rows)


def looks_like(log: Source) -> bool:
    """Returns True if the name or the first record is that of the format, however the rest is."""
    records = (text for _, text in text_lines.numbered(log) if not text.startswith(";"))
    return log.path.suffix.lower() == ".swf" or len(next(records, "").split()) == len(FIELDS)


def opened(path: Path) -> Source:
    """Returns the one file that lies there or in an archive.

    Raises:
        InputError: there is none, or more than one.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file; name a job log")
    if path.is_dir():
        raise InputError(f"{path}: a folder; name one log in it")
    if not archive.is_archive(path):
        return source.from_file(path, path.name)
    index = archive.contents(path, path.name)
    if index.count != 1:
        raise InputError(f"{path}: holds {index.count} files; a log is one file")
    return next(index.sources())


def _checked(log: Source, header: dict[str, str], numbers: list[int], rows: Sequence[list[str]]) -> SwfLog:
    """Returns the log of the rows that are jobs."""
    rejects, kept = [], []
    for i, (number, cells) in enumerate(zip(numbers, rows, strict=True)):
        if len(cells) == len(FIELDS):
            kept.append(i)
        else:
            reason = f"{len(cells)} fields, not {len(FIELDS)}"
            rejects.append(Reject(number, "job", " ".join(cells)[:80], reason))
    try:
        table = np.array([rows[i] for i in kept], np.float64).reshape(-1, len(FIELDS))
    except ValueError:
        table = np.array([[_number(cell) for cell in rows[i]] for i in kept]).reshape(-1, len(FIELDS))
    line = np.array([numbers[i] for i in kept], np.int64)
    bad = ~(np.abs(table) <= LARGEST)
    for row, column in zip(*np.nonzero(bad), strict=True):
        if not bad[row, :column].any():
            raw = rows[kept[row]][column]
            rejects.append(Reject(int(line[row]), FIELDS[column], raw[:80], "not a number, or too large"))
    sound = ~bad.any(axis=1)
    again = np.ones(len(table), np.bool_)
    again[np.flatnonzero(sound)[np.unique(table[sound, 0], return_index=True)[1]]] = False
    for row in np.flatnonzero(sound & again):
        said = f"{table[row, 0]:.0f}"
        rejects.append(Reject(int(line[row]), "job", said, "a job of that number came before"))
    sound &= ~again
    if not sound.any():
        raise InputError(
            f"{log.shown}: no job in the Standard Workload Format among {len(rows)} rows; "
            "a line has 18 numbers"
        )
    found = tuple(sorted(rejects, key=lambda reject: reject.row))
    return SwfLog(log.path.name, header, table[sound], line[sound], found, len(rows))


def _number(cell: Any) -> float:
    """Returns the number that a cell holds; nan if it holds none."""
    try:
        return float(cell)
    except ValueError:
        return float("nan")
