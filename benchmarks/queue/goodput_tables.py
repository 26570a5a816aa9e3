"""Goodput of profiled applications: the model of steps against steps left out, and the table it leads to."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.queue.published import table
from twin.goodput import many_jobs, throughput_model
from twin.goodput.application_profile import HALF, ApplicationProfile
from twin.goodput.many_jobs import ApplicationThroughput, Placements
from twin.goodput.profiled_steps import all_steps, gpus_of, noise_scales, placement_steps, shape
from twin.goodput.throughput_model import StepTimes

APPLICATIONS = ("bert", "cifar10", "imagenet")
PLACES = {
    "quad": ("1", "2", "4"), "aws": ("1", "4", "44", "4444"), "rtx": ("1", "8", "88"),
    "azure": ("1", "8", "88"), "dgx-ext": ("1", "8", "88"),
}  # fmt: skip
"""Placements of the table, in whole nodes but the first."""


@dataclass(frozen=True)
class Profiled:
    """An application with the model of its steps on each GPU, its noise scale by batch, and where in the
    training it is."""

    name: str
    throughput: ApplicationThroughput
    noise: dict[int, tuple[np.ndarray, np.ndarray]]
    progress: float


def profiled(folder: Path) -> list[Profiled]:
    """Returns the three applications, half of the training done, or its first epoch."""
    found = []
    for name in APPLICATIONS:
        noise = noise_scales(folder, name)
        progress = max(HALF, *(float(share[0]) for share, _ in noise.values()))
        gpus = [one for one in gpus_of(folder, name) if one != "dgx"]
        found.append(Profiled(name, many_jobs.application(folder, name, gpus), noise, progress))
    return found


def fits(folder: Path, each: list[Profiled]) -> Iterator[tuple[str, ...]]:
    """Yields the fit of each application and GPU, and its error where nodes and GPUs were left out."""
    for one in each:
        for gpu, known in one.throughput.by_gpu.items():
            steps = all_steps(folder, one.name, gpu)
            model = known.model
            own = np.abs(model.step_s(steps.nodes, steps.replicas, steps.local) / steps.step_s - 1)
            out = throughput_model.left_out_errors(steps, model)
            mean = np.array([row.mean for row in out])
            worst = out[int(mean.argmax())]
            yield (
                one.name, gpu, f"{len(steps):,}", f"{len(out)}", f"{100 * own.mean():.1f}",
                f"{100 * mean.mean():.1f}", f"{100 * np.quantile(mean, 0.9):.1f}",
                f"{100 * worst.mean:.1f} ({worst.nodes} x {worst.replicas})", f"{model.gamma:.1f}",
            )  # fmt: skip


FIT_HEADS = (
    "application", "GPU", "steps", "shapes left out", "fit, mean error %", "left out, mean error %", "90 %",
    "worst shape (nodes x GPUs)", "gamma",
)  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """The best batch by measured steps and by the model, with goodput of both by measured steps."""

    application: str
    gpu: str
    placement: str
    measured_batch: int
    goodput: float
    model_batch: int
    predicted: float
    reached: float


def choices(folder: Path, each: list[Profiled]) -> Iterator[Chosen]:
    """Yields, of each application, GPU and placement of `PLACES` that was measured, the best batch of all
    that the samples a GPU allow, by measured steps and by a model fitted without this placement."""
    for one in each:
        for gpu, places in PLACES.items():
            measured = placement_steps(folder, one.name, gpu)
            steps = all_steps(folder, one.name, gpu)
            for placement in places:
                if placement in measured:
                    yield from _choice(one, gpu, placement, measured[placement], steps)


def _choice(one: Profiled, gpu: str, placement: str, seen: StepTimes, steps: StepTimes) -> Iterator[Chosen]:
    nodes, replicas = shape(placement)
    known = one.throughput.by_gpu[gpu]
    profile = ApplicationProfile(one.name, gpu, placement, seen.local, seen.step_s, seen.sync_s, one.noise)
    local, passes = many_jobs.shares(one.throughput, known, np.array([replicas]))
    here = (steps.nodes == nodes) & (steps.replicas == replicas)
    other = throughput_model.fit(steps.chosen(~here), known.model)
    tried = []
    for size, times in sorted(set(zip(local[0].tolist(), passes[0].tolist(), strict=True))):
        batch = size * times * replicas
        if not seen.local[0] <= size <= seen.local[-1] or batch > one.throughput.largest:
            continue
        noise = profile.noise_at(batch, one.progress)
        efficiency = (noise + one.throughput.initial) / (noise + batch)
        true = batch * efficiency / profile.step_seconds(size, times)
        tried.append((true, batch * efficiency / float(other.step_s(nodes, replicas, size, times)), batch))
    if not tried or not np.isfinite([row[1] for row in tried]).all():
        return
    best, guessed = max(tried), max(tried, key=lambda row: row[1])
    yield Chosen(one.name, gpu, placement, best[2], best[0], guessed[2], guessed[1], guessed[0])


CHOICE_HEADS = (
    "application", "GPU", "GPUs a node", "best batch", "goodput", "batch by the model",
    "goodput it foretells", "error %", "goodput lost by its choice %",
)  # fmt: skip


def choice_row(one: Chosen) -> tuple[str, ...]:
    """Returns a row of the table."""
    return (
        one.application, one.gpu, one.placement, f"{one.measured_batch:,}", f"{one.goodput:,.1f}",
        f"{one.model_batch:,}", f"{one.predicted:,.1f}", f"{100 * (one.predicted / one.reached - 1):+.1f}",
        f"{100 * (1 - one.reached / one.goodput):.1f}",
    )  # fmt: skip


def _placements_alone(folder: Path) -> float:
    """Returns the mean error of a fit to the placements of ImageNet on azure alone."""
    held = list(placement_steps(folder, "imagenet", "azure").values())
    names = ("nodes", "replicas", "local", "step_s", "sync_s")
    steps = StepTimes(*(np.concatenate([getattr(one, name) for one in held]) for name in names))
    found = throughput_model.fit(steps)
    return float(np.abs(found.step_s(steps.nodes, steps.replicas, steps.local) / steps.step_s - 1).mean())


def speed(each: list[Profiled], jobs: int) -> tuple[int, float]:
    """Returns the placements and the seconds of a table of so many jobs on all of Sia's cluster."""
    from time import perf_counter

    sizes = {"aws": (6, 4), "rtx": (3, 8), "dgx-ext": (2, 8)}
    rows = [
        (gpu, nodes, replicas)
        for gpu, (most, node) in sizes.items()
        for replicas in range(1, most * node + 1)
        for nodes in [-(-replicas // node)]
    ]
    random = np.random.default_rng(0)
    of = [each[at].throughput for at in random.integers(0, len(each), jobs)]
    placements = Placements.of_rows(rows)
    started = perf_counter()
    many_jobs.table(of, random.lognormal(6, 1, jobs), placements)
    return len(placements), perf_counter() - started


def section(folder: Path) -> str:
    """Returns the section on profiled applications."""
    each = profiled(folder)
    rows = list(choices(folder, each))
    errors = np.abs([one.predicted / one.reached - 1 for one in rows])
    lost = np.array([1 - one.reached / one.goodput for one in rows])
    placements, seconds = speed(each, 1000)
    return f"""{table(FIT_HEADS, fits(folder, each))}

A shape is a number of nodes and GPUs; all its placements and sizes are left out of the fit together.
`dgx-ext` is the A100 profile that the authors use; `quad` was measured on one node alone, so that two are
refused. The two files of `azure` (placements on one and two nodes, scalability on more) fit one model badly;
with the first alone ImageNet fits to {100 * _placements_alone(folder):.1f} %.

{table(CHOICE_HEADS, map(choice_row, rows))}

Goodput is samples a second at the efficiency of the initial batch, half of the training done (BERT: its first
epoch, of two). The model does not see the placement of its row. Its goodput is {100 * errors.mean():.1f} %
off in the mean; to take its batch in place of the best loses {100 * lost.mean():.1f} % in the mean and
{100 * lost.max():.1f} % at most. A table of 1,000 jobs on {placements} placements of Sia's cluster takes
{seconds:.2f} s (`twin.goodput.many_jobs.table`)."""
