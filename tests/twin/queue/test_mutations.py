"""Four errors of a known simulator, each put into the kernel: a comparison of all starts finds every one.

docs/measured/jobs.md says how wrong the starts are with each of them, and how little the averages say of it.
"""

from pathlib import Path

import numpy as np
import pytest

from policy.queue.registry import recipe
from replay.logqueue import recorded
from tests.support.queue_mutants import MUTANTS, uncompiled
from twin.queue import referee
from twin.queue.jobs import Int, QueueJobs
from twin.queue.rules import PREDICTSIM


def wrong(jobs: QueueJobs, processors: int, truth: Int, *errors: str) -> Int:
    """Which jobs start at another time than in truth."""
    played, easy = jobs.cut_at_estimate(), recipe("easy")
    predicted = played.predicted_ns("actual")
    module = uncompiled(played.estimate_ns, *errors)
    keys = easy.keys(played, predicted)
    start_ns, _ = module.play(played, predicted, processors, keys, "easy", PREDICTSIM)
    return np.flatnonzero(start_ns != truth)


@pytest.fixture(scope="module")
def crowded() -> tuple[QueueJobs, Int]:
    """A queue that never empties, and its starts by the SimPy referee."""
    random = np.random.default_rng(2)
    run = random.integers(1, 200, 150)
    jobs = QueueJobs.of_seconds(
        np.sort(random.integers(0, 5000, 150)),
        run,
        random.integers(1, 9, 150),
        run * random.integers(1, 4, 150),
    )
    predicted, easy = jobs.predicted_ns("actual"), recipe("easy")
    return jobs, np.array(
        referee.play(jobs, predicted, 10, easy.keys(jobs, predicted), "easy", PREDICTSIM)[0]
    )


def test_the_kernel_itself_passes(crowded: tuple[QueueJobs, Int]) -> None:
    assert len(wrong(crowded[0], 10, crowded[1])) == 0


@pytest.mark.parametrize("error", MUTANTS)
def test_the_referee_finds_each_error(crowded: tuple[QueueJobs, Int], error: str) -> None:
    assert len(wrong(crowded[0], 10, crowded[1], error)) > 0


JOBS = 1500
"""First jobs of the recorded run; those that start before the next one is submitted depend on no other."""


@pytest.mark.shared
@pytest.mark.parametrize("error", ["", *MUTANTS])
def test_the_recorded_run_of_kth_finds_each_error(shared: Path, error: str) -> None:
    name = "res_easy_prediction_backfill_scheduler_predictorclairvoyant_throw_an_error.swf.gz"
    run = recorded.read(shared / "jobs/swf-easy-runs/KTH-SP2" / name)
    settled = np.flatnonzero(run.start_ns[:JOBS] < run.jobs.submit_ns[JOBS])
    assert len(settled) > 0.9 * JOBS
    first = run.jobs.select(slice(JOBS))
    found = wrong(first, run.processors, run.start_ns[:JOBS], *([error] if error else []))
    assert (len(np.intersect1d(found, settled)) > 0) is bool(error)
