"""Published results of schedulers beside ours, cell by cell, from a folder of logs and one of results.

The results are two tables: `easy_backfill.csv` (Gaussier et al., SC 2015) and `rlscheduler_heuristics.csv`
(Zhang et al., SC 2020), with the rules that their simulators follow.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ingest.core.errors import InputError
from ingest.readers.clusters import swf_log
from policy.queue.registry import recipe
from replay.logqueue import recorded
from replay.logqueue.sequences import judged
from twin.queue.jobs import Prediction, QueueJobs
from twin.queue.metrics import flow_statistics
from twin.queue.rules import PREDICTSIM, RLSCHEDULER
from twin.queue.simulation import simulate
from twin.workload.selection import LogJobs, select

PREDICTED: dict[str, Prediction] = {
    "estimate": "estimate", "actual run time": "actual", "2 x estimate": "twice-estimate",
}  # fmt: skip
"""Our names of the predictions of `easy_backfill.csv`; its others correct themselves while a job runs."""
INPUT = "res_easy_backfill_scheduler_None_None.swf.gz"
HEURISTICS = {"FCFS": "fcfs", "SJF": "sjf", "WFP3": "wfp3-slip", "UNICEP": "unicep-slip", "F1": "f1"}
"""Our names of the schedulers of `rlscheduler_heuristics.csv`."""
SIGNIFICANT = 12
"""Digits to which the first table was printed."""


@dataclass(frozen=True, slots=True)
class PublishedCell:
    """One published figure and ours; `digits` says how it was printed, as a format."""

    log: str
    policy: str
    prediction: str
    figure: str
    published: str
    ours: float
    digits: str

    @property
    def equal(self) -> bool:
        """True if ours, printed to as many digits, reads the same."""
        return float(format(self.ours, self.digits)) == float(self.published)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded schedule and how many of its jobs start at another time in ours."""

    log: str
    policy: str
    prediction: str
    jobs: int
    other_starts: int


def easy_cells(logs: Path, results: Path) -> Iterator[PublishedCell]:
    """Yields every figure of EASY and EASY-SJBF whose prediction we have."""
    kept: dict[str, tuple[QueueJobs, int]] = {}
    for row in _rows(results / "easy_backfill.csv"):
        if row["predicted_run_time"] not in PREDICTED:
            continue
        if row["input"] not in kept:
            kept[row["input"]] = _easy_input(logs / row["input"])
        jobs, processors = kept[row["input"]]
        prediction = PREDICTED[row["predicted_run_time"]]
        done = simulate(jobs, processors, recipe(row["policy"].lower()), prediction=prediction)
        for figure, ours in flow_statistics(done).items():
            yield PublishedCell(
                row["log"], row["policy"], row["predicted_run_time"], figure, row[figure], ours,
                f".{SIGNIFICANT}g",
            )  # fmt: skip


def heuristic_cells(logs: Path, results: Path) -> Iterator[PublishedCell]:
    """Yields every figure of RLScheduler's heuristics, with and without backfill."""
    kept: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    inputs: dict[str, LogJobs] = {}
    for row in _rows(results / "rlscheduler_heuristics.csv"):
        key = row["file"], row["policy"], row["backfill"]
        if key not in kept:
            if row["file"] not in inputs:
                inputs[row["file"]] = select(swf_log.read(logs / row["file"]), RLSCHEDULER)
            log = inputs[row["file"]]
            name = HEURISTICS[row["policy"]] + ("+easy" if row["backfill"] == "1" else "")
            kept[key] = judged(log.jobs, log.processors, recipe(name))
        column = 0 if row["metric"] == "avg_bounded_slowdown" else 1
        ours = sum(one[column] for one in kept[key]) / len(kept[key])
        policy = f"{row['policy']}{' with backfill' if row['backfill'] == '1' else ''}"
        digits = f".{len(row['published'].partition('.')[2])}f"
        yield PublishedCell(row["trace"], policy, "estimate", row["metric"], row["published"], ours, digits)


def recorded_runs(logs: Path) -> Iterator[RecordedRun]:
    """Yields the recorded schedules of EASY and EASY-SJBF."""
    runs = {
        INPUT: ("EASY", "estimate"),
        "res_easy_prediction_backfill_scheduler_predictorclairvoyant_throw_an_error.swf.gz": (
            "EASY",
            "actual",
        ),
        "res_easy_plus_plus_scheduler_predictorclairvoyant_throw_an_error.swf.gz": ("EASY-SJBF", "actual"),
    }
    for folder in sorted((logs / "swf-easy-runs").iterdir()):
        for file, (policy, prediction) in runs.items():
            run = recorded.read(folder / file)
            done = simulate(
                run.jobs, run.processors, recipe(policy.lower()), prediction=cast(Prediction, prediction)
            )
            yield RecordedRun(folder.name, policy, prediction, len(run.jobs), run.other_starts(done))


def _easy_input(path: Path) -> tuple[QueueJobs, int]:
    """Returns the jobs and the pool of a folder of recorded schedules, or of a log."""
    if path.is_dir():
        run = recorded.read(path / INPUT)
        return run.jobs, run.processors
    log = select(swf_log.read(path), PREDICTSIM)
    return log.jobs, log.processors


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return list(csv.DictReader(stream))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name the folder of results") from error
