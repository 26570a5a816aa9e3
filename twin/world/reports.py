"""What jobs report of themselves in a batch of telemetry: steps and plans, in the order of their time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReportedStep:
    """A step of a job, and the computing time in it by domain; seconds."""

    seconds: float
    computed_s: dict[int, float]


def reports(batch: Json) -> Iterator[tuple[int, str, ReportedStep | Json]]:
    """Yields time (ns), job, and step or report of a plan; a report comes before a step of the same instant.

    Rows of a scenario with several jobs end with the index of their job in `batch["jobs"]`.
    """
    names = batch.get("jobs", ())
    computed: dict[tuple[int, str], dict[int, float]] = {}
    for ns, domain, seconds, *job in batch["computed"]:
        computed.setdefault((int(ns), _name(names, job)), {})[int(domain)] = seconds
    found: list[tuple[int, int, str, ReportedStep | Json]] = []
    for ns, _, seconds, *job in batch["steps"]:
        name = _name(names, job)
        found.append((int(ns), 1, name, ReportedStep(seconds, computed.get((int(ns), name), {}))))
    found += [(int(one["ns"]), 0, one.get("job", ""), one) for one in batch["plans"]]
    for ns, _, name, seen in sorted(found, key=lambda entry: entry[:2]):
        yield ns, name, seen


def _name(names: Any, index: list[float]) -> str:
    return str(names[int(index[0])]) if index else ""
