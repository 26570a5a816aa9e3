"""Bytes held between iterations against model states: how much of an error of memory lies in them. Used by
fidelity.py.

`as priced` is what `twin estimate` takes for the row. `as the run was` has what is known of the run beside
the columns: Galvatron's are of PyTorch FSDP, which keeps fp32 shards of weights, gradients and two moments
(16 bytes a parameter), and half precision only while it is gathered; their output matrix is not tied.
Libraries hold `twin.costs.memory.workspace_bytes` in both.
"""

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.twin.fidelity_tables import percent, table
from benchmarks.twin.measured_memory import galvatron_files
from benchmarks.twin.measured_runs import DENSE, GOLDEN, MACHINES, Cells
from ingest.core.units import MIB
from twin.cases import table_reader
from twin.cases.case import Case
from twin.cases.resolve import resolve
from twin.costs import memory

FSDP_BYTES = 16.0


@dataclass(frozen=True, slots=True)
class Held:
    """Measured bytes of one run: between iterations, and at the peak beyond them."""

    name: str
    cells: Cells
    states: float
    peak: float

    @property
    def case(self) -> Case:
        return resolve(table_reader.parse(self.cells))


def galvatron(shared: Path) -> Iterator[Held]:
    """Models of one and two layers, fully sharded."""
    for run, states, peak in galvatron_files(shared):
        yield Held(run.name, run.cells, states * MIB, peak * MIB)


def golden(shared: Path) -> Iterator[Held]:
    """Dense runs of Megatron: the median between iterations, and the largest peak."""
    for name, cells in DENSE.items():
        for file, gpu in MACHINES.items():
            path = shared / GOLDEN / name / file
            if path.is_file():
                values = json.loads(path.read_text())
                states = statistics.median(_numbers(values["mem-allocated-bytes"]))
                most = max(_numbers(values["mem-max-allocated-bytes"]))
                yield Held(f"{name} {gpu}", {"gpu_model": gpu, **cells}, states, most - states)


def _numbers(record: dict[str, dict[str, str]]) -> list[float]:
    return [float(value) for value in record["values"].values() if value != "nan"]


def priced(held: Held) -> float:
    """States of the row's last stage."""
    case = held.case
    assert case.model is not None and case.job is not None
    model, tied = case.model, case.model.vocab * case.model.hidden if case.pp == 1 and case.model.tied else 0
    parameters = (sum(layer.parameters for layer in model.layers()[-case.counts[-1] :]) - tied) / case.tp
    each = memory.state_bytes_per_parameter(case.job.zero, case.ranks, model.dtype)
    return parameters * each + memory.workspace_bytes(case.site.gpu.name)


def of_fsdp(held: Held) -> float:
    """States of a run of FSDP with a matrix of its own behind the last block."""
    case = held.case
    assert case.model is not None
    parameters = replace(case.model, tied=False).parameters / case.tp
    return parameters * FSDP_BYTES / case.ranks + memory.workspace_bytes(case.site.gpu.name)


def section(shared: Path) -> list[str]:
    """Errors of states, and of the rest of the peak, as shares of the whole peak."""
    sets = (
        ("Megatron golden runs", list(golden(shared)), priced),
        ("Galvatron, as priced", list(galvatron(shared)), priced),
        ("Galvatron, as the run was", list(galvatron(shared)), of_fsdp),
    )
    rows = []
    for title, runs, predict in sets:
        states, rest = (np.array([getattr(run, what) for run in runs]) for what in ("states", "peak"))
        found = np.array([predict(run) for run in runs])
        error = found / states - 1
        rows.append([
            title, str(len(runs)), percent(float(np.mean(np.abs(error)))),
            percent(float(np.mean(error)), sign=True), percent(float(np.mean(states / (states + rest)))),
            percent(float(np.mean(np.abs(found - states) / (states + rest)))),
        ])  # fmt: skip
    head = [
        "bytes between iterations", "rows", "mean error", "bias", "share of the peak",
        "error of the peak from them",
    ]  # fmt: skip
    return ["### Where the errors of memory lie", "", *table(head, rows)]
