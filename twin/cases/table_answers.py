"""Answers to a table of cases, failures of bad rows among them; as JSON, `twin.estimate/1`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ingest.core.errors import NotFoundError, TwinError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import to_s
from twin.calibration import calibration, lake_profiles
from twin.calibration.residual_quantiles import ALL, MODELS
from twin.cases import table_reader
from twin.cases.answer import BUILT_IN, Answer, Constants, Explained, answer, explain
from twin.cases.case import Case, summary
from twin.cases.column_definitions import BadCellError, Cell
from twin.cases.inverse import InverseSolution, Target, check, solve
from twin.cases.resolve import resolve
from twin.cases.table_reader import CaseRow, Failure, Table

T = TypeVar("T")
Cells = Mapping[str, Cell]
NO_CELLS: Cells = {}


@dataclass(frozen=True, slots=True)
class _TableResult:
    """Results of a table: rows by number, in its order, and rows that failed."""

    path: Path
    constants: Constants
    failures: tuple[Failure, ...]

    @property
    def ok(self) -> bool:
        """True where no row failed; a target out of reach is no failure."""
        return not self.failures

    def _json(self, rows: Iterable[dict[str, Any]], **more: str) -> dict[str, Any]:
        return {
            "schema": "twin.estimate/1",
            "file": str(self.path),
            "interval_level": MODELS.level,
            "interval_source": {one.basis: f"{one.rows} {one.source}" for one in ALL},
            "constants": self.constants.source,
            **more,
            "rows": list(rows),
            "failed": failed(self.failures),
        }


@dataclass(frozen=True, slots=True)
class CaseAnswers(_TableResult):
    """Answers to all rows."""

    rows: tuple[tuple[int, Answer], ...]

    def to_json(self) -> dict[str, Any]:
        """Schema `twin.estimate/1`."""
        return self._json({"row": number, **found.to_json()} for number, found in self.rows)


@dataclass(frozen=True, slots=True)
class Solutions(_TableResult):
    """Results of `--solve` for all rows."""

    column: str
    target: Target
    rows: tuple[tuple[int, str, InverseSolution], ...]

    def to_json(self) -> dict[str, Any]:
        """Schema `twin.estimate/1`, with `solve` and `target`."""
        rows = ({"row": number, "case": label, **found.to_json()} for number, label, found in self.rows)
        return self._json(rows, solve=self.column, target=str(self.target))


def failed(failures: Sequence[Failure]) -> list[dict[str, Any]]:
    """Failures as JSON."""
    return [
        {"row": one.row, "line": one.line, "column": one.column or None, "message": one.message}
        for one in failures
    ]


def _each(
    table: Table, solve_row: Callable[[CaseRow], T], progress: Progress
) -> tuple[list[tuple[int, T]], tuple[Failure, ...]]:
    """Apply `solve_row` to every readable row; its errors are added to the table's failures."""
    found, failures = [], list(table.failures)
    progress.start(len(table.rows), "cases", "rows")
    for row in table.rows:
        progress.advance()
        try:
            found.append((row.number, solve_row(row)))
        except BadCellError as error:
            failures.append(Failure(row.number, row.line, error.column, str(error)))
        except TwinError as error:
            failures.append(Failure(row.number, row.line, "", str(error)))
    return found, tuple(sorted(failures, key=lambda one: one.row))


def constants_of(store: Path, dataset: str | None = None) -> Constants:
    """Calibration of `store` where there is one, else the built-in constants; in front of them the profiles
    of `dataset`.

    Raises:
        NotFoundError: the lake has no profiles of `dataset`.
    """
    found, constants = calibration.load(store), BUILT_IN
    if found is not None:
        constants = Constants(found, f"calibration {found.digest[:12]}", found.site)
    if dataset is None:
        return constants
    return replace(constants, profiles=lake_profiles.load(store, dataset, constants.compute))


def estimate(
    path: Path, constants: Constants = BUILT_IN, given: Cells = NO_CELLS, progress: Progress = SILENT
) -> CaseAnswers:
    """Answers to every row of the table at `path`; `given`: cells of rows that leave them empty.

    Raises:
        UsageError: an unknown column.
        InputError: the file cannot be read.
    """
    return of_table(table_reader.read(path), constants, given, progress)


def of_table(
    table: Table, constants: Constants = BUILT_IN, given: Cells = NO_CELLS, progress: Progress = SILENT
) -> CaseAnswers:
    """Answers to every row of a table that has been read."""
    found, failures = _each(table, lambda row: answer(resolve({**given, **row.cells}), constants), progress)
    return CaseAnswers(table.path, constants, failures, tuple(found))


def invert(
    path: Path, column: str, target: Target, constants: Constants = BUILT_IN, given: Cells = NO_CELLS,
    progress: Progress = SILENT,
) -> Solutions:  # fmt: skip
    """Value of `column` that reaches `target`, for every row of the table at `path`.

    Raises:
        UsageError: the column cannot be solved for.
    """
    check(column)

    def solve_row(row: CaseRow) -> tuple[str, InverseSolution]:
        return row.cells.get("case", ""), solve({**given, **row.cells}, column, target, constants)

    found, failures = _each(table_reader.read(path), solve_row, progress)
    rows = tuple((number, label, solution) for number, (label, solution) in found)
    return Solutions(path, constants, failures, column, target, rows)


def explain_row(
    path: Path, number: int, constants: Constants = BUILT_IN, given: Cells = NO_CELLS
) -> tuple[Case, Explained]:
    """Row `number` (from 1) with the parts of its answer.

    Raises:
        NotFoundError: there is no such row.
        InputError: the row is bad; the message says where.
    """
    table = table_reader.read(path)
    for bad in table.failures:
        if bad.row == number:
            raise BadCellError(bad.column, bad.describe(path))
    for row in table.rows:
        if row.number == number:
            case = resolve({**given, **row.cells})
            return case, explain(case, constants)
    raise NotFoundError(f"{path} has no row {number}; rows are 1 to {len(table.rows) + len(table.failures)}")


def explained_json(case: Case, explained: Explained) -> dict[str, Any]:
    """Schema `twin.explain/1`: the case with every value set, its answer, seconds and bytes per stage and
    boundary."""
    timing = explained.timing
    stages = [
        {
            "stage": i,
            "domain": case.domains[i],
            "layers": case.counts[i] if case.counts else None,
            "forward_s": to_s(int(timing.tf[i, 0])),
            "backward_s": to_s(int(timing.tb[i, 0])),
            "after_last_backward_s": to_s(int(timing.tail[i, 0])),
            "peak_mem_bytes": explained.peak_bytes[i] if explained.peak_bytes else None,
        }
        for i in range(case.pp)
    ]
    boundaries = [
        {
            "boundary": f"{i} - {i + 1}",
            "wide_area": wan is not None,
            "occupied_s": to_s(int(timing.of[i, 0])),
            "latency_s": to_s(int(timing.lf[i, 0])),
        }
        for i, wan in enumerate(case.wan)
    ]
    return {
        "schema": "twin.explain/1",
        "case": summary(case),
        "defaults": list(case.defaults),
        "answer": explained.answer.to_json(),
        "stages": stages,
        "boundaries": boundaries,
    }
