"""Jobs of a log as trainings of models: how each runs its batch, and which run out of memory first.

The log says for how long a job held its processors; that is its time in the way that it tries first. Each
failed start adds its time to the run, and a smaller way makes the rest of it slower. A job for which nothing
smaller is left ends with its last failure.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.progress import SILENT, Progress
from ingest.core.units import to_ns
from twin.core.seeds import generator
from twin.goodput.batch_choice import BatchChoice, BatchQuestion, choices_of, domain_of
from twin.goodput.out_of_memory import Launch, first_way, launched, ratios
from twin.queue.jobs import LONGEST_NS, FailedStarts, QueueJobs
from twin.settings.job_queue import TrainedModels
from twin.workload.selection import LogJobs


@dataclass(frozen=True, eq=False)
class ModelWays:
    """Ways of one model to run its batch on so many GPUs, and the first one that a job tries."""

    model: str
    ways: tuple[BatchChoice, ...]
    first: BatchChoice


def with_memory(log: LogJobs, trained: TrainedModels, seed: int, progress: Progress = SILENT) -> LogJobs:
    """Returns the jobs with the times of failed starts and smaller ways, and the failed starts.

    Raises:
        UsageError: an unknown model or GPU, or a job on whose GPUs no model fits.
    """
    gpu_bytes = domain_of(trained.gpu, 1).gpu.memory_bytes
    launches = launches_of(log.jobs, trained, seed, progress)
    lost_ns, failed = to_ns(trained.failure_s), dict[int, tuple[tuple[int, dict[str, object]], ...]]()
    run_ns = log.jobs.run_ns.copy()
    for job, one in enumerate(launches):
        if one.failed:
            rest = 0 if one.way is None else round(int(run_ns[job]) * one.slower)
            run_ns[job] = min(rest + len(one.failed) * lost_ns, LONGEST_NS - 1)
            failed[int(log.jobs.number[job])] = tuple(
                ((at + 1) * lost_ns, _payload(way, one, gpu_bytes)) for at, way in enumerate(one.failed)
            )
    notes = (*log.notes, _note(launches, trained, seed))
    made: FailedStarts = failed
    return replace(log, jobs=replace(log.jobs, run_ns=run_ns), notes=notes, failed=made)


def launches_of(
    jobs: QueueJobs, trained: TrainedModels, seed: int, progress: Progress = SILENT
) -> list[Launch]:
    """Returns what comes of the starts of each job (n,): its model by the shares, its error by the measured
    ones, both drawn with the seed."""
    gpu_bytes = domain_of(trained.gpu, 1).gpu.memory_bytes
    sizes, size = np.unique(jobs.processors, return_inverse=True)
    progress.start(len(sizes), "ways to run each size", "sizes")
    known = []
    for gpus in sizes.tolist():
        known.append(_fitting(gpus, trained, gpu_bytes))
        progress.advance(1, f"{gpus} GPUs")
    random, drawn = generator(seed, "trained models"), list[Launch]()
    pick, error = random.random(len(jobs)), ratios(generator(seed, "errors of memory"), len(jobs))
    for job, at in enumerate(size.tolist()):
        share = np.cumsum([trained.models[one.model] for one in known[at]])
        one = known[at][int(np.searchsorted(share, pick[job] * share[-1], side="right"))]
        drawn.append(launched(one.ways, one.first, float(error[job]), gpu_bytes))
    return drawn


@lru_cache(maxsize=2048)  # the same for every seed and margin; pricing takes a tenth of a second
def _ways(question: BatchQuestion) -> tuple[BatchChoice, ...]:
    return choices_of(question)


def _fitting(gpus: int, trained: TrainedModels, gpu_bytes: int) -> list[ModelWays]:
    """Models that fit on so many GPUs."""
    found, batch = [], trained.samples_per_gpu * gpus
    for model in trained.models:
        ways = _ways(BatchQuestion(model, trained.gpu, gpus, (batch,)))
        first = first_way(ways, gpu_bytes, trained.margin)
        if first is not None:
            found.append(ModelWays(model, ways, first))
    if not found:
        raise UsageError(
            f"trained: none of {', '.join(trained.models)} fits on {gpus} x {trained.gpu}, as a job of the "
            "log asks for; add a smaller model"
        )
    return found


def _payload(way: BatchChoice, launch: Launch, gpu_bytes: int) -> dict[str, object]:
    return {
        "micro_batch": way.micro_batch, "recompute": way.recompute, "zero": way.zero,
        "predicted_bytes": way.peak_bytes, "needed_bytes": launch.needed_bytes(way), "gpu_bytes": gpu_bytes,
    }  # fmt: skip


def _note(launches: list[Launch], trained: TrainedModels, seed: int) -> str:
    out = sum(bool(one.failed) for one in launches)
    ended = sum(one.way is None for one in launches)
    return (
        f"SYNTHETIC models, seed {seed}: {', '.join(trained.models)} on {trained.gpu}; {out:,} of "
        f"{len(launches):,} jobs ran out of memory first ({100 * out / len(launches):.2f} %), {ended:,} of "
        "them for good"
    )
