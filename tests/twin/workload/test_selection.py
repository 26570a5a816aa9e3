from pathlib import Path

import pytest

from ingest.core.errors import InputError, UsageError
from ingest.readers.clusters import swf_log
from twin.queue.rules import PREDICTSIM, RLSCHEDULER, QueueRules
from twin.workload.selection import LogJobs, select

S = 10**9
Fields = dict[str, int]


def selected(
    folder: Path, *rows: Fields, rules: QueueRules = PREDICTSIM, processors: int | None = None,
    dependencies: bool = False,
) -> LogJobs:  # fmt: skip
    """The jobs of a log on 8 processors; fields that are not given are those of a sound job."""
    sound = dict.fromkeys(swf_log.FIELDS, -1) | {
        "submit_s": 0,
        "run_s": 5,
        "processors": 4,
        "estimate_s": 9,
    }
    lines = [
        " ".join(str({**sound, "job": number, **row}[name]) for name in swf_log.FIELDS)
        for number, row in enumerate(rows, 1)
    ]
    path = folder / "log.swf"
    path.write_text("; MaxProcs: 8\n" + "\n".join(lines))
    return select(swf_log.read(path), rules, processors, dependencies=dependencies)


def test_processors_requested_count_else_those_allocated(tmp_path: Path) -> None:
    found = selected(tmp_path, {}, {"processors_requested": 7}, {"processors": 8, "processors_requested": 7})
    assert found.jobs.processors.tolist() == [4, 7, 7]
    found = selected(tmp_path, {"processors": 8, "processors_requested": 7}, rules=RLSCHEDULER)
    assert found.jobs.processors.tolist() == [8]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"processors": 9}, "more processors than the machine has"),
        ({"processors_requested": 9}, "more processors than the machine has"),
        ({"processors": 0}, "no processors"),
        ({"run_s": 0}, "run time not positive"),
        ({"run_s": -1}, "run time not positive"),
        ({"estimate_s": 0}, "estimate not positive"),
        ({"submit_s": -5}, "submit time negative"),
        ({"submit_s": 10**10}, "time beyond all reason"),
    ],
)
def test_a_row_that_cannot_run_is_left_out_with_its_line_and_reason(
    tmp_path: Path, row: Fields, reason: str
) -> None:
    found = selected(tmp_path, {}, row, {})
    assert found.jobs.number.tolist() == [1, 3]
    assert [(one.row, one.raw, one.reason) for one in found.rejects] == [(3, "2", reason)]
    assert found.reasons == {reason: 1}


def test_the_first_reason_counts(tmp_path: Path) -> None:
    assert selected(tmp_path, {}, {"processors": 9, "run_s": 0}).reasons == {
        "more processors than the machine has": 1
    }


def test_a_larger_machine_takes_more(tmp_path: Path) -> None:
    assert len(selected(tmp_path, {"processors": 9}, processors=9).jobs) == 1


def test_a_log_without_estimates_has_its_run_times(tmp_path: Path) -> None:
    found = selected(tmp_path, {"estimate_s": -1}, {"estimate_s": -1, "run_s": 7})
    assert found.jobs.estimate_ns.tolist() == [5 * S, 7 * S]
    assert "the log has no estimates: run times are taken for them" in found.notes


def test_rlscheduler_keeps_more_rows(tmp_path: Path) -> None:
    rows = ({"run_s": -1}, {"run_s": 0}, {"estimate_s": -1}, {"run_s": -1, "estimate_s": -1})
    found = selected(tmp_path, *rows, rules=RLSCHEDULER)
    assert found.reasons == {"run time zero": 1}
    assert found.jobs.run_ns.tolist() == [10 * S, 5 * S, 10 * S]
    assert found.jobs.estimate_ns.tolist() == [9 * S, 5 * S, -S]


