"""Published results come out: every start, every average, every cell."""

from pathlib import Path

import pytest

from ingest.core.errors import InputError
from ingest.readers.clusters import swf_log
from policy.queue.registry import recipe
from replay.logqueue import published, recorded
from replay.logqueue.sequences import LENGTH, STARTS, judged, sequences
from twin.queue.jobs import QueueJobs
from twin.queue.rules import PREDICTSIM, RLSCHEDULER
from twin.workload.selection import select

OTHER_CELL = ("SDSC-SP2", "SJF with backfill", "utilization")
"""Printed as 0.661; ours is 0.66046."""


@pytest.mark.shared
def test_every_start_of_the_recorded_runs_comes_out(shared: Path) -> None:
    runs = list(published.recorded_runs(shared / "jobs"))
    assert [run.jobs for run in runs] == [28481] * 3 + [54006] * 3
    assert [run.other_starts for run in runs] == [0] * 6


@pytest.mark.shared
def test_the_log_of_kth_through_the_filter_is_the_published_input(shared: Path) -> None:
    run = recorded.read(shared / "jobs/swf-easy-runs/KTH-SP2" / published.INPUT)
    log = select(swf_log.read(shared / "jobs/swf/KTH-SP2-log.swf"), PREDICTSIM).jobs.cut_at_estimate()
    for name in ("submit_ns", "run_ns", "processors", "estimate_ns"):
        assert (getattr(run.jobs, name) == getattr(log, name)).all(), name


@pytest.mark.shared
def test_nine_figures_of_eighteen_runs_come_out_to_twelve_digits(shared: Path) -> None:
    cells = list(published.easy_cells(shared / "jobs", shared / "validation/jobs"))
    assert len(cells) == 9 * 18
    assert [cell for cell in cells if not cell.equal] == []


@pytest.mark.shared
def test_forty_cells_of_rlscheduler_come_out_but_one(shared: Path) -> None:
    cells = list(published.heuristic_cells(shared / "jobs", shared / "validation/jobs"))
    assert len(cells) == 40
    others = {(cell.log, cell.policy, cell.figure): cell.ours for cell in cells if not cell.equal}
    assert others == {OTHER_CELL: pytest.approx(0.66046, abs=5e-6)}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("policy", "slowdown"),
    [("wfp3", 337.34), ("unicef", 381.71), ("wfp3+easy", 126.50), ("unicef+easy", 103.10)],
)
def test_the_right_formulas_differ_from_the_published_slips(
    shared: Path, policy: str, slowdown: float
) -> None:
    log = select(swf_log.read(shared / "jobs/swf/lublin_256.swf"), RLSCHEDULER)
    found = judged(log.jobs, log.processors, recipe(policy))
    assert sum(one for one, _ in found) / len(found) == pytest.approx(slowdown, abs=0.005)


def test_sequences_are_consecutive_jobs_by_number() -> None:
    count = max(STARTS) + LENGTH
    jobs = QueueJobs.of_seconds(range(count, 0, -1), [1] * count, [1] * count)
    parts = list(sequences(jobs))
    assert [len(part) for part in parts] == [LENGTH] * 10
    assert sorted(parts[1].number.tolist()) == list(range(STARTS[1] + 1, STARTS[1] + 1 + LENGTH))


def test_a_folder_without_results_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name the folder of results"):
        list(published.easy_cells(tmp_path, tmp_path))
