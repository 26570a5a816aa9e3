"""Small queues whose schedules are found by hand, in seconds."""

import pytest

from ingest.core.errors import UsageError
from policy.queue.registry import recipe
from twin.queue import ordering
from twin.queue.jobs import LONGEST_NS, Prediction, QueueJobs
from twin.queue.pool import flags_of, idle, inputs_of
from twin.queue.rules import INSTANT, PREDICTSIM, RLSCHEDULER, QueueRules
from twin.queue.simulation import simulate

Row = tuple[int, int, int, int]
"""Submit, run, processors, estimate."""


def starts(
    rows: list[Row], policy: str, *, pool: int = 10, prediction: Prediction = "estimate",
    rules: QueueRules = PREDICTSIM,
) -> list[int]:  # fmt: skip
    jobs = QueueJobs.of_seconds(*zip(*rows, strict=True))
    done = simulate(jobs, pool, recipe(policy), prediction=prediction, rules=rules)
    return [int(start) // 10**9 for start in done.start_ns]


BLOCKED: list[Row] = [(0, 10, 6, 10), (1, 10, 8, 10), (2, 8, 4, 8), (3, 20, 2, 20), (4, 20, 2, 20)]
"""The second job has to wait for the first; then 2 processors are to spare."""


def test_without_backfill_the_head_blocks() -> None:
    assert starts(BLOCKED, "fcfs") == [0, 10, 20, 20, 20]


def test_easy_lets_through_who_ends_in_time_or_is_spared() -> None:
    # The third job ends at 10, when the head starts. No processor is free for the fourth then; of the last
    # two one is spared: both ask for 2, 2 are extra.
    assert starts(BLOCKED, "easy") == [0, 10, 2, 10, 20]
    assert starts([(0, 10, 6, 10), (1, 10, 8, 10), (2, 20, 2, 20), (3, 20, 2, 20)], "easy") == [0, 10, 2, 20]


def test_easy_reserves_by_predictions_and_starts_by_ends() -> None:
    early = [(0, 5, 6, 10), (1, 10, 8, 10), (2, 8, 4, 8)]
    assert starts(early, "easy") == [0, 10, 2]  # the first job ends at 5, the third holds on until 10
    assert starts(early, "easy", prediction="actual") == [0, 5, 15]


def test_twice_the_estimate_leaves_more_room() -> None:
    rows: list[Row] = [(0, 10, 6, 10), (1, 10, 8, 10), (2, 9, 4, 9)]
    assert starts(rows, "easy", prediction="twice-estimate") == [0, 11, 2]


def test_a_run_is_cut_at_its_estimate_unless_the_rules_let_it_run() -> None:
    rows: list[Row] = [(0, 10, 10, 4), (1, 1, 10, 1)]
    assert starts(rows, "fcfs") == [0, 4]
    assert starts(rows, "fcfs", rules=RLSCHEDULER) == [0, 10]


def test_sjbf_tries_the_shortest_first() -> None:
    rows: list[Row] = [(0, 10, 6, 10), (1, 10, 10, 10), (2, 8, 4, 8), (2, 3, 3, 3), (2, 5, 3, 5)]
    assert starts(rows, "easy", rules=INSTANT) == [0, 10, 2, 20, 20]
    assert starts(rows, "easy-sjbf", rules=INSTANT) == [0, 10, 20, 2, 5]


def test_conservative_keeps_the_place_of_everybody() -> None:
    # The fourth job overtakes the second under EASY, which delays the third; conservative refuses.
    rows: list[Row] = [(0, 10, 6, 10), (1, 10, 8, 10), (2, 10, 4, 10), (3, 18, 2, 18)]
    assert starts(rows, "easy") == [0, 10, 20, 3]
    rows = [(0, 10, 6, 10), (1, 5, 8, 5), (2, 10, 10, 10), (3, 14, 2, 14)]
    assert starts(rows, "easy") == [0, 10, 17, 3]
    assert starts(rows, "conservative") == [0, 10, 15, 25]


def test_conservative_moves_reservations_up_when_a_job_ends_early() -> None:
    rows: list[Row] = [(0, 4, 6, 10), (1, 5, 8, 5), (2, 5, 10, 5)]
    assert starts(rows, "conservative") == [0, 4, 9]


def test_an_order_without_backfill_starts_the_best_first() -> None:
    rows: list[Row] = [(0, 10, 10, 10), (1, 9, 10, 9), (2, 3, 10, 3), (3, 5, 10, 5)]
    assert starts(rows, "sjf") == [0, 18, 10, 13]
    assert starts(rows, "ljf") == [0, 10, 19, 22]


def test_the_chosen_job_keeps_its_turn_only_where_the_rules_commit() -> None:
    rows: list[Row] = [(0, 10, 10, 10), (1, 9, 10, 9), (2, 3, 10, 3)]
    assert starts(rows, "sjf", rules=RLSCHEDULER) == [0, 10, 19]
    assert starts(rows, "sjf", rules=INSTANT) == [0, 13, 10]


def test_events_of_one_instant_follow_the_rules() -> None:
    # At 10 the first job ends and two are submitted. Where submissions come first, the first job counts as
    # free already when the second one is seen alone.
    rows: list[Row] = [(0, 10, 10, 10), (10, 9, 10, 9), (10, 3, 10, 3)]
    assert starts(rows, "sjf", rules=INSTANT) == [0, 13, 10]
    assert starts(rows, "sjf", rules=PREDICTSIM) == [0, 10, 19]
    # Two submissions of one instant: after each one a pass, or one pass for both.
    rows = [(0, 9, 10, 9), (0, 3, 10, 3)]
    assert starts(rows, "sjf", rules=INSTANT) == [3, 0]
    assert starts(rows, "sjf", rules=PREDICTSIM) == [0, 9]


def test_equal_keys_go_by_submission_then_number() -> None:
    rows: list[Row] = [(0, 5, 10, 5), (1, 5, 10, 5), (1, 5, 10, 5), (1, 5, 10, 5)]
    names = (
        "fcfs",
        "sjf",
        "saf",
        "ljf",
        "wfp3",
        "unicef",
        "hrrn",
        "las",
        "fair-tree",
        "drf",
        "easy",
        "conservative",
    )
    for policy in names:
        assert starts(rows, policy) == [0, 5, 10, 15], policy


def test_no_jobs_make_an_empty_schedule() -> None:
    jobs = QueueJobs.of_seconds([], [], [])
    assert len(simulate(jobs, 4, recipe("easy")).start_ns) == 0


@pytest.mark.parametrize(
    ("policy", "rules", "pool", "message"),
    [
        ("easy", PREDICTSIM, 0, "needs at least 1"),
        ("easy", PREDICTSIM, 5, "asks for 10 processors of 5"),
        ("conservative", RLSCHEDULER, 10, "do not cut them"),
        ("easy-sjbf", RLSCHEDULER, 10, "backfills the shortest job first"),
    ],
)
def test_what_cannot_be_played_is_refused(policy: str, rules: QueueRules, pool: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        starts([(0, 1, 10, 1)], policy, rules=rules, pool=pool)


def test_a_job_without_estimate_is_refused_where_runs_are_cut() -> None:
    with pytest.raises(UsageError, match="without an estimate"):
        starts([(0, 1, 1, -1)], "easy")
    assert starts([(0, 1, 1, -1)], "fcfs", rules=RLSCHEDULER) == [0]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "wfp3+easy"])
def test_a_queue_that_outlives_the_clock_is_told(policy: str) -> None:
    run = (LONGEST_NS - 1) // 10**9
    with pytest.raises(UsageError, match="beyond 73 years"):
        starts([(0, run, 10, run)] * 5, policy)


def test_a_queue_in_any_disorder_is_sorted_by_key_and_then_by_submission() -> None:
    # With the waits at 100 s the order of hrrn is that of run times; the queue stands in order of submission.
    # 40 jobs shortest last move by 19.5 places on average, more than `SHUFFLED`.
    for runs in (range(40, 0, -1), range(1, 41), [5, 3] * 20):
        jobs = QueueJobs.of_seconds([0] * 40, list(runs), [1] * 40)
        keys = recipe("hrrn").keys(jobs, jobs.run_ns)
        pool, inputs = idle(1, keys, 1), inputs_of(jobs, jobs.run_ns, keys)
        flags = flags_of(keys, "none", PREDICTSIM)
        for job in range(40):
            ordering.submit(inputs, flags, pool, job)
        ordering.sort(inputs, flags, pool, 100 * 10**9)
        assert pool.queue[:40].tolist() == sorted(range(40), key=lambda job: (jobs.run_ns[job], job))
