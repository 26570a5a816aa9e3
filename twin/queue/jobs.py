"""Rigid jobs of a queue as arrays: submit time, run time, processors, and what the scheduler is told."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ingest.core.errors import UsageError
from ingest.core.units import NS_PER_S

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Prediction = Literal["estimate", "actual", "twice-estimate"]
PREDICTIONS: tuple[Prediction, ...] = ("estimate", "actual", "twice-estimate")
UNKNOWN = -1
"""User, priority or deadline of a job that has none."""
NO_ESTIMATE_NS = -NS_PER_S
"""Estimate of a job that has none, under rules that compute with the -1 s of a log."""
FailedStarts = Mapping[int, tuple[tuple[int, dict[str, Any]], ...]]
"""Starts of jobs that failed, by number: nanoseconds from the start of the job to each failure, and what is
told of it. Their time is part of the run."""
LATEST_NS, LONGEST_NS = 2**61, 2**60
"""Times (73 years) and durations (36 years) lie below them, so that a sum fits into 64 bits."""


@dataclass(frozen=True, eq=False)
class QueueJobs:
    """Jobs in order of submission, ties in order of their number; one element a job in every array.

    `run_ns` is known to the simulator alone, `estimate_ns` is what the user said. `priority`: lower goes
    first. `user`, `priority`, `deadline_ns` and `account` are -1 where a job has none.
    """

    number: Int
    submit_ns: Int
    run_ns: Int
    processors: Int
    estimate_ns: Int
    user: Int
    priority: Int
    deadline_ns: Int
    account: Int

    @classmethod
    def of_seconds(
        cls, submit: ArrayLike, run: ArrayLike, processors: ArrayLike, estimate: ArrayLike | None = None, *,
        number: ArrayLike | None = None, user: ArrayLike | None = None,
        priority: ArrayLike | None = None, deadline: ArrayLike | None = None,
        account: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Returns the jobs of columns in seconds, sorted; without estimates users know their run times.

        Raises:
            UsageError: a job without processors, with a negative time, or a time beyond all reason.
        """
        jobs = len(np.asarray(submit))
        unknown = np.full(jobs, UNKNOWN, np.int64)
        columns = (
            np.arange(1, jobs + 1) if number is None else np.asarray(number, np.int64),
            _ns(submit), _ns(run), np.asarray(processors, np.int64),
            _ns(run if estimate is None else estimate),
            *(unknown if column is None else np.asarray(column, np.int64) for column in (user, priority)),
            unknown if deadline is None else np.maximum(_ns(deadline), UNKNOWN),
            unknown if account is None else np.asarray(account, np.int64),
        )  # fmt: skip
        by_submission = np.lexsort((columns[0], columns[1]))
        made = cls(*(np.ascontiguousarray(column[by_submission], np.int64) for column in columns))
        made.check()
        return made

    def __len__(self) -> int:
        return len(self.number)

    def check(self) -> None:
        """Checks that every job can be simulated.

        Raises:
            UsageError: it cannot.
        """
        if len(self) and self.processors.min() < 1:
            raise UsageError("a job asks for no processors; take it out")
        limits = {
            "submit_ns": (0, LATEST_NS),
            "run_ns": (0, LONGEST_NS),
            "estimate_ns": (NO_ESTIMATE_NS, LONGEST_NS),
        }
        for name, (least, limit) in limits.items():
            column = getattr(self, name)
            if len(self) and not least <= column.min() <= column.max() < limit:
                raise UsageError(f"{name} of a job is below {least}, or {limit} or more; take it out")

    def cut_at_estimate(self) -> Self:
        """Returns the jobs with no run longer than its estimate: there the machine ends it."""
        return replace(self, run_ns=np.minimum(self.run_ns, self.estimate_ns))

    def predicted_ns(self, prediction: Prediction) -> Int:
        """Returns the run times that the scheduler counts on (n,)."""
        if prediction == "actual":
            return self.run_ns
        return self.estimate_ns * (2 if prediction == "twice-estimate" else 1)

    def select(self, chosen: Any) -> Self:
        """Returns the jobs of a mask, slice or list of indices, in their order."""
        return type(self)(*(np.ascontiguousarray(getattr(self, one.name)[chosen]) for one in fields(self)))


def _ns(seconds: ArrayLike) -> Int:
    """Returns seconds as nanoseconds, each rounded once; whole seconds are exact."""
    column = np.asarray(seconds)
    if np.issubdtype(column.dtype, np.integer):
        whole_ns: Int = np.multiply(column, NS_PER_S, dtype=np.int64)
        return whole_ns
    whole = np.floor(column)
    parts_ns = np.rint((column - whole) * NS_PER_S).astype(np.int64)
    time_ns: Int = np.multiply(whole.astype(np.int64), NS_PER_S) + parts_ns
    return time_ns
