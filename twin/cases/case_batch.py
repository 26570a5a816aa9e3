"""Answer a whole table: good rows get an answer, bad ones a failure; as JSON, `twin.estimate/1`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ingest.core.errors import NotFoundError, TwinError
from ingest.core.units import to_s
from twin.calibration import calibration
from twin.cases import case_table as cases
from twin.cases.answer import BUILT_IN, Answer, Constants, Explained, answer, explain
from twin.cases.case import Case, summary
from twin.cases.case_table import Failure, Row, Table
from twin.cases.case_columns import BadCellError
from twin.cases.resolve import resolve
from twin.cases.inverse import Solution, Target, check, solve

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Told:
    """What came of a table: rows by number, in its order, and those that could not be asked."""

    path: Path
    constants: Constants
    failures: tuple[Failure, ...]

    @property
    def ok(self) -> bool:
        """Whether every row could be asked; a target out of reach is an answer."""
        return not self.failures

    def _json(self, rows: Iterable[dict[str, Any]], **more: str) -> dict[str, Any]:
        spread = self.constants.residuals
        return {
            "schema": "twin.estimate/1",
            "file": str(self.path),
            "interval_level": spread.level,
            "interval_source": f"{spread.rows} {spread.source}",
            "constants": self.constants.source,
            **more,
            "rows": list(rows),
            "failed": failed(self.failures),
        }


@dataclass(frozen=True, slots=True)
class Answers(_Told):
    """The answer to every row."""

    rows: tuple[tuple[int, Answer], ...]

    def to_json(self) -> dict[str, Any]:
        """Schema `twin.estimate/1`."""
        return self._json({"row": number, **found.to_json()} for number, found in self.rows)


@dataclass(frozen=True, slots=True)
class Solutions(_Told):
    """What `--solve` found for every row."""

    column: str
    target: Target
    rows: tuple[tuple[int, str, Solution], ...]

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


def _each(table: Table, ask: Callable[[Row], T]) -> tuple[list[tuple[int, T]], tuple[Failure, ...]]:
    """`ask` every readable row; what fails is added to the table's failures."""
    found, failures = [], list(table.failures)
    for row in table.rows:
        try:
            found.append((row.number, ask(row)))
        except BadCellError as error:
            failures.append(Failure(row.number, row.line, error.column, str(error)))
        except TwinError as error:
            failures.append(Failure(row.number, row.line, "", str(error)))
    return found, tuple(sorted(failures, key=lambda one: one.row))


def constants_of(store: Path) -> Constants:
    """The calibration of `store` where there is one, else the built-in constants."""
    found = calibration.load(store)
    if found is None:
        return BUILT_IN
    return Constants(found, BUILT_IN.residuals, f"calibration {found.digest[:12]}", found.site)


def estimate(path: Path, constants: Constants = BUILT_IN) -> Answers:
    """Answer every row of the table at `path`.

    Raises:
        UsageError: an unknown column.
        InputError: the file cannot be read.
    """
    found, failures = _each(cases.read(path), lambda row: answer(resolve(row.cells), constants))
    return Answers(path, constants, failures, tuple(found))


def invert(path: Path, column: str, target: Target, constants: Constants = BUILT_IN) -> Solutions:
    """For every row of the table at `path` the value of `column` that reaches `target`.

    Raises:
        UsageError: the column cannot be solved for.
    """
    check(column)

    def ask(row: Row) -> tuple[str, Solution]:
        return row.cells.get("case", ""), solve(row.cells, column, target, constants)

    found, failures = _each(cases.read(path), ask)
    rows = tuple((number, label, solution) for number, (label, solution) in found)
    return Solutions(path, constants, failures, column, target, rows)


def explain_row(path: Path, number: int, constants: Constants = BUILT_IN) -> tuple[Case, Explained]:
    """Row `number` (from 1) with everything its answer was made of.

    Raises:
        NotFoundError: there is no such row.
        InputError: the row is bad; the message says where.
    """
    table = cases.read(path)
    for bad in table.failures:
        if bad.row == number:
            raise BadCellError(bad.column, bad.tell(path))
    for row in table.rows:
        if row.number == number:
            case = resolve(row.cells)
            return case, explain(case, constants)
    raise NotFoundError(f"{path} has no row {number}; rows are 1 to {len(table.rows) + len(table.failures)}")


def explained_json(case: Case, told: Explained) -> dict[str, Any]:
    """Schema `twin.explain/1`: the case without gaps, its answer, and seconds and bytes per stage and
    boundary."""
    timing = told.timing
    stages = [
        {
            "stage": i,
            "domain": case.domains[i],
            "layers": case.counts[i] if case.counts else None,
            "forward_s": to_s(int(timing.tf[i, 0])),
            "backward_s": to_s(int(timing.tb[i, 0])),
            "after_last_backward_s": to_s(int(timing.tail[i, 0])),
            "peak_mem_bytes": told.peak_bytes[i] if told.peak_bytes else None,
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
        "answer": told.answer.to_json(),
        "stages": stages,
        "boundaries": boundaries,
    }
