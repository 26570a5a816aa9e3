"""Several schedulers on the jobs of one log: the same jobs, the same pool, the same rules."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core.errors import UsageError
from ingest.readers import job_logs
from ingest.readers.job_logs import LakeJobs
from policy.queue.registry import recipe
from twin.queue.jobs import Prediction
from twin.queue.metrics import QueueFigures, figures
from twin.queue.rules import PREDICTSIM, QueueRules
from twin.queue.selection import LogJobs, select
from twin.queue.simulation import simulate

USUAL = ("fcfs", "easy", "easy-sjbf", "conservative")
"""Schedulers that are compared if none are named."""
SHOWN_ROWS = 20
"""Rows left out that the JSON object lists; all of them are counted."""


@dataclass(frozen=True, eq=False)
class QueueComparison:
    """The jobs of a log, and the figures of each scheduler by name."""

    log: LogJobs
    prediction: Prediction
    rules: QueueRules
    figures: dict[str, QueueFigures]

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin queue --json`."""
        return {
            "schema": "twin.queue/1",
            "log": self.log.name,
            "processors": self.log.processors,
            "prediction": self.prediction,
            "rules": self.rules.name,
            "results": [{"policy": name, **one.to_json()} for name, one in self.figures.items()],
            "rejected": len(self.log.rejects),
            "rejected_by_reason": self.log.reasons,
            "rejected_rows": [
                {"row": one.row, "column": one.column, "raw": one.raw, "reason": one.reason}
                for one in self.log.rejects[:SHOWN_ROWS]
            ],
            "notes": list(self.log.notes),
        }


def compare(
    source: Path | LakeJobs, policies: Sequence[str] = (), *, processors: int | None = None,
    prediction: Prediction = "estimate", rules: QueueRules = PREDICTSIM,
) -> QueueComparison:  # fmt: skip
    """Returns what each scheduler makes of the jobs of a log.

    Raises:
        InputError: the log cannot be read or has no job. NotFoundError: the lake has none.
        UsageError: an unknown scheduler, or one that cannot be played on this log.
    """
    recipes = [recipe(name) for name in dict.fromkeys(policies or USUAL)]
    if processors is not None and processors < 1:
        raise UsageError(f"a machine of {processors} processors; it needs at least 1")
    log = select(job_logs.read(source), rules, processors)
    found = {
        one.name: figures(simulate(log.jobs, log.processors, one, prediction=prediction, rules=rules))
        for one in recipes
    }
    return QueueComparison(log, prediction, rules, found)
