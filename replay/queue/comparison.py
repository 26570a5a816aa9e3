"""Several schedulers on the jobs of one log: the same jobs, the same pool, the same rules."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ingest.core.errors import UsageError
from ingest.parsing.reader import Reject
from ingest.readers import job_logs
from ingest.readers.job_logs import LakeJobs
from policy.queue.registry import recipe
from replay.queue import run_events
from twin.queue.jobs import Prediction
from twin.queue.metrics import QueueFigures, figures
from twin.queue.rules import PREDICTSIM, QueueRules
from twin.queue.selection import LogJobs, select
from twin.queue.simulation import simulate

USUAL = ("fcfs", "easy", "easy-sjbf", "conservative")
"""Schedulers that are compared if none are named."""
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


@dataclass(frozen=True, eq=False)
class QueueComparison:
    """The jobs of a log, and the figures of each scheduler by name."""

    log: LogJobs
    prediction: Prediction
    rules: QueueRules
    figures: dict[str, QueueFigures]
    runs: dict[str, str] = field(default_factory=dict)
    """Ids of the runs that were kept, by scheduler."""

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin queue --json`."""
        return {
            "schema": "twin.queue/1",
            "log": self.log.name,
            "processors": self.log.processors,
            "prediction": self.prediction,
            "rules": self.rules.name,
            "results": [
                {"policy": name, "run": self.runs.get(name), **one.to_json()}
                for name, one in self.figures.items()
            ],
            **read_to_json(self.log),
        }


def compare(
    source: Path | LakeJobs, policies: Sequence[str] = (), *, processors: int | None = None,
    prediction: Prediction = "estimate", rules: QueueRules = PREDICTSIM, keep: Path | None = None,
) -> QueueComparison:  # fmt: skip
    """Returns what each scheduler makes of the jobs of a log; with `keep` each is a run of that store.

    Raises:
        InputError: the log cannot be read or has no job. NotFoundError: the lake has none.
        UsageError: an unknown scheduler, or one that cannot be played on this log.
    """
    recipes = [recipe(name) for name in dict.fromkeys(policies or USUAL)]
    if processors is not None and processors < 1:
        raise UsageError(f"a machine of {processors} processors; it needs at least 1")
    log = select(job_logs.read(source), rules, processors)
    dataset = source.name.partition("/")[0] if isinstance(source, LakeJobs) else None
    found, runs = {}, {}
    for one in recipes:
        done = simulate(log.jobs, log.processors, one, prediction=prediction, rules=rules)
        found[one.name] = figures(done)
        if keep is not None:
            runs[one.name] = run_events.record(
                keep, log, done, one.name, prediction=prediction, rules=rules, dataset=dataset
            )
    return QueueComparison(log, prediction, rules, found, runs)
