"""Jobs that are submitted by the ends of others: by hand, and kernel against referee."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.core.errors import UsageError
from policy.queue.registry import recipe
from tests.support.event_streams import of_kernel, of_referee
from tests.support.queues import PLAYABLE, POOL, RECIPES, dependencies, queues
from twin.queue import kernel, referee
from twin.queue.dependencies import Dependencies, MovedSubmissions, on_cycle
from twin.queue.jobs import PREDICTIONS, Prediction, QueueJobs
from twin.queue.referee import Happening
from twin.queue.rules import INSTANT, PREDICTSIM, QueueRules
from twin.queue.simulation import QueueSchedule, simulate

S = 10**9
EXAMPLES = int(os.environ.get("TWIN_FUZZ", "8"))
MOVABLE = [name for name in RECIPES if "-slip" not in name]
Row = tuple[int, int, int, int, int]
"""Submit, run, processors, preceding place, think time; seconds."""


def played(rows: list[Row], policy: str, rules: QueueRules = PREDICTSIM) -> list[tuple[int, int]]:
    """Submission and start of each job, seconds."""
    submit, run, size, before, think = zip(*rows, strict=True)
    given_ = Dependencies(np.array(before), np.array(think) * S)
    jobs = QueueJobs.of_seconds(submit, run, size)
    done = simulate(jobs, 10, recipe(policy), rules=rules, dependencies=given_)
    return [
        (int(at) // S, int(start) // S) for at, start in zip(done.jobs.submit_ns, done.start_ns, strict=True)
    ]


def test_a_job_is_submitted_a_think_time_after_the_end_of_the_one_before() -> None:
    rows = [(0, 10, 10, -1, 0), (1, 5, 10, -1, 0), (2, 4, 3, 1, 6), (50, 1, 1, -1, 0), (60, 1, 1, 2, 0)]
    # The second job runs from 10 to 15; its user thinks for 6 s. The last one follows the third at once, and
    # comes before the fourth, though it was recorded behind it.
    assert played(rows, "fcfs") == [(0, 0), (1, 10), (21, 21), (50, 50), (25, 25)]


def test_a_slower_scheduler_gets_later_submissions() -> None:
    rows = [(0, 10, 8, -1, 0), (1, 10, 10, -1, 0), (2, 9, 2, -1, 0), (3, 1, 1, 2, 5)]
    assert played(rows, "easy")[2:] == [(2, 20), (34, 34)]  # 9 s do not fit into the 8 s before the head
    assert played([*rows[:2], (2, 8, 2, -1, 0), rows[3]], "easy")[2:] == [(2, 2), (15, 20)]


def test_with_no_think_time_the_next_job_comes_behind_the_end_that_it_waits_for() -> None:
    # At 10 the first job ends, and the third follows it; the fourth was submitted before, as recorded.
    rows = [(0, 10, 10, -1, 0), (1, 10, 10, -1, 0), (2, 5, 10, 0, 0), (10, 7, 10, -1, 0)]
    for rules in (PREDICTSIM, INSTANT):
        assert played(rows, "fcfs", rules)[1:] == [
            (1, 10), *([(10, 27), (10, 20)] if rules is PREDICTSIM else [(10, 20), (10, 25)])
        ]  # fmt: skip


def test_f1_goes_by_the_submission_of_this_replay() -> None:
    # Recorded at 2 s the third job would go first; submitted at 60 s it goes behind that of 50 s.
    rows = [(0, 55, 10, -1, 0), (50, 20, 10, -1, 0), (2, 20, 10, 0, 5)]
    order = np.argsort([row[0] for row in rows], kind="stable")
    assert played([rows[at] for at in order], "f1") == [(0, 0), (60, 75), (50, 55)]
    key = recipe("f1").keys(QueueJobs.of_seconds([1], [10], [2]), np.array([10 * S]))
    assert key.static[0] + key.log_weight * 2 == pytest.approx(2 + 870 * 2)


def test_some_jobs_of_a_schedule_are_played_again_in_any_order() -> None:
    waits = Dependencies(np.array([-1, 0, -1, 2]), np.array([0, 6, 0, 7]) * S)
    moved = MovedSubmissions(waits, np.array([0, 1, 2, 3]) * S)
    jobs = QueueJobs.of_seconds([0, 2, 16, 20, 30], [1] * 5, [1] * 5, number=[1, 3, 2, 4, 5])
    again, found = moved.again(jobs)
    assert (again.submit_ns // S).tolist() == [0, 2, 1, 3, 30]  # the last one is new
    assert (found.preceding.tolist(), (found.think_ns // S).tolist()) == ([-1, -1, 0, 1, -1], [0, 0, 6, 7, 0])
    again, found = moved.again(jobs.select([0, 3]))  # without the job that the last of the log follows
    assert ((again.submit_ns // S).tolist(), found.preceding.tolist()) == ([0, 20], [-1, -1])


def test_circles_and_strangers_are_refused() -> None:
    assert on_cycle(np.array([1, 0, 1, -1, 4])).tolist() == [True, True, False, False, True]
    jobs = QueueJobs.of_seconds([0, 1], [1, 1], [1, 1])
    for before, think, message in (
        ([1, 0], [0, 0], "lead back"), ([-1, 2], [0, 0], "none of the jobs"), ([-1, 0], [0, -1], "negative"),
        ([-1], [0], "of 1 jobs"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            simulate(jobs, 1, recipe("fcfs"), dependencies=Dependencies(np.array(before), np.array(think)))
    with pytest.raises(UsageError, match="goes by recorded submit times"):
        simulate(jobs, 1, recipe("wfp3-slip"), dependencies=Dependencies(np.array([-1, 0]), np.array([0, 0])))


@pytest.mark.parametrize("name", MOVABLE)
@given(jobs=queues(most=16), prediction=st.sampled_from(PREDICTIONS), data=st.data())
@settings(max_examples=EXAMPLES, deadline=None)
def test_kernel_and_referee_have_the_same_events(
    name: str, jobs: QueueJobs, prediction: Prediction, data: st.DataObject
) -> None:
    rules = data.draw(st.sampled_from(PLAYABLE[name]))
    waits = data.draw(dependencies(len(jobs)))
    jobs.priority[0] = max(0, jobs.priority[0])
    chosen, given_ = RECIPES[name], jobs.cut_at_estimate() if rules.cuts else jobs
    predicted = given_.predicted_ns(prediction)
    given_both = (given_, predicted, POOL, chosen.keys(given_, predicted), chosen.backfill, rules)
    start, backfilled = kernel.play(*given_both, dependencies=waits)
    happened: list[Happening] = []
    referee.play(*given_both, dependencies=waits, happened=happened)
    submit_ns = waits.submit_ns(given_, start)
    done = QueueSchedule(replace(given_, submit_ns=submit_ns), POOL, start, backfilled)
    assert of_kernel(done) == of_referee(happened, done)
    assert (start >= submit_ns).all()


@pytest.mark.parametrize("name", ["easy", "conservative", "wfp3+easy", "las+easy-sjbf"])
@given(jobs=queues())
@settings(max_examples=10, deadline=None)
def test_without_preceding_jobs_nothing_changes(name: str, jobs: QueueJobs) -> None:
    alone = Dependencies(np.full(len(jobs), -1), np.zeros(len(jobs), np.int64))
    plain, moved = (simulate(jobs, POOL, RECIPES[name], dependencies=one) for one in (None, alone))
    assert (plain.start_ns == moved.start_ns).all() and (plain.backfilled == moved.backfilled).all()
