"""Inverse problem: the bandwidth, latency, number of GPUs or batch that reaches a target.

Answers are monotone in bandwidth and latency, so that a bisection finds the least demanding value that
reaches the target: the smallest bandwidth, the longest latency. Counts take only values that divide the
batch: all of them, or a doubling series, are tried.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ingest.core.config import suggestion
from ingest.core.errors import UsageError
from twin.cases.answer import BUILT_IN, Constants, answer
from twin.cases.case import Case
from twin.cases.column_definitions import BadCellError, Cell
from twin.cases.resolve import resolve

HIGHER_IS_BETTER = ("utilisation", "mfu")
LOWER_IS_BETTER = (
    "iter_s", "iter_s_high", "peak_mem_bytes", "bubble_s", "exposed_comm_s", "usd", "energy_j", "wan_bytes",
)  # fmt: skip
TARGETS = HIGHER_IS_BETTER + LOWER_IS_BETTER
SEARCHED = {"wan_bps": (1e4, 1e15), "wan_latency_s": (1e-9, 100.0)}
"""Ranges of the continuous columns, wider than those of any network."""
COLUMNS = (*SEARCHED, "gpus", "micro_batch", "global_batch")
STEPS = 60
LARGEST_FACTOR = 1 << 14
"""Counts are searched up to this many times the smallest legal one."""


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of the answer and the value it should reach."""

    figure: str
    value: float

    @classmethod
    def parse(cls, text: str) -> "Target":
        """`utilisation=0.8`, `iter_s=12`.

        Raises:
            UsageError: not of that form, or no such figure.
        """
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise UsageError(f"--target {text!r}: write FIGURE=VALUE, such as utilisation=0.8")
        if name not in TARGETS:
            raise UsageError(f"--target {name}: no such figure{suggestion(name, TARGETS)}")
        try:
            return cls(name, float(value))
        except ValueError:
            raise UsageError(
                f"--target {text!r}: {value!r} is not a number; write it as in utilisation=0.4"
            ) from None

    def reached(self, found: float) -> bool:
        """True where `found` is as good as the target or better."""
        return found >= self.value if self.figure in HIGHER_IS_BETTER else found <= self.value

    def __str__(self) -> str:
        return f"{self.figure}={self.value:g}"


@dataclass(frozen=True, slots=True)
class InverseSolution:
    """The least demanding value of a column that reaches the target, None if there is none.

    `figure`: that of the value, or the best of any value; `note`: a sentence about it.
    """

    value: float | None
    figure: float
    note: str

    def to_json(self) -> dict[str, Any]:
        """Field by field."""
        return {
            "value": self.value,
            "reached": self.value is not None,
            "figure": self.figure,
            "note": self.note,
        }


def check(column: str) -> None:
    """Check that `column` can be solved for.

    Raises:
        UsageError: it cannot; the message names those that can.
    """
    if column not in COLUMNS:
        raise UsageError(f"--solve {column}: cannot be solved for{suggestion(column, COLUMNS)}")


def solve(
    cells: Mapping[str, Cell], column: str, target: Target, constants: Constants = BUILT_IN
) -> InverseSolution:
    """Value of `column` with which the case of `cells` reaches `target`.

    Raises:
        UsageError: the column cannot be solved for.
        BadCellError: the case is bad, or does not depend on the column.
    """
    check(column)
    if column in SEARCHED:
        return _continuous(cells, column, target, constants)
    return _counted(cells, column, target, constants)


def _figure(cells: Mapping[str, Cell], target: Target, constants: Constants) -> float:
    found = getattr(answer(resolve(cells), constants), target.figure)
    if found is None:
        raise BadCellError("", f"{target.figure} is not known for this case: give the model's shape")
    return float(found)


