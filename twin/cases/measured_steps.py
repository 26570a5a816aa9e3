"""Measured step times of a run: in its row, or in `step_times` of the lake (`run`: data set and job)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ingest.core.terminal import shown
from twin.calibration.calibrate import model_of
from twin.cases.column_definitions import BadCellError, Cell

KINDS = ("step", "block", "smoothed")
"""Of step times in the lake, best first: loggers smooth over steps, blocks hold their mean."""
_STEPS = """
    SELECT coalesce(kind, 'step'), step, gpu_model, max(time_s) FROM step_times
    WHERE dataset = $dataset AND job = $job AND time_s > 0
    GROUP BY coalesce(kind, 'step'), step, gpu_model, CASE WHEN step IS NULL THEN source_row END ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """Median seconds of a step, of how many steps (or means of them), and where they stand."""

    seconds: float
    steps: int
    source: str


def measured_step(store: Path, cells: Mapping[str, Cell], gpu: str) -> MeasuredStep:
    """Measured step of a row: `measured_s`, else the job `run` of the lake, the slowest worker of every step.

    Raises:
        BadCellError: it has neither or both, or the lake lacks them.
    """
    listed, run = cells.get("measured_s"), cells.get("run")
    if (listed is None) == (run is None):
        raise BadCellError("measured_s", "give either measured_s, or run: data set and job of the lake")
    if run is None:
        assert listed is not None
        if min(listed) <= 0:
            raise BadCellError("measured_s", "a step takes longer than 0 s")
        return MeasuredStep(float(np.median(listed)), len(listed), "the row's measured_s")
    dataset, _, job = run.partition("/")
    found = _of_lake(store, dataset, job, gpu)
    for kind in KINDS:
        if kind in found:
            return MeasuredStep(float(np.median(found[kind])), len(found[kind]), f"{run}, {kind} times")
    raise BadCellError("run", f"the lake has no step times of {shown(run)} on {gpu}; write DATASET/JOB")


def _of_lake(store: Path, dataset: str, job: str, gpu: str) -> dict[str, list[float]]:
    """Seconds of steps by kind, of runs on `gpu` or on one that the lake does not know."""
    from ingest.lake import duckdb_views  # brings duckdb, needed here only

    with duckdb_views.connect(store) as connection:
        rows = connection.execute(_STEPS, {"dataset": dataset, "job": job}).fetchall()
    found: dict[str, list[float]] = {}
    for kind, _, name, seconds in rows:
        if name is None or model_of(name) == gpu:
            found.setdefault(kind, []).append(seconds)
    return found
