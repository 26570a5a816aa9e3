"""Jobs submitted to a world: time of submission, priority, training job and its length."""

from dataclasses import dataclass
from typing import Any

from twin.core.job import JobSpec


@dataclass(frozen=True, slots=True)
class Submission:
    """Job as it is submitted. `name` is empty for the only job of a world without a job list.

    A job of greater `priority` may take GPUs from others, which fall back to their last checkpoint. It leaves
    after `tokens`, rounded up to whole iterations; None: it runs to the end.
    """

    name: str
    submit_ns: int
    priority: int
    spec: JobSpec
    tokens: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Fields of the payload of `job_submitted`."""
        return {
            "model": self.spec.model.name,
            "global_batch": self.spec.global_batch,
            "priority": self.priority,
            "tokens": self.tokens,
        }
