"""The files of an export, written into a folder of their own with a README."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.core import durable
from replay.export import rank_map
from replay.export.contract import ExportTarget, Fitted, cost, fitted
from replay.export.planned_job import PlannedJob
from replay.export.readme import readme
from twin.core.plan_text import plan_text

README = "README.md"


@dataclass(frozen=True, slots=True)
class Export:
    """Files of one target, not yet written; `fitted` says what of the plan had to change."""

    target: ExportTarget
    fitted: Fitted
    asked: PlannedJob
    folder: Path
    files: Mapping[str, bytes]

    def to_json(self) -> dict[str, Any]:
        """Returns the object of `twin export --json`."""
        job = self.fitted.job
        return {
            "schema": "twin.export/1",
            "target": self.target.name,
            "origin": job.origin,
            "scenario": job.name,
            "plan": plan_text(job.plan, [domain.name for domain in job.domains]),
            "folder": str(self.folder),
            "files": [{"name": name, "bytes": len(data)} for name, data in sorted(self.files.items())],
            "changed": [
                {"part": one.part, "why": one.why, "instead": one.instead} for one in self.fitted.changed
            ],
            "iteration_s": job.iteration_s,
            "iteration_s_asked": self.asked.iteration_s,
        }

    @property
    def cost(self) -> str:
        """Change of time and memory with what had to change, in words."""
        return cost(self.asked, self.fitted.job)

    def write(self, *, force: bool) -> None:
        """Writes all files, with `force` in place of older ones of these names.

        Raises:
            ExistsError: one of them is there, without `force`; nothing was written. StorageError: the disk
            refused.
        """
        durable.replace_all(self.folder, self.files, force=force)


def export(target: ExportTarget, job: PlannedJob, folder: Path, *, nearest: bool) -> Export:
    """Returns the files of a plan for a target.

    Raises:
        UsageError: the target cannot express the plan, and `nearest` is false or there is no near one.
    """
    rank_map.check_names(job)
    found = fitted(target, job, nearest=nearest)
    texts: dict[str, str | bytes] = dict(target.files(found.job))
    texts[README] = readme(target, found, job, tuple(texts))
    files = {name: text.encode() if isinstance(text, str) else text for name, text in texts.items()}
    return Export(target, found, job, folder, files)
