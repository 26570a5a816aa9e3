"""Four errors of a known simulator, each put into the kernel: a comparison of all starts finds every one.

On KTH those errors together leave the average bounded slowdown within one per cent of the published one
while more than half of the starts are wrong. So starts are compared, not averages.
"""

import types
from pathlib import Path

import numpy as np
import pytest

from policy.queue.registry import recipe
from replay.queue import recorded
from twin.queue import kernel, referee
from twin.queue.jobs import Int, QueueJobs
from twin.queue.rules import PREDICTSIM

TEXT = Path(kernel.__file__).read_text(encoding="utf-8")
COMPILED = "from ingest.core.compiled import njit\n"
PLAIN = "def njit(**_):\n    return lambda function: function\n"
MUTANTS = {
    "the reservation goes by the limit, not by the predicted end": (
        "time + jobs.predicted[job], job)\n    now[RUNNING] += 1",
        "time + LIMIT[job], job)\n    now[RUNNING] += 1",
    ),
    "no extra processors": ("now[SPARE] = free - size if", "now[SPARE] = 0 if"),
    "backfilling sorts the queue anew": (
        "    ordered = ",
        "    part = slice(now[FIRST], now[FIRST] + now[WAITING])\n"
        "    queue[part] = sorted(queue[part], key=lambda job: predicted[job])\n"
        "    ordered = ",
    ),
    "each job a second too long": (
        "time + jobs.run[job], job)",
        "time + jobs.run[job] + 1_000_000_000, job)",
    ),
}


def uncompiled(limit: Int, change: tuple[str, str] = ("", "")) -> types.ModuleType:
    """The kernel as plain Python, with a change of its text."""
    assert TEXT.count(COMPILED) == 1 and (not change[0] or TEXT.count(change[0]) == 1), change
    module = types.ModuleType("mutant")
    module.__dict__["LIMIT"] = limit
    exec(compile(TEXT.replace(COMPILED, PLAIN).replace(*change), "mutant", "exec"), module.__dict__)
    return module


def wrong(jobs: QueueJobs, processors: int, truth: Int, change: tuple[str, str] = ("", "")) -> Int:
    """Which jobs start at another time than in truth."""
    played, easy = jobs.cut_at_estimate(), recipe("easy")
    predicted = played.predicted_ns("actual")
    module = uncompiled(played.estimate_ns, change)
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
    assert len(wrong(crowded[0], 10, crowded[1], MUTANTS[error])) > 0


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
    found = wrong(first, run.processors, run.start_ns[:JOBS], MUTANTS.get(error, ("", "")))
    assert (len(np.intersect1d(found, settled)) > 0) is bool(error)
