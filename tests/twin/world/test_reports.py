"""Reports of a batch: in the order of their time, each with its job."""

from typing import Any

from twin.world.reports import ReportedStep, reports


def test_steps_and_reports_are_taken_in_the_order_of_time() -> None:
    report = {"ns": 5, "state": "running"}
    batch: dict[str, Any] = {
        "steps": [[7, 1, 0.1], [5, 0, 0.1]], "computed": [[7, 2, 0.05]], "plans": [report],
    }  # fmt: skip
    assert list(reports(batch)) == [
        (5, "", report), (5, "", ReportedStep(0.1, {})), (7, "", ReportedStep(0.1, {2: 0.05})),
    ]  # fmt: skip


def test_rows_of_several_jobs_are_told_apart() -> None:
    report = {"ns": 6, "state": "running", "job": "a"}
    batch = {
        "jobs": ["a", "b"], "steps": [[7, 1, 0.1, 1], [7, 4, 0.2, 0]], "plans": [report],
        "computed": [[7, 0, 0.05, 0], [7, 0, 0.06, 1]],
    }  # fmt: skip
    assert list(reports(batch)) == [
        (6, "a", report), (7, "b", ReportedStep(0.1, {0: 0.06})), (7, "a", ReportedStep(0.2, {0: 0.05})),
    ]  # fmt: skip