def _continuous(
    cells: Mapping[str, Cell], column: str, target: Target, constants: Constants
) -> InverseSolution:
    """Bisection on a logarithmic scale between the worst and the best value."""
    low, high = SEARCHED[column]
    worst, best = (low, high) if column == "wan_bps" else (high, low)

    def figure_at(value: float) -> float:
        return _figure({**cells, column: (value,)}, target, constants)

    def reached(value: float) -> bool:
        try:
            return target.reached(figure_at(value))
        except BadCellError:  # so slow that no message would arrive within a day
            return False

    _check_wan(resolve({"wan_bps": (high,), **cells, column: (best,)}), column)
    if not reached(best):
        return InverseSolution(
            None, figure_at(best), f"no {column} reaches {target}: the best possible is {figure_at(best):.4g}"
        )
    if reached(worst):
        return InverseSolution(worst, figure_at(worst), f"any {column} reaches {target}")
    for _ in range(STEPS):
        middle = (worst * best) ** 0.5
        best, worst = (middle, worst) if reached(middle) else (best, middle)
        if abs(best / worst - 1) < 1e-9:
            break
    bound = "at least" if column == "wan_bps" else "at most"
    return InverseSolution(best, figure_at(best), f"{bound} {best:.6g}")


def _check_wan(case: Case, column: str) -> None:
    if not any(case.wan):
        raise BadCellError("domains", f"the case has no wide-area boundary, so {column} changes nothing")
    measured = case.measured
    if (measured.transfer_s if column == "wan_bps" else measured.latency_s) is not None:
        raise BadCellError(column, "the boundary is measured, so this column is not read; empty it")


def _counted(cells: Mapping[str, Cell], column: str, target: Target, constants: Constants) -> InverseSolution:
    """The first of the legal counts, least demanding first, that reaches the target."""
    best: tuple[float, int] | None = None
    higher = target.figure in HIGHER_IS_BETTER
    candidates, end = list(_legal(cells, column)), "smallest"
    if _largest_first(column, target):
        candidates, end = candidates[::-1], "largest"
    for value, changed in candidates:
        found = _figure(changed, target, constants)
        if target.reached(found):
            return InverseSolution(value, found, f"{value} is the {end} that reaches {target}")
        if best is None or (found > best[0] if higher else found < best[0]):
            best = found, value
    if best is None:
        raise BadCellError(column, "no count divides the batch; change global_batch")
    return InverseSolution(
        None, best[0], f"no {column} reaches {target}: the best possible is {best[0]:.4g} at {best[1]}"
    )


def _largest_first(column: str, target: Target) -> bool:
    """True where a smaller count is easier: a batch that must end in time, or fit into memory."""
    if column == "global_batch":
        return target.figure in LOWER_IS_BETTER
    return column == "micro_batch" and target.figure == "peak_mem_bytes"


def _legal(cells: Mapping[str, Cell], column: str) -> Iterator[tuple[int, dict[str, Cell]]]:
    """Values of a count that divide evenly, with the cells that hold them, least demanding first."""
    given = {name: cell for name, cell in cells.items() if name not in (column, "micro_batches")}
    if column == "gpus":
        given.pop("dp", None)
    one = resolve({**given, "micro_batches": 1} if column == "global_batch" else given)
    if column == "global_batch":
        yield from _batches(given, one)
        return
    batch = one.global_batch
    for n in range(1, batch + 1):
        if column == "gpus" and batch % (n * one.micro_batch) == 0:
            gpus = n * one.tp * one.pp
            yield gpus, {**given, "gpus": gpus}
        elif column == "micro_batch" and batch % (n * one.dp) == 0:
            yield n, {**given, "micro_batch": n}


def _batches(given: dict[str, Cell], one: Case) -> Iterator[tuple[int, dict[str, Cell]]]:
    """Batches in multiples of dp x micro-batch: every one up to 64 micro-batches, then doubling."""
    unit = one.dp * one.micro_batch
    counts = [*range(1, 65)]
    while counts[-1] < LARGEST_FACTOR:
        counts.append(counts[-1] * 2)
    for many in counts:
        yield many * unit, {**given, "global_batch": many * unit}
