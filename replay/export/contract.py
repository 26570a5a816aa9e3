"""The contract of targets: what a target takes of a plan, what it cannot express, and the files it writes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ingest.core.errors import UsageError
from replay.export.planned_job import PlannedJob
from twin.core.domain import LinkState
from twin.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of a plan that a target cannot express: `part` and why, in words.

    `instead`: the nearest that it can, in words, and `nearest` the plan with it; None: there is none, and the
    words say what to do. `links`: those of the nearest, where they have to be others.
    """

    part: str
    why: str
    instead: str
    nearest: Plan | None
    links: LinkState | None = None


class ExportTarget(Protocol):
    """A framework, scheduler or simulator that plans are written for."""

    name: str
    about: str

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part of the plan that cannot be expressed; None: all can."""
        ...

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns the files by their names; `difference` is None for `job`."""
        ...

    def start(self, job: PlannedJob) -> str:
        """Returns how to start the job with these files, as Markdown."""
        ...


@dataclass(frozen=True, slots=True)
class Fitted:
    """A job that a target can express, and what of the plan had to change for it."""

    job: PlannedJob
    changed: tuple[Difference, ...]


def fitted(target: ExportTarget, job: PlannedJob, *, nearest: bool) -> Fitted:
    """Returns `job`, or with `nearest` the one like it that the target can express.

    Raises:
        UsageError: the target cannot express a part; the message offers the nearest.
    """
    found: list[Difference] = []
    now = job
    while (difference := target.difference(now)) is not None:
        found.append(difference)
        if difference.nearest is None:
            raise UsageError(_refusal(target, found, None, job))
        now = replace(now, plan=difference.nearest, links=difference.links or now.links)
    if found and not nearest:
        raise UsageError(_refusal(target, found, now, job))
    return Fitted(now, tuple(found))


def _refusal(target: ExportTarget, found: list[Difference], now: PlannedJob | None, job: PlannedJob) -> str:
    parts = "; ".join(f"{one.part} ({one.why})" for one in found)
    ways = "; ".join(one.instead for one in found)
    if now is None:
        return f"{target.name} cannot express: {parts}. There is no near plan: {found[-1].instead}"
    return f"{target.name} cannot express: {parts}. The nearest{cost(job, now)}: {ways}. --nearest exports it"


def cost(before: PlannedJob, after: PlannedJob) -> str:
    """Returns in words how iteration time and memory change between two plans of one job."""
    words = ""
    a, b = before.iteration_s, after.iteration_s
    if a is not None and b is not None:
        words = f", {b:.2f} s an iteration in place of {a:.2f} s"
    return words + (", which does not fit the memory" if after.estimator.problems(after.plan) else "")
