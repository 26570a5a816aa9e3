"""Out of memory in a run of a thousand jobs: how often, by the margin that is kept, and what it costs.

python -m benchmarks.queue.oom ../shared
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.queue.page_command import write_or_print
from benchmarks.queue.published import table
from ingest.readers import job_logs
from policy.queue.registry import recipe
from replay.queueing.trained_models import launches_of, with_memory
from twin.costs.memory import MARGIN
from twin.goodput.out_of_memory import BANDWIDTH, LEAST_PEAK_GIB, PEAK_RATIOS, RUN_MARGIN
from twin.queue.jobs import QueueJobs
from twin.queue.metrics import figures
from twin.queue.rules import INSTANT
from twin.queue.simulation import simulate
from twin.settings.job_queue import TrainedModels
from twin.workload.selection import LogJobs, select

GPUS = ("A100-80",)
JOBS, SEEDS = 1000, 20
MARGINS = (0.0, 0.04, MARGIN, RUN_MARGIN, 0.16)
MODELS = {"gpt2-1.5b": 2.0, "llama2-7b": 1.0, "llama2-13b": 1.0, "llama3-8b": 1.0, "qwen3-8b": 1.0}
TARGET_PERCENT = 0.5
SAID = {MARGIN: " (`twin estimate`, `twin batch`)", RUN_MARGIN: " (runs of many jobs)"}


@dataclass(frozen=True)
class FailureRate:
    """Jobs of all seeds that failed at least once, in percent, with an interval of 95 % over seeds; the most
    in one run; the most starts of a job; jobs without a smaller way; and time lost, percent of GPU time."""

    percent: float
    half_width: float
    most: float
    starts: int
    for_good: int
    lost_percent: float


def jobs_of(shared: Path) -> LogJobs:
    """Returns the first thousand jobs of KTH-SP2."""
    log = select(job_logs.read(shared / "jobs/swf/KTH-SP2-log.swf"), INSTANT)
    return replace(log, jobs=log.jobs.select(slice(0, JOBS)))


def rate(jobs: QueueJobs, trained: TrainedModels) -> FailureRate:
    """Returns how often jobs fail, over `SEEDS` draws of models and errors."""
    shares, starts, for_good, lost, used = list[float](), 1, 0, 0.0, 0.0
    for seed in range(SEEDS):
        found = launches_of(jobs, trained, seed)
        shares.append(100 * sum(bool(one.failed) for one in found) / len(found))
        starts = max(starts, *(len(one.failed) + (one.way is not None) for one in found))
        for_good += sum(one.way is None for one in found)
        run_s = jobs.run_ns / 1e9
        extra = [
            len(one.failed) * trained.failure_s + (one.slower - 1) * run_s[job]
            for job, one in enumerate(found)
        ]
        lost += float((np.array(extra) * jobs.processors).sum())
        used += float((run_s * jobs.processors).sum())
    spread = 2.093 * float(np.std(shares, ddof=1)) / SEEDS**0.5  # Student's t, 19 degrees of freedom
    return FailureRate(float(np.mean(shares)), spread, max(shares), starts, for_good, 100 * lost / used)


def rates(log: LogJobs) -> Iterator[tuple[str, ...]]:
    """Yields a row for each GPU and margin."""
    for gpu in GPUS:
        for margin in MARGINS:
            one = rate(log.jobs, TrainedModels(models=MODELS, gpu=gpu, margin=margin))
            said = f"{100 * margin:.0f} %" + SAID.get(margin, "")
            yield (
                gpu, said, f"{one.percent:.2f} +- {one.half_width:.2f}", f"{one.most:.1f}",
                "yes" if one.percent < TARGET_PERCENT else "no", f"{one.starts}", f"{one.for_good}",
                f"{one.lost_percent:.2f}",
            )  # fmt: skip


def waits(log: LogJobs) -> Iterator[tuple[str, ...]]:
    """Yields the schedule of one run without errors of memory, and with each margin."""
    ways = {"no errors": log}
    for margin in (0.0, MARGIN, RUN_MARGIN):
        trained = TrainedModels(models=MODELS, margin=margin)
        ways[f"margin {100 * margin:.0f} %"] = with_memory(log, trained, 0)
    for name, jobs in ways.items():
        found = figures(simulate(jobs.jobs, log.processors, recipe("easy"), rules=INSTANT))
        yield (
            "easy", name, f"{len(jobs.failed)}", f"{sum(map(len, jobs.failed.values()))}",
            f"{found.avg_wait_s / 60:.1f}", f"{found.p95_wait_s / 60:.1f}",
            f"{found.avg_bounded_slowdown:.2f}",
        )  # fmt: skip


def section(shared: Path) -> str:
    """Returns the section on runs out of memory."""
    log, started = jobs_of(shared), perf_counter()
    heads = (
        "GPU", "margin kept", "jobs that ran out of memory, %", "most of a run, %",
        f"below {TARGET_PERCENT} %", "most starts", "ended for good", "GPU time lost, %",
    )  # fmt: skip
    rows = list(rates(log))
    took_s = perf_counter() - started
    queue = (
        "policy", "memory", "jobs that failed", "events", "mean wait min", "95 % min", "bounded slowdown",
    )  # fmt: skip
    return f"""The first {JOBS:,} jobs of KTH-SP2, each training one of
{", ".join(MODELS)} (drawn: the log does not say, so this is
synthetic), 32 samples a GPU, in the way with the most goodput that fits. What a job needs in truth is its
predicted peak times a ratio drawn from the {len(PEAK_RATIOS)} measured peaks above {LEAST_PEAK_GIB} GiB,
{PEAK_RATIOS[0]:.3f} to {PEAK_RATIOS[-1]:.3f} of the prediction, each with a normal kernel of
{100 * BANDWIDTH:.1f} %, so that errors beyond the largest measured one occur. {SEEDS} seeds, intervals of
95 %
over them; {took_s:.0f} s in all.

{table(heads, iter(rows))}

The margin of the model was set on these same peaks; the kernel reaches beyond them. A job that
fails does so in its first iteration, 60 s after its start (an assumption), and starts again in its
allocation, in the fastest way that is predicted to need 10 % less; without a margin some jobs have none. In a
kept run each failure is an event (`job_out_of_memory`), and the view `queue_jobs` counts them.

{table(queue, waits(log))}"""


if __name__ == "__main__":
    write_or_print(section, __doc__)
