"""Choices of a batch for a model on equal GPUs: which fit, how fast they are, and the best one."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ingest.core.errors import UsageError
from ingest.core.terminal import clipped
from ingest.core.units import GB, NS_PER_S
from twin.core import gpu_models, model_presets
from twin.core.domain import Cluster, Domain, LinkState
from twin.core.job import JobSpec
from twin.core.plan import Recompute
from twin.costs.memory import WORKSPACE_BYTES, needed_bytes
from twin.estimation.estimator import Estimator
from twin.goodput.efficiency import adascale_gain, statistical_efficiency
from twin.goodput.static_formula import FormulaBatch, accumulated, largest_batch

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
_GPUS = re.compile(r"(?P<count>\d{1,6})\s*[x×*]\s*(?P<gpu>.+)")
_NUMBER = re.compile("[1-9][0-9]{0,6}")
MOST_CHOICES = 20_000
RESERVED = 0.1
"""Share of a GPU's memory that the fixed formula reserves (design documents, chapter 3, 3.2.2)."""


@dataclass(frozen=True, slots=True)
class BatchQuestion:
    """A model on `gpus` GPUs of one model, in tp x pp x dp.

    `batches`: global batches to choose from, samples. `noise`: the gradient's noise scale, samples, at the
    initial batch `initial`; None: all samples count alike.
    """

    model: str
    gpu: str
    gpus: int
    batches: tuple[int, ...]
    tp: int = 1
    pp: int = 1
    noise: float | None = None
    initial: int | None = None

    def __post_init__(self) -> None:
        if self.gpus % (self.tp * self.pp):
            raise UsageError(f"tp {self.tp} x pp {self.pp} does not divide {self.gpus} GPUs")
        if not self.batches or min(self.batches) < 1:
            raise UsageError("a batch holds at least one sample")
        if len(self.batches) > 1 and self.noise is None:
            raise UsageError(
                "several batches compare by goodput, which needs the gradient's noise scale: add "
                "--noise-scale, or name one batch"
            )
        if self.noise is not None and self.noise < 0:
            raise UsageError(f"the noise scale is {self.noise:g} samples; it cannot be negative")

    @property
    def dp(self) -> int:
        """Replicas."""
        return self.gpus // (self.tp * self.pp)

    @property
    def first(self) -> int:
        """Initial batch that efficiency and learning rate are relative to."""
        return self.batches[0] if self.initial is None else self.initial


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """One way to run a batch; `peak_bytes` of the fullest GPU, `fits` with the margin of `twin.costs.memory`.

    `goodput`: samples a second times statistical efficiency. `learning_rate_factor`: of the rate at the
    initial batch (AdaScale).
    """

    batch: int
    micro_batch: int
    accumulation: int
    recompute: str
    zero: int
    iteration_s: float
    samples_s: float
    efficiency: float
    goodput: float
    learning_rate_factor: float
    peak_bytes: int
    fits: bool

    @property
    def way(self) -> tuple[int, str, int]:
        """Batch, recomputation and ZeRO stage: all but the micro-batch."""
        return self.batch, self.recompute, self.zero


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """All choices, the best that fits of each batch, and the chosen one. `formula`: the micro-batch of the
    fixed formula under the same recomputation and ZeRO stage; `formula_choice`: the largest way that is not
    above it, None where none is.
    """

    question: BatchQuestion
    gpu_bytes: int
    choices: tuple[BatchChoice, ...]
    best: tuple[BatchChoice, ...]
    chosen: BatchChoice
    formula: FormulaBatch
    formula_choice: BatchChoice | None

    def to_json(self) -> dict[str, Any]:
        """The answer of `twin batch`, `twin.batch/1`."""
        return {
            "schema": "twin.batch/1", **asdict(self.question), "gpu_bytes": self.gpu_bytes,
            "chosen": asdict(self.chosen), "best": [asdict(one) for one in self.best],
            "formula": {
                **asdict(self.formula),
                "choice": None if self.formula_choice is None else asdict(self.formula_choice),
            },
            "choices": [asdict(one) for one in self.choices],
        }  # fmt: skip


def parse_gpus(text: str) -> tuple[int, str]:
    """Number and model of `8 x A100-80`.

    Raises:
        UsageError: another form.
    """
    match = _GPUS.fullmatch(text.strip())
    if match is None or int(match["count"]) < 1:
        raise UsageError(f'--gpus {clipped(text)}: write a number and a GPU, as "8 x A100-80"')
    return int(match["count"]), match["gpu"].strip()