def test_what_is_done_to_the_jobs_is_said(tmp_path: Path) -> None:
    rows = ({"run_s": 20}, {"submit_s": 9}, {"submit_s": 3, "preceding_job": 1}, {"processors_requested": 2})
    notes = selected(tmp_path, *rows).notes
    assert notes == (
        "1 runs are longer than their estimate and are cut there (first: row 2, job 1)",
        "2 rows were submitted before the row above them; jobs are sorted by submit time "
        "(first: row 4, job 3)",
        "1 jobs held other processors than they requested; those requested are taken",
        "4 jobs name no user; an order that goes by users takes them for one",
        "the log has no wait times: its submit times may be start times",
        "1 jobs name a job before them; their submit time is taken as it is",
    )


def test_preceding_jobs_that_lead_back_are_rejected(tmp_path: Path) -> None:
    before = [-1, 3, 2, 2, 5, 99]  # 2 and 3 wait for each other, 4 for them, 5 for itself, 99 is not there
    found = selected(tmp_path, *({"preceding_job": one} for one in before))
    reason = "its preceding jobs lead back to itself"
    assert [(one.raw, one.reason) for one in found.rejects] == [(job, reason) for job in "235"]
    assert found.jobs.number.tolist() == [1, 4, 6]


def test_jobs_that_cannot_follow_their_preceding_one_are_rejected_with_their_row(tmp_path: Path) -> None:
    rows: tuple[Fields, ...] = (
        {}, {"preceding_job": 1, "think_s": 4}, {"preceding_job": 99}, {"preceding_job": 5}, {},
        {"preceding_job": 7}, {"preceding_job": 6}, {"preceding_job": 1, "think_s": -7},
        {"preceding_job": 1, "think_s": 10**10}, {"preceding_job": 10},
    )  # fmt: skip
    found = selected(tmp_path, *rows, dependencies=True)
    assert [(one.row, one.reason) for one in found.rejects] == [
        (4, "its preceding job is not in the log"),
        (5, "its preceding job comes later in the log"),
        (7, "its preceding jobs lead back to itself"),
        (8, "its preceding jobs lead back to itself"),
        (9, "think time negative"),
        (10, "think time beyond all reason"),
        (11, "its preceding jobs lead back to itself"),
    ]
    assert found.jobs.number.tolist() == [1, 2, 5] and found.dependencies is not None
    assert found.dependencies.preceding.tolist() == [-1, 0, -1]
    assert found.dependencies.think_ns.tolist() == [0, 4 * S, 0]


def test_a_job_follows_by_number_wherever_it_stands_and_one_left_out_is_not_followed(tmp_path: Path) -> None:
    rows: tuple[Fields, ...] = (
        {"submit_s": 9}, {"submit_s": 3, "preceding_job": 1}, {"run_s": 0},
        {"submit_s": 4, "preceding_job": 3},
    )  # fmt: skip
    found = selected(tmp_path, *rows, dependencies=True)
    assert found.jobs.number.tolist() == [2, 4, 1] and found.dependencies is not None
    assert found.dependencies.preceding.tolist() == [2, -1, -1]
    assert found.notes[-3:] == (
        "1 jobs are submitted when the job before them ends, plus their think time",
        "1 jobs follow one that was left out; they are submitted as recorded",
        "1 think times are unknown and count as 0 s",
    )


def test_a_log_without_preceding_jobs_has_no_dependencies(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave --dependencies out"):
        selected(tmp_path, {}, dependencies=True)


def test_users_and_queues_are_kept(tmp_path: Path) -> None:
    jobs = selected(tmp_path, {"user": 3, "queue": 2}).jobs
    assert (int(jobs.user[0]), int(jobs.priority[0])) == (3, 2)


def test_a_machine_of_unknown_size_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("1 0 -1 5 4 -1 -1 4 9 -1 1 3 -1 -1 2 -1 -1 -1\n")
    with pytest.raises(UsageError, match="--processors N"):
        select(swf_log.read(path), PREDICTSIM)


def test_a_log_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no job is left of 2 rows; run time not positive: 2"):
        selected(tmp_path, {"run_s": 0}, {"run_s": -1})
