"""Tables of cases, CSV or YAML, one case a row. A bad row does not affect the others.

A CSV cell is text, an empty one takes the column's default. YAML holds a list of mappings (or a mapping
`cases:` of one); there a list may be written as a list.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import safe_yaml, text_files
from ingest.core.config import suggestion
from ingest.core.errors import InputError, UsageError
from ingest.core.terminal import clipped
from twin.cases.column_definitions import BY_NAME, BadCellError, Cell

MOST_BYTES = 16 * 1024**2
"""Of a CSV: some 100,000 cases, which take hours."""


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case as it stands in the table: its number from 1, its line in the file, and its filled cells."""

    number: int
    line: int
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Failure:
    """A row without an answer, and the reason; `column` is empty where no single cell is the reason."""

    row: int
    line: int
    column: str
    message: str

    def describe(self, path: Path) -> str:
        """Text `file:line column: message`."""
        return f"{path}:{self.line} {self.column}: {self.message}" if self.column else (
            f"{path}:{self.line}: {self.message}"
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """The readable rows of a file and the others."""

    path: Path
    rows: tuple[CaseRow, ...]
    failures: tuple[Failure, ...]


def read(path: Path) -> Table:
    """Read a table of cases.

    Raises:
        UsageError: a column is unknown or named twice; the message suggests the right one.
        InputError: the file cannot be read, is empty, or is neither CSV nor YAML.
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        records = _yaml(path, text_files.read(path, InputError))
    else:
        records = _csv(path, text_files.read(path, InputError, MOST_BYTES))
    rows, failures = [], []
    for number, (line, cells, problem) in enumerate(records, 1):
        try:
            if problem:
                raise BadCellError("", problem)
            rows.append(CaseRow(number, line, parse(cells)))
        except BadCellError as error:
            failures.append(Failure(number, line, error.column, str(error)))
    if not rows and not failures:
        raise InputError(f"{path}: holds no case; write a line of column names and a line a case")
    return Table(path, tuple(rows), tuple(failures))


Record = tuple[int, dict[str, str], str]
"""Line, cells as text, and an error that concerns the record as a whole."""


def parse(cells: Mapping[str, str]) -> dict[str, Cell]:
    """The filled cells of a row, read by their columns.

    Raises:
        BadCellError: a cell is not what its column holds.
    """
    found: dict[str, Cell] = {}
    for name, text in cells.items():
        if not text:
            continue
        try:
            found[name] = BY_NAME[name].parse(text)
        except ValueError as error:
            raise BadCellError(name, str(error)) from None
    return found


def option(flag: str, column: str, text: str | None) -> dict[str, Cell]:
    """The cell of `column` that the option `flag` gives, if it is given.

    Raises:
        UsageError: it is not what the column holds.
    """
    try:
        return {} if text is None else parse({column: text})
    except BadCellError as error:
        raise UsageError(f"{flag}: {error}") from None


def one_row(source: str, cells: Mapping[str, str], also: Iterable[str] = ()) -> Table:
    """Table of one case with these cells and those of `also`, `COLUMN=VALUE` each, which come first.

    Raises:
        UsageError: a column is unknown, or a cell is not what it holds.
    """
    found = dict(cells)
    for word in also:
        name, equals, value = word.partition("=")
        if not equals or name.strip() not in BY_NAME:
            raise UsageError(f"--also {clipped(word)}: write COLUMN=VALUE{suggestion(name.strip(), BY_NAME)}")
        found[name.strip()] = value.strip()
    try:
        return Table(Path(source), (CaseRow(1, 1, parse(found)),), ())
    except BadCellError as error:
        raise UsageError(f"{source}: {error.column}: {error}") from None


def cells_of(case: Mapping[str, Any]) -> dict[str, Cell]:
    """The cells of a case given as Python values, by column.

    Raises:
        UsageError: an unknown column. BadCellError: a value is not what its column holds.
    """
    for name in case:
        if name not in BY_NAME:
            raise UsageError(f"{clipped(name)}: unknown column{suggestion(name, BY_NAME)}")
    return parse({name: _text(value) for name, value in case.items()})


def _check(path: Path, line: int, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name not in BY_NAME:
            raise UsageError(f"{path}:{line} {clipped(name)}: unknown column{suggestion(name, BY_NAME)}")
        if name in seen:
            raise UsageError(f"{path}:{line} {clipped(name)}: the column appears twice; keep one")
        seen.add(name)


def _csv(path: Path, text: str) -> Iterator[Record]:
    lines = csv.reader(text.splitlines(), skipinitialspace=True)
    try:
        header = next((row for row in lines if any(cell.strip() for cell in row)), None)
        if header is None:
            raise InputError(f"{path}: is empty; write a line of column names and a line a case")
        names = [name.strip() for name in header]
        _check(path, lines.line_num, names)
        for row in lines:
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            problem = ""
            if len(cells) > len(names):
                problem = (
                    f"{len(cells)} cells under {len(names)} columns; separate list entries by `;`, not by `,`"
                )
            yield lines.line_num, dict(zip(names, cells, strict=False)), problem
    except csv.Error as error:
        raise InputError(
            f"{path}:{lines.line_num}: not valid CSV: {error}; save it again with a head and a case a line"
        ) from error


def _yaml(path: Path, text: str) -> Iterator[Record]:
    read = safe_yaml.parsed(path, text, InputError)
    document, lines = read.value, read.lines()
    top: safe_yaml.KeyPath = ()
    if isinstance(document, dict) and set(document) == {"cases"}:
        document, top = document["cases"], ("cases",)
    if not isinstance(document, list):
        raise InputError(f"{path}: expected a list of cases, or `cases:` with one")
    for index, case in enumerate(document):
        line = lines[(*top, index)]
        if not isinstance(case, dict):
            yield line, {}, f"expected a mapping of columns to values, found {type(case).__name__}"
            continue
        _check(path, line, map(str, case))
        yield line, {str(name): _text(value) for name, value in case.items()}, ""


def _text(value: Any) -> str:
    """A YAML value as a CSV cell would hold it."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ";".join(_text(part).replace(";", "|") for part in value)
    return repr(value) if isinstance(value, float) else str(value).strip()