def parse_batches(text: str) -> tuple[int, ...]:
    """Batches of `256`, `64,128` or `32..1024`, the last meaning all doublings from 32 to 1024.

    Raises:
        UsageError: another form, no batch, or the range is empty.
    """
    first, dots, last = text.strip().partition("..")
    parts = [first, last] if dots else text.split(",")
    if not all(_NUMBER.fullmatch(part.strip()) for part in parts):
        raise UsageError(f"--batch {clipped(text)}: write 256, or 64,128,256, or 32..1024")
    sizes = [int(part) for part in parts]
    if not dots:
        return tuple(sorted(set(sizes)))
    if sizes[0] > sizes[1]:
        raise UsageError(f"--batch {clipped(text)}: the range holds no batch; write the smaller one first")
    return tuple(sizes[0] * 2**n for n in range((sizes[1] // sizes[0]).bit_length()))


def answer(question: BatchQuestion) -> BatchAnswer:
    """Prices every way to run every batch and takes the one with the most goodput that fits.

    Ways are micro-batches that are powers of two or the whole share of a replica, three kinds of
    recomputation, and ZeRO stages where there are replicas. Of equal goodput the one with the smaller peak is
    taken.

    Raises:
        UsageError: an unknown model or GPU, more than `MOST_CHOICES` ways, or nothing fits.
    """
    site, found = domain_of(question.gpu, question.gpus), choices_of(question)
    fitting = [one for one in found if one.fits]
    if not found:
        raise UsageError(
            f"no batch of {_listed(question.batches)} divides over {question.dp} replicas; take multiples"
        )
    if not fitting:
        least = min(found, key=lambda one: one.peak_bytes)
        raise UsageError(
            f"{question.model} fits in no way on {question.gpus} x {question.gpu}: the smallest peak is "
            f"{least.peak_bytes / GB:.1f} GB (micro-batch {least.micro_batch}, recompute {least.recompute}, "
            f"zero {least.zero}) of {site.gpu.memory_bytes / GB:.1f} GB; take more GPUs, or --tp, --pp"
        )
    best = tuple(
        max((one for one in fitting if one.batch == batch), key=_worth)
        for batch in question.batches
        if any(one.batch == batch for one in fitting)
    )
    chosen = max(best, key=_worth)
    alike = [one for one in found if one.way == chosen.way]
    formula = _formula(alike, site, chosen.batch // question.dp)
    smaller = [one for one in alike if one.micro_batch <= formula.micro_batch]
    taken = max(smaller, key=lambda one: one.micro_batch, default=None)
    return BatchAnswer(question, site.gpu.memory_bytes, found, best, chosen, formula, taken)


def choices_of(question: BatchQuestion) -> tuple[BatchChoice, ...]:
    """Returns every way to run every batch, those that do not fit as well.

    Raises:
        UsageError: an unknown model or GPU, or more than `MOST_CHOICES` ways.
    """
    return tuple(_choices(question, domain_of(question.gpu, question.gpus)))


def domain_of(gpu: str, gpus: int) -> Domain:
    """`gpus` GPUs of a model in the usual server of that model.

    Raises:
        UsageError: an unknown GPU.
    """
    kind, fabric = gpu_models.preset(gpu), gpu_models.fabric(gpu)
    return Domain(
        "here", kind, gpus, min(gpus, fabric.gpus_per_node), fabric.intra_node_bps, fabric.inter_node_bps,
        fabric.intra_node_latency_s, fabric.inter_node_latency_s, 0.0,
    )  # fmt: skip


def _choices(question: BatchQuestion, site: Domain) -> Iterator[BatchChoice]:
    model = model_presets.preset(question.model)
    stages = (0,) if question.dp == 1 else (0, 1, 2, 3)
    links = LinkState(np.full((1, 1), np.inf), np.zeros((1, 1)))
    ways = [
        (batch, micro) for batch in question.batches if batch % question.dp == 0
        for micro in micro_batches(batch // question.dp)
    ]  # fmt: skip
    if len(ways) * len(stages) * len(RECOMPUTE) > MOST_CHOICES:
        raise UsageError(f"that are more than {MOST_CHOICES:,} ways; name fewer batches")
    for batch, micro in ways:
        for recompute in RECOMPUTE:
            for zero in stages:
                job = JobSpec(model, batch, (micro,), recompute=recompute, zero=zero)
                estimator = Estimator(Cluster((site,), ((0.0,),)), job)
                inner = [(question.tp, question.pp)]
                plan = estimator.make([0], [estimator.n_layers], question.dp, inner, micro)
                iteration_s = estimator.iter_ns(plan, links) / NS_PER_S
                peak = max(estimator.peak_mem_bytes(plan))
                roomy = needed_bytes(peak - WORKSPACE_BYTES) <= site.gpu.memory_bytes
                fits = roomy and not estimator.problems(plan)
                yield _choice(question, plan.micro_batches, job, iteration_s, peak, fits)


def _choice(
    question: BatchQuestion, accumulation: int, job: JobSpec, iteration_s: float, peak: int, fits: bool
) -> BatchChoice:
    batch, noise, first = job.global_batch, question.noise, question.first
    efficiency = 1.0 if noise is None else statistical_efficiency(noise, first, batch)
    gain = 1.0 if noise is None else adascale_gain(noise, first, batch)
    samples_s = batch / iteration_s
    return BatchChoice(
        batch, job.micro_batches_allowed[0], accumulation, job.recompute, job.zero, iteration_s, samples_s,
        efficiency, samples_s * efficiency, gain, peak, fits,
    )  # fmt: skip


def micro_batches(share: int) -> tuple[int, ...]:
    """Micro-batches that divide the `share` of a replica: powers of two, and the share itself."""
    powers = [2**n for n in range(share.bit_length()) if share % 2**n == 0]
    return tuple(sorted({*powers, share}))


def _worth(one: BatchChoice) -> tuple[float, int]:
    return (one.goodput, -one.peak_bytes)


def _formula(alike: Sequence[BatchChoice], site: Domain, wanted: int) -> FormulaBatch:
    """The fixed formula for ways that differ in their micro-batch alone: static bytes and bytes a sample are
    those of the two smallest, which memory follows closely."""
    ways = sorted(alike, key=lambda one: one.micro_batch)
    if len(ways) == 1:
        return accumulated(wanted, ways[0].micro_batch if ways[0].fits else 0)
    first, second = ways[:2]
    sample = (second.peak_bytes - first.peak_bytes) / (second.micro_batch - first.micro_batch)
    static = first.peak_bytes - sample * first.micro_batch
    memory = site.gpu.memory_bytes
    return accumulated(wanted, min(wanted, largest_batch(memory, static, RESERVED * memory, sample)))


def _listed(batches: Sequence[int]) -> str:
    return ", ".join(map(str, batches[:6])) + (", ..." if len(batches) > 6 else "")
