import numpy as np
import pytest

from ingest.core.errors import UsageError
from twin.queue.jobs import LATEST_NS, QueueJobs

S = 10**9


def test_jobs_are_sorted_by_submission_then_number() -> None:
    jobs = QueueJobs.of_seconds([5, 0, 5], [1, 2, 3], [1, 1, 1], number=[9, 8, 7])
    assert jobs.number.tolist() == [8, 7, 9]
    assert jobs.run_ns.tolist() == [2 * S, 3 * S, 1 * S]


def test_seconds_become_nanoseconds_rounded_once() -> None:
    jobs = QueueJobs.of_seconds([0.0, 1e9 + 0.25], [0.1, 3.0], [1, 1])
    assert jobs.submit_ns.tolist() == [0, 10**18 + S // 4]
    assert jobs.run_ns.tolist() == [S // 10, 3 * S]


def test_who_says_nothing_knows_the_run_time() -> None:
    jobs = QueueJobs.of_seconds([0], [7], [1])
    assert jobs.estimate_ns.tolist() == [7 * S]
    assert [int(column[0]) for column in (jobs.user, jobs.priority, jobs.deadline_ns)] == [-1, -1, -1]


def test_predictions_and_the_cut() -> None:
    jobs = QueueJobs.of_seconds([0, 0], [7, 3], [1, 1], [5, 9])
    assert jobs.cut_at_estimate().run_ns.tolist() == [5 * S, 3 * S]
    assert jobs.predicted_ns("estimate").tolist() == [5 * S, 9 * S]
    assert jobs.predicted_ns("twice-estimate").tolist() == [10 * S, 18 * S]
    assert jobs.predicted_ns("actual").tolist() == [7 * S, 3 * S]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"processors": [0]}, "no processors"),
        ({"submit": [-1]}, "submit_ns of a job is below 0"),
        ({"run": [-1.5]}, "run_ns of a job is below 0"),
        ({"estimate": [-2]}, "estimate_ns of a job is below"),
        ({"submit": [LATEST_NS / S]}, "or more"),
    ],
)
def test_jobs_that_cannot_be_simulated_are_refused(column: dict[str, list[float]], message: str) -> None:
    sound = {"submit": [0], "run": [1], "processors": [1], "estimate": [1]}
    with pytest.raises(UsageError, match=message):
        QueueJobs.of_seconds(**(sound | column))


def test_a_selection_keeps_every_column() -> None:
    jobs = QueueJobs.of_seconds([0, 1, 2], [1, 2, 3], [1, 2, 3], user=[4, 5, 6])
    chosen = jobs.select(np.array([False, True, True]))
    assert (chosen.user.tolist(), chosen.processors.tolist(), len(chosen)) == ([5, 6], [2, 3], 2)
