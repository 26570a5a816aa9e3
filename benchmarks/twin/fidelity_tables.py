"""Predictions beside measurements, and the tables of docs/measured/fidelity.md. Used by fidelity.py."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.twin.measured_memory import Stored
from benchmarks.twin.measured_runs import DataSet, Run
from twin.calibration.residual_quantiles import ALL, Residuals
from twin.cases import table_reader
from twin.cases.answer import answer, explain, residuals
from twin.cases.resolve import resolve
from twin.costs import memory
from twin.pipeline.other_estimators import ALTERNATIVES, sailor_bytes

SHARED = Path(__file__).resolve().parents[3] / "shared"
LARGEST_LISTED = 40
"""Data sets with more rows are summed up by groups."""


@dataclass(frozen=True)
class Compared:
    """Predictions and measurements of one data set's judging rows."""

    title: str
    rows: tuple[Run | Stored, ...]

    @cached_property
    def predicted(self) -> np.ndarray:
        return np.array([row.predict() for row in self.rows])

    @cached_property
    def measured(self) -> np.ndarray:
        return np.array([row.measured for row in self.rows])

    @property
    def error(self) -> np.ndarray:
        return self.predicted / self.measured - 1

    @property
    def mape(self) -> float:
        return float(np.mean(np.abs(self.error)))

    @property
    def spearman(self) -> float:
        return float(np.corrcoef(_ranks(self.predicted), _ranks(self.measured))[0, 1])

    def covered(self) -> float:
        """Share of rows inside the interval that `twin estimate` gives."""
        return float(np.mean(self.inside))

    @cached_property
    def bases(self) -> tuple[Residuals, ...]:
        """Residuals that set the interval of each row."""
        cells = [row.cells for row in self.rows if isinstance(row, Run)]
        return tuple(residuals(resolve(table_reader.parse(one))) for one in cells)

    @cached_property
    def inside(self) -> np.ndarray:
        """Whether each row lies in its interval."""
        ratio = self.measured / self.predicted
        pairs = zip(ratio, self.bases, strict=True)
        return np.array([one.low <= value <= one.high for value, one in pairs])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, ties in order of appearance."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)


def judged(data: DataSet) -> Compared:
    """The rows that set no constant."""
    rows = list(data.read(SHARED))
    every = data.calibrated_every
    return Compared(data.title, tuple(row for n, row in enumerate(rows) if not every or n % every))


def calibration(data: DataSet) -> Compared:
    """The rows that set constants."""
    return Compared(data.title, tuple(data.read(SHARED))[:: data.calibrated_every])


def percent(value: float, sign: bool = False) -> str:
    return f"{100 * value:+.1f} %" if sign else f"{100 * value:.1f} %"


def table(head: Sequence[str], rows: Iterator[Sequence[str]] | list[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def by_basis(sets: Sequence[Compared]) -> list[str]:
    """Share of rows inside their interval, by what the interval is made for."""
    rows = []
    for basis in ALL:
        found = [
            bool(ok) for one in sets for ok, its in zip(one.inside, one.bases, strict=True) if its is basis
        ]
        if found:
            rows.append(
                [
                    basis.basis,
                    f"{basis.low:g}",
                    f"{basis.high:g}",
                    str(len(found)),
                    percent(sum(found) / len(found)),
                ]
            )
    return table(["interval for", "low", "high", "rows", "in the interval"], rows)


def alternatives(sets: Sequence[Compared]) -> list[str]:
    """Mean error of each estimator over the same stage times, and how much longer CrossPipe's schedule would
    take; pipelines of at least two stages only."""
    rows = []
    for one in sets:
        errors: dict[str, list[float]] = {name: [] for name in ALTERNATIVES}
        longer: list[float] = []
        for run in one.rows:
            assert isinstance(run, Run)
            timing = explain(resolve(table_reader.parse(run.cells))).timing
            if timing.stages > 1:
                for name, estimate in ALTERNATIVES.items():
                    errors[name].append(abs(estimate(timing, 0) / 1e9 / run.measured - 1))
                longer.append(crosspipe_s(run) / (ALTERNATIVES["kernel"](timing, 0) / 1e9) - 1)
        if errors["kernel"]:
            means = [percent(float(np.mean(found))) for found in errors.values()]
            means.append(percent(float(np.mean(longer)), sign=True))
            rows.append([one.title, str(len(errors["kernel"])), *means])
    return table(["data set", "pipelines", *ALTERNATIVES, "CrossPipe's schedule"], rows)


def crosspipe_s(run: Run) -> float:
    """The iteration time of the same pipeline under CrossPipe's schedule: weight gradients on their own."""
    cells = {name: cell for name, cell in run.cells.items() if name not in ("chunks", "p2p")}
    return answer(resolve(table_reader.parse({**cells, "schedule": "crosspipe"}))).iter_s


def listed(one: Compared, scale: float, unit: str) -> list[str]:
    """Every row, or groups of rows of a large set."""
    lines = [f"### {one.title}", ""]
    if len(one.rows) > LARGEST_LISTED:
        return [*lines, *_grouped(one)]
    shown = [
        [row.name, f"{p / scale:,.3f}", f"{m / scale:,.3f}", percent(e, sign=True)]
        for row, p, m, e in zip(one.rows, one.predicted, one.measured, one.error, strict=True)
    ]
    return [*lines, *table(["row", f"predicted {unit}", f"measured {unit}", "error"], shown)]


def _grouped(one: Compared) -> list[str]:
    """Mean error and bias by the words of the row names that several rows share (tp2, pp4, ...)."""
    groups: dict[str, list[float]] = {}
    for row, error in zip(one.rows, one.error, strict=True):
        for word in row.name.split():
            groups.setdefault(word, []).append(float(error))
    rows = [
        [
            word,
            str(len(found)),
            percent(float(np.mean(np.abs(found)))),
            percent(float(np.mean(found)), sign=True),
        ]
        for word, found in sorted(groups.items())
    ]
    return table(["rows with", "rows", "mean error", "bias"], rows)


def memory_alternatives(sets: Sequence[Compared]) -> list[str]:
    """Mean error of the twin and of Sailor's memory formula, first stage of the pipeline."""
    rows = []
    for one in sets:
        found = []
        for run in one.rows:
            if isinstance(run, Run):
                case = resolve(table_reader.parse(run.cells))
                assert case.model is not None and case.job is not None
                blocks = case.counts[0] - 1 - (case.pp == 1)
                layers, mixed = case.model.layers()[: blocks + 1], case.model.experts is not None
                parameters = sum(layer.parameters - layer.routed * (1 - 1 / case.ep) for layer in layers)
                kept = memory.block_activation_bytes(
                    case.model, case.tp, case.job.recompute, case.tp > 1, mixed
                )
                elements = blocks * kept / case.model.bytes_per_element
                found.append(sailor_bytes(parameters / case.tp, elements, case.micro_batch, case.pp, 0))
        if found:
            theirs = float(np.mean(np.abs(np.array(found) / one.measured - 1)))
            rows.append([one.title, str(len(found)), percent(one.mape), percent(theirs)])
    return table(["data set", "peaks", "twin", "Sailor-style"], rows)
