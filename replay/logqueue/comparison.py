"""Several schedulers on the jobs of one log: the same jobs, the same pool, the same rules."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.parsing.reader import Reject
from ingest.readers import job_logs
from ingest.readers.clusters.profiled_runs import RunProfiles
from ingest.readers.job_logs import LakeJobs
from policy.queue.checkpoint import LearnedOrder
from policy.queue.registry import LEARNED, recipe
from replay.logqueue import run_events
from replay.logqueue.run_events import NO_ORIGIN, QueueOrigin
from replay.logqueue.windowed import WINDOWS, Ranged, Windowed, ratio
from twin.queue.jobs import Prediction
from twin.queue.metrics import QueueFigures, figures
from twin.queue.recipe import QueueRecipe
from twin.queue.rules import PREDICTSIM, QueueRules
from twin.queue.shares import EQUAL, FairShares
from twin.queue.simulation import check, simulate
from twin.workload.selection import LogJobs, select

USUAL = ("fcfs", "easy", "easy-sjbf", "conservative")
"""Schedulers that are compared if none are named."""
LEAST_FOR_INTERVALS = 5 * WINDOWS
"""Jobs of a log that has intervals."""
SHOWN_ROWS = 20
"""Rows left out that the JSON object lists; all of them are counted."""


class ReadJobs(Protocol):
    """Jobs of a log with what was left out of it: on a pool, or on nodes."""

    @property
    def rejects(self) -> tuple[Reject, ...]:
        """Rows left out, in their order."""
        ...

    @property
    def reasons(self) -> dict[str, int]:
        """Rows left out by reason."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the log does not say."""
        ...


def read_to_json(log: ReadJobs) -> dict[str, Any]:
    """Returns what an answer tells of the rows left out, the first `SHOWN_ROWS` in full, and the notes."""
    shown = log.rejects[:SHOWN_ROWS]
    return {
        "rejected": len(log.rejects),
        "rejected_by_reason": log.reasons,
        "rejected_rows": [
            {"row": one.row, "column": one.column, "raw": one.raw, "reason": one.reason} for one in shown
        ],
        "notes": list(log.notes),
    }


@dataclass(frozen=True, slots=True)
class QueueIntervals:
    """95 % intervals over windows of the jobs: of the mean wait, seconds, and of the mean bounded slowdown,
    and that slowdown over the one of the scheduler named first, paired by window."""

    wait_s: Ranged
    slowdown: Ranged
    over_first: Ranged

    def to_json(self) -> dict[str, Any]:
        """Returns [value, low, high] by name."""
        return {
            "avg_wait_s": self.wait_s.to_json(),
            "avg_bounded_slowdown": self.slowdown.to_json(),
            "bounded_slowdown_over_first": self.over_first.to_json(),
        }


@dataclass(frozen=True, eq=False)
class QueueComparison:
    """The jobs of a log, and the figures of each scheduler by name.

    `intervals` are there where the log is long enough; `scenario` is the name of the scenario that the jobs
    are of, None where a log was named; `synthetic` says that their submissions were drawn."""

    log: LogJobs
    prediction: Prediction
    rules: QueueRules
    figures: dict[str, QueueFigures]
    runs: dict[str, str] = field(default_factory=dict)
    """Ids of the runs that were kept, by scheduler."""
    intervals: dict[str, QueueIntervals] = field(default_factory=dict)
    scenario: str | None = None
    synthetic: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin queue --json`."""
        waits = self.log.dependencies
        return {
            "schema": "twin.queue/1",
            "log": self.log.name,
            "scenario": self.scenario,
            "synthetic_arrivals": self.synthetic,
            "dependent_jobs": 0 if waits is None else int(waits.waits.sum()),
            "processors": self.log.processors,
            "prediction": self.prediction,
            "rules": self.rules.name,
            "results": [
                {
                    "policy": name, "run": self.runs.get(name), **one.to_json(),
                    "intervals": self.intervals[name].to_json() if name in self.intervals else None,
                }
                for name, one in self.figures.items()
            ],
            **read_to_json(self.log),
        }  # fmt: skip


def compare(
    source: Path | LakeJobs, policies: Sequence[str] = (), *, processors: int | None = None,
    prediction: Prediction = "estimate", rules: QueueRules = PREDICTSIM, keep: Path | None = None,
    profiles: RunProfiles | None = None, learned: LearnedOrder | None = None, dependencies: bool = False,
    shares: FairShares = EQUAL, progress: Progress = SILENT,
) -> QueueComparison:  # fmt: skip
    """Returns what each scheduler makes of the jobs of a log; with `keep` each is a run of that store.

    `profiles` give run times to a list that has none, `learned` is the scheduler of that name. With
    `dependencies` a job that names a preceding one is submitted a think time after its end. `shares` are
    those of schedulers that know accounts.

    Raises:
        InputError: the log cannot be read or has no job. NotFoundError: the lake has none.
        UsageError: an unknown scheduler, or one that cannot be played on this log.
    """
    recipes = [
        learned.recipe if learned is not None and name == LEARNED else recipe(name, shares)
        for name in dict.fromkeys(policies or USUAL)
    ]
    if processors is not None and processors < 1:
        raise UsageError(f"a machine of {processors} processors; it needs at least 1")
    log = select(job_logs.read(source, profiles), rules, processors, dependencies=dependencies)
    if profiles is not None:
        log = replace(log, notes=(*log.notes, profiles.note))
    dataset = source.name.partition("/")[0] if isinstance(source, LakeJobs) else None
    return of_jobs(
        log, recipes, prediction=prediction, rules=rules, keep=keep, origin=QueueOrigin(dataset),
        progress=progress,
    )  # fmt: skip


def of_jobs(
    log: LogJobs, recipes: Sequence[QueueRecipe], *, prediction: Prediction, rules: QueueRules,
    keep: Path | None = None, origin: QueueOrigin = NO_ORIGIN, progress: Progress = SILENT,
) -> QueueComparison:  # fmt: skip
    """Returns what each scheduler makes of jobs that were read; with `keep` each is a run of that store.

    Raises:
        UsageError: a scheduler that cannot be played on them.
    """
    for one in recipes:
        check(log.jobs, log.processors, one, rules)
    progress.start(len(recipes), "queue", "schedulers")
    found, runs, windowed = dict[str, QueueFigures](), dict[str, str](), dict[str, Windowed]()
    for one in recipes:
        progress.advance(0, one.name)
        done = simulate(
            log.jobs, log.processors, one, prediction=prediction, rules=rules, dependencies=log.dependencies
        )
        found[one.name] = figures(done)
        if len(done.jobs) >= LEAST_FOR_INTERVALS:
            windowed[one.name] = Windowed(done)
        if keep is not None:
            runs[one.name] = run_events.record(
                keep, log, done, one.name, prediction=prediction, rules=rules, origin=origin
            )
        progress.advance(1, one.name)
    return QueueComparison(log, prediction, rules, found, runs, intervals(windowed))


def intervals(windowed: dict[str, Windowed]) -> dict[str, QueueIntervals]:
    """Returns the intervals of schedules of the same jobs by name."""
    first = next(iter(windowed.values()), None)
    return {
        name: QueueIntervals(one.wait(), one.slowdown(), ratio(one, first))
        for name, one in windowed.items()
        if first is not None
    }
