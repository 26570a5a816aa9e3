"""Batches, memory and goodput: models by the cost models, applications by their profiles.

python -m benchmarks.queue.goodput ../shared --page docs/measured/goodput.md
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.queue import oom
from benchmarks.queue.goodput_tables import section
from benchmarks.queue.page_command import write_or_print
from benchmarks.queue.published import table
from benchmarks.twin import measured_memory
from benchmarks.twin.measured_runs import h200_memory
from ingest.core.units import GB, GIB
from twin.goodput.batch_choice import BatchAnswer, BatchQuestion, answer, parse_batches

QUESTIONS = (
    BatchQuestion("gpt2-1.5b", "V100-32", 64, parse_batches("64..4096"), noise=2000.0),
    BatchQuestion("llama2-7b", "A100-80", 64, parse_batches("64..4096"), noise=1000.0),
)
"""The noise scales are assumptions: nobody published those of these models."""
SHOWN_BATCH = 1024
SAME_BLOCK = {"gpt-h1600-a25-kv25-f6400-s1024": "gpt2-1.5b", "llama-h4096-a32-kv32-f11008-s4096": "llama2-7b"}
"""Blocks measured on an H200 that are those of the models."""
SAME_ITERATION = "llama h4096 l8 s4096"
"""Iterations measured on an H200 with 8 blocks of Llama-2 7B."""


def batches(found: BatchAnswer) -> Iterator[tuple[str, ...]]:
    """Yields the best way to run each batch."""
    most = found.chosen.goodput
    for one in found.best:
        yield (
            found.question.model + (" (taken)" if one is found.chosen else ""), f"{one.batch:,}",
            f"{one.micro_batch} x {one.accumulation}", one.recompute, f"{one.zero}",
            f"{one.peak_bytes / GB:.1f}", f"{one.samples_s:.2f}", f"{one.efficiency:.3f}",
            f"{one.goodput:.2f}", f"{100 * one.goodput / most:.0f}", f"{one.learning_rate_factor:.2f}",
        )  # fmt: skip


def memory_curve(found: BatchAnswer) -> Iterator[tuple[str, ...]]:
    """Yields `SHOWN_BATCH` over the micro-batch, recomputation and ZeRO stage as chosen."""
    for one in found.choices:
        if one.way == (SHOWN_BATCH, *found.chosen.way[1:]) and one.micro_batch <= 16:
            yield (
                found.question.model, f"{one.micro_batch}", f"{one.peak_bytes / GB:.1f}",
                f"{found.gpu_bytes / GB:.1f}", "yes" if one.fits else "no", f"{one.samples_s:.2f}",
            )  # fmt: skip


def peaks(shared: Path) -> Iterator[tuple[str, ...]]:
    """Yields predicted and measured memory of blocks and iterations of these models."""
    for block in measured_memory.h200(shared):
        label, _, size = block.name.rpartition(" ")
        if label in SAME_BLOCK:
            name = f"{SAME_BLOCK[label]}, stored by one block, micro-batch {size.removeprefix('mbs')}"
            yield _peak(name, block.predict(), block.measured)
    for run in h200_memory(shared):
        if run.name.startswith(SAME_ITERATION):
            name = f"llama2-7b, 8 of its 32 blocks, peak, {run.name.removeprefix(SAME_ITERATION).strip()}"
            yield _peak(name, run.predict(), run.measured)


def _peak(name: str, predicted: float, measured: float) -> tuple[str, ...]:
    error = f"{100 * (predicted / measured - 1):+.1f}"
    return name, "H200", f"{predicted / GIB:.2f}", f"{measured / GIB:.2f}", error


def models(shared: Path) -> str:
    """Returns the section on models."""
    found = [answer(one) for one in QUESTIONS]
    said = "\n".join(
        f"* {one.question.model} on {one.question.gpus} x {one.question.gpu}, batches from "
        f"{one.question.first} on, noise scale {one.question.noise:g}: "
        f"batch {one.chosen.batch} is taken."
        for one in found
    )
    heads = (
        "model", "batch", "micro-batch x passes", "recompute", "ZeRO", "peak GB", "samples/s", "efficiency",
        "goodput", "of the most %", "rate x",
    )  # fmt: skip
    curve = ("model", "micro-batch", "peak GB", "GPU GB", "fits", "samples/s")
    measured = ("what", "GPU", "predicted GiB", "measured GiB", "error %")
    return f"""{said}

The noise scales are assumed: none is published for these models, and they are measured in training. A larger
batch is faster until the GPUs are full and synchronisation is spread; its samples are worth less.

{table(heads, (row for one in found for row in batches(one)))}

A batch of {SHOWN_BATCH:,} over its micro-batch, with recomputation and ZeRO stage of the batch that is taken;
what fits keeps the margin of the memory model:

{table(curve, (row for one in found for row in memory_curve(one)))}

Predicted against measured memory, where these models or blocks of theirs were measured:

{table(measured, peaks(shared))}

All other measured peaks stand in [fidelity.md](fidelity.md)."""


def page(shared: Path) -> str:
    """Returns the page."""
    return f"""# Batch, memory and goodput

Written by `python -m benchmarks.queue.goodput ../shared --page docs/measured/goodput.md`. The data lie beside
the repository; [Which batch?](../guides/batch.md) says how to ask for a model of your own.

## GPT-2 and Llama-2 7B, by the cost models
{models(shared)}

## BERT, CIFAR-10 and ImageNet, by their profiles
Sia and Pollux published step times, time of synchronisation, and gradients of three applications (SOURCES.md
of the data). They hold no memory: a predicted peak has nothing to be compared with, and two of the three are
convolutional networks, which the memory model does not cover. Only that the measured samples a GPU did run is
known, and nothing larger is asked for. Their goodput tables follow from the profiles alone: Pollux's model of
a step (OSDI 2021, 3.2) is fitted to all measured steps of an application on a GPU, and judged on steps
that it was not fitted to.

{section(shared / "jobs/sia-pollux/profiles")}

## Out of memory in a run of a thousand jobs
{oom.section(shared)}
"""


if __name__ == "__main__":
    write_or_print(page, __doc__)
