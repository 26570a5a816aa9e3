"""The columns of a table of cases: name, unit, meaning, default, and how a cell is read.

`docs/guides/estimate.md` is generated from `COLUMNS`, and tables are read by them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, get_args

from ingest.core.config import suggestion
from ingest.core.errors import InputError, UsageError
from ingest.core.names import MOST_LABEL
from ingest.core.ranges import Within
from ingest.core.terminal import shown
from twin.core import gpu_models
from twin.core.adapters import TARGETS
from twin.core.plan import PointToPoint, Recompute, Schedule
from twin.core.switches import ContextExchange, GradientDtype
from twin.core.transformer import Attention, Dtype

Cell = Any
"""A parsed value: str, int, float, or a tuple of them."""


class BadCellError(InputError):
    """A case has no answer because of its cell in `column` ("" where no single column is the reason)."""

    def __init__(self, column: str, message: str, *, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.column = column


@dataclass(frozen=True, slots=True)
class CaseColumn:
    """One column; `unit` is "" for text and counts, `default` the meaning of an empty cell."""

    name: str
    unit: str
    meaning: str
    default: str
    parse: Callable[[str], Cell]


RATE = Within(1, 1e18, "in bits per second; an exabit a second is more than all links of a country carry")
RATES = Within(0, RATE.high, RATE.why)
SECONDS = Within(0, 100_000, "seconds; no message and no stage of an iteration takes longer than a day")
GPUS = Within(1, 1_000_000, "the largest clusters have some 200,000 GPUs")
STAGES = Within(1, 1_024, "the deepest pipelines have some 100 stages")
LAYERS = Within(1, 10_000, "the deepest models have some 200 layers")
WIDTH = Within(1, 2**24, "the widest models have a hidden size of some 20,000")
EXPERTS = Within(1, 100_000, "the largest mixtures have some 500 experts in a block")
SHARED = Within(0, WIDTH.high, WIDTH.why)
VOCABULARY = Within(1, 2**28, "the largest vocabularies have some 260,000 entries")
TOKENS = Within(1, 2**28, "the longest contexts have some 10 million tokens")
SEQUENCES = Within(1, 10_000_000, "the largest batches have some 100,000 sequences")


def number(text: str, within: Within) -> float:
    """A finite number in a range.

    Raises:
        ValueError: with the reason and the way out.
    """
    try:
        value = float(text)
    except ValueError:
        comma = " (write 1.5, not 1,5; no thousands separators)" if "," in text else ""
        raise ValueError(f"{shown(text)} is not a number{comma}") from None
    if not isfinite(value):
        raise ValueError(f"{shown(text)} is not a finite number")
    if fault := within.fault(value):
        raise ValueError(f"{shown(text)} {fault}")
    return value


def count(within: Within) -> Callable[[str], int]:
    """A parser of whole numbers in a range; 8.0 and 1e3 are whole."""

    def parse(text: str) -> int:
        value = number(text, within)
        if value != int(value):
            raise ValueError(f"{shown(text)} is not a whole number")
        return int(value)

    return parse


def rate(text: str) -> float:
    """A bandwidth of at least 1 b/s."""
    return number(text, RATE)


def bucket_bytes(text: str) -> float:
    """Size of a bucket of gradients."""
    return number(text, Within(1, 1e15, "in bytes; buckets have some 25 MB to 1 GB"))


def watts(text: str) -> float:
    """A power of one GPU."""
    return number(text, Within(1, 1e5, "in watts of one GPU"))


def clock_share(text: str) -> float:
    """A share of a clock."""
    return number(text, Within(0.15, 1, "a share of the clock of the peak; GPUs have none below"))


def names(text: str) -> tuple[str, ...]:
    """A list of names."""
    return tuple(label(part.lower()) for part in items(text))


def imbalance(text: str) -> float:
    """Tokens of the busiest rank over the mean."""
    return number(text, Within(1, 1_000, "the busiest has no less than the mean, nor more than all"))


def label(text: str) -> str:
    """A label, no longer than a line of a table."""
    if len(text) > MOST_LABEL:
        raise ValueError(f"{shown(text)} has {len(text):,} letters; write at most {MOST_LABEL}")
    return text


def zero_stage(text: str) -> int:
    """ZeRO stage 0 to 3."""
    return count(Within(0, 3, "the stages of ZeRO"))(text)


def items(text: str, separators: str = ";") -> list[str]:
    """The parts of a list; an empty part is an error."""
    for separator in separators[1:]:
        text = text.replace(separator, separators[0])
    parts = [part.strip() for part in text.split(separators[0])]
    if not all(parts):
        raise ValueError(f"{shown(text)} has an empty entry")
    return parts


def seconds(text: str) -> tuple[float, ...]:
    """A list of times of at least 0, separated by `;`."""
    return tuple(number(part, SECONDS) for part in items(text))


def stage_seconds(text: str) -> tuple[tuple[float, ...], ...]:
    """Times of stages, separated by `;`; of the micro-batches of one, where they differ, by `|`."""
    return tuple(tuple(number(part, SECONDS) for part in items(stage, "|")) for stage in items(text))


def rates(text: str) -> tuple[float, ...]:
    """A list of bandwidths separated by `;`, 0 for none."""
    found = tuple(number(part, RATES) for part in items(text))
    if any(0 < value < RATE.low for value in found):
        raise ValueError(f"{shown(text)}: bandwidths are in bits per second, 1 or more, or 0 for none")
    return found


def layer_counts(text: str) -> tuple[int, ...]:
    """Layers per stage, `7-7-6-10`."""
    return tuple(count(LAYERS)(part) for part in items(text, "-;"))


def domains(text: str) -> tuple[str, ...]:
    """A number of domains, or the domain of every stage, `a-a-b-b`."""
    return tuple(items(text, "-;"))


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser of one of `choices`, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"{shown(text)} is not known{suggestion(text.lower(), choices)}")
        return text.lower()

    return parse


def yes_or_no(text: str) -> bool:
    """A switch."""
    if text.lower() not in YES + NO:
        raise ValueError(f"{shown(text)} is neither yes nor no")
    return text.lower() in YES


def gpu_model(text: str) -> str:
    """Canonical name of a GPU model."""
    try:
        return gpu_models.canonical(text)
    except UsageError as error:
        raise ValueError(str(error)) from None


def gpu_model_list(text: str) -> tuple[str, ...]:
    """Canonical names of GPU models, separated by `;`."""
    return tuple(map(gpu_model, items(text)))


YES, NO = ("yes", "true", "1", "on"), ("no", "false", "0", "off")
_SCHEDULES = get_args(Schedule)

COLUMNS: tuple[CaseColumn, ...] = (
    CaseColumn("case", "", "a label, repeated in the answer", "none", label),
    CaseColumn("gpu_model", "", f"GPU model: {', '.join(gpu_models.PRESETS)}", "A100-80", gpu_model),
    CaseColumn(
        "gpu_models", "", "GPU model of every stage, or of every domain, list with `;`: several in one "
        "pipeline", "gpu_model for all", gpu_model_list,
    ),
    CaseColumn(
        "gpus", "", "GPUs in all = tp x context_parallel x pp x dp", "tp x context_parallel x pp x dp",
        count(GPUS),
    ),
    CaseColumn("gpus_per_node", "", "GPUs in a node", "of the GPU model's usual server", count(GPUS)),
    CaseColumn(
        "intra_node_bps", "b/s", "bandwidth inside a node, per GPU and direction", "of the GPU model",
        rate,
    ),
    CaseColumn(
        "inter_node_bps", "b/s", "bandwidth between nodes of a domain, per GPU and direction",
        "of the GPU model", rate,
    ),
    CaseColumn(
        "power_cap_w", "W", "limit of each GPU's power; products slow down to the clock that it leaves",
        "none, or that of --power-cap-w", watts,
    ),
    CaseColumn("clock_cap", "", "limit of its clock, as a share of the clock of its peak", "1", clock_share),
    CaseColumn(
        "layers", "", "Transformer blocks, embedding and head not counted", "required [1]", count(LAYERS)
    ),
    CaseColumn("hidden", "", "model width", "required [1]", count(WIDTH)),
    CaseColumn(
        "heads", "", "attention heads", "hidden / 128 (or / 64 where 128 does not divide)", count(WIDTH)
    ),
    CaseColumn(
        "head_dim", "", "width of a head where it is not hidden / heads (Qwen3)", "hidden / heads",
        count(WIDTH),
    ),
    CaseColumn(
        "kv_lora_rank", "", "width of the vector that keys and values are made from: latent attention, as in "
        "DeepSeek", "none", count(WIDTH),
    ),
    CaseColumn("q_lora_rank", "", "the same for queries; 0: they are made directly", "0", count(SHARED)),
    CaseColumn(
        "qk_nope_head_dim", "", "part of a latent head's query and key without positions", "128",
        count(WIDTH),
    ),
    CaseColumn("qk_rope_head_dim", "", "part with rotary positions", "64", count(WIDTH)),
    CaseColumn("v_head_dim", "", "width of a latent head's value", "128", count(WIDTH)),
    CaseColumn(
        "kv_heads", "", "key-value heads; a plain MLP with as many as heads is the GPT family (biases, "
        "dropout, learned positions, tied embedding), anything else has none of these", "heads", count(WIDTH),
    ),
    CaseColumn(
        "ffn", "", "MLP width; 4 x hidden means two matrices, any other width three (gated, as in Llama)",
        "4 x hidden", count(WIDTH),
    ),
    CaseColumn(
        "experts", "", "experts of a block; with them every MLP has three matrices, and the model is none of "
        "the GPT family", "none", count(EXPERTS),
    ),
    CaseColumn("top_k", "", "experts that a token passes", "2", count(EXPERTS)),
    CaseColumn("expert_ffn", "", "width of an expert", "ffn", count(WIDTH)),
    CaseColumn("shared_ffn", "", "width of the experts that all tokens pass, together", "0", count(SHARED)),
    CaseColumn(
        "moe_every", "", "one block of so many has experts, the others one MLP of width ffn", "1",
        count(LAYERS),
    ),
    CaseColumn(
        "moe_first", "", "first block with experts, from 0", "0", count(Within(0, LAYERS.high, LAYERS.why))
    ),
    CaseColumn(
        "expert_imbalance", "", "tokens of the busiest of the ranks that share experts, over the mean", "1",
        imbalance,
    ),
    CaseColumn(
        "lora_rank", "", "rank of LoRA's adapters, which alone are trained; all other weights are frozen",
        "none",
        count(Within(1, 100_000, "adapters have ranks of some 4 to 256")),
    ),
    CaseColumn(
        "lora_targets", "", f"matrices with adapters, list with `;`: {', '.join(TARGETS)}", "q;v", names,
    ),
    CaseColumn("vocab", "", "rows of the embedding table", "51200", count(VOCABULARY)),
    CaseColumn("seq", "", "tokens in a sequence", "2048", count(TOKENS)),
    CaseColumn(
        "dtype", "", f"{', '.join(get_args(Dtype))}; fp16 reduces gradients in 2 bytes, bf16 and fp8 in 4",
        "bf16; fp16 on GPUs before Ampere", one_of(*get_args(Dtype)),
    ),
    CaseColumn("tp", "", "tensor-parallel width", "1", count(GPUS)),
    CaseColumn(
        "sequence_parallel", "", "yes: norms, dropout and residuals on 1/tp of the tokens, in memory "
        "and in time",
        "no; yes with megatron-core", yes_or_no,
    ),
    CaseColumn(
        "tp_overlap", "", "yes: tensor-parallel collectives run in pieces beside the products", "no",
        yes_or_no,
    ),
    CaseColumn("pp", "", "pipeline stages", "1, or as many as a list per stage has", count(STAGES)),
    CaseColumn(
        "dp", "", "data-parallel replicas of the pipeline", "gpus / (tp x context_parallel x pp), or 1",
        count(GPUS),
    ),
    CaseColumn(
        "context_parallel", "", "ranks that split every sequence in every stage; 2 x context_parallel "
        "divides seq", "1", count(GPUS),
    ),
    CaseColumn(
        "context_exchange", "", "how they see each other's keys and values: ring (beside the core of "
        "attention), or all-gather (before it, as Llama 3)", "ring", one_of(*get_args(ContextExchange)),
    ),
    CaseColumn(
        "ep", "", "ranks that share the experts of a block, among the dp x context_parallel of a stage; "
        "divides these and experts", "1", count(GPUS),
    ),
    CaseColumn("micro_batch", "sequences", "micro-batch size of one pipeline", "1", count(SEQUENCES)),
    CaseColumn(
        "global_batch", "sequences", "batch of one iteration over all replicas", "required [2]",
        count(SEQUENCES),
    ),
    CaseColumn(
        "attention", "", "materialised: the scores are written to memory; flash: fused",
        "materialised for the GPT family on GPUs before Hopper, else flash", one_of(*get_args(Attention)),
    ),
    CaseColumn("recompute", "", ", ".join(get_args(Recompute)), "full", one_of(*get_args(Recompute))),
    CaseColumn("zero", "", "ZeRO stage 0-3; 1 is Megatron's distributed optimiser", "0", zero_stage),
    CaseColumn(
        "gradient_dtype", "", "of gradients in reductions: bf16, fp16 (2 bytes) or fp32 (4)",
        "fp16 with fp16, else fp32", one_of(*get_args(GradientDtype)),
    ),
    CaseColumn(
        "overlap_reduction", "", "yes: gradients are reduced beside the last backward, weights gathered "
        "beside the next forward", "yes with zero 1 or more, or pytorch", yes_or_no,
    ),
    CaseColumn(
        "bucket_bytes", "bytes", "gradients that are reduced together; the last bucket can overlap nothing",
        "an eighth of a stage's (of a chunk's); 25 MB with pytorch, 160 MB with megatron-core", bucket_bytes,
    ),
    CaseColumn(
        "framework", "", "megatron, megatron-core or pytorch: sets the defaults of the switches",
        "megatron", one_of("megatron", "megatron-core", "pytorch"),
    ),
    CaseColumn(
        "dropout", "", "yes: dropout masks are kept for the backward",
        "yes for the GPT family, no with pytorch",
        yes_or_no,
    ),
    CaseColumn(
        "fp32_logits", "", "yes: the loss keeps logits and their gradient in fp32, some 16 bytes each "
        "instead of 5", "yes with pytorch, else no", yes_or_no,
    ),
    CaseColumn(
        "context_bytes", "bytes", "memory outside the allocator: CUDA context, NCCL and cuBLAS buffers",
        "1.5 GiB", count(Within(0, 1e12, "in bytes; processes hold some 0.5 to 4 GB")),
    ),
    CaseColumn(
        "offload_optimiser", "", "yes: optimiser states lie in the host's memory and Adam runs there", "no",
        yes_or_no,
    ),
    CaseColumn(
        "schedule", "", f"{', '.join(_SCHEDULES)}; interleaved: Megatron's virtual stages; crosspipe: a "
        "greedy order for the latencies at hand, weight gradients on their own; zb-h1, zb-v: zero-bubble "
        "orders of split backwards, zb-v with two chunks a stage in the shape of a V",
        "1f1b; interleaved with more than one chunk", one_of(*_SCHEDULES),
    ),
    CaseColumn(
        "chunks", "", "interleaved: parts of the model in each stage; the way back from the last stage to "
        "the first takes the reverse of the wide-area link between two domains, of the slowest between more",
        "2 with interleaved and zb-v, else 1", count(LAYERS),
    ),
    CaseColumn(
        "p2p", "", "blocking: the sender computes again when its message has arrived; overlapped: sends run "
        "beside compute; rendezvous: a message starts when its receiver waits for it, as "
        "torch.distributed.pipelining over gloo", "blocking for gpipe and 1f1b, else overlapped",
        one_of(*get_args(PointToPoint)),
    ),
    CaseColumn(
        "cuts", "", "layers of every stage, `7-7-6-10`; the sum is `layers` (the embedding joins the first "
        "stage, the head the last) or `layers` + 2 (both counted)", "even, the rest to the last stages",
        layer_counts,
    ),
    CaseColumn(
        "domains", "", "number of domains (stages divide evenly, the rest to the last), or the domain of "
        "every stage, `a-a-b-b`, or with fewer entries the number of stages in each, `2-2`",
        "1; with wan_bps 2, or by the non-zero entries of a list per boundary", domains,
    ),
    CaseColumn(
        "wan_bps", "b/s", "bandwidth of the wide-area link per direction, shared by the dp pipelines; one "
        "value, a list with `;` per wide-area boundary, or per stage boundary (0 = no WAN there)",
        "none; required where stages lie in several domains", rates,
    ),
    CaseColumn(
        "wan_latency_s", "s", "one-way latency; one value or a list like wan_bps", "0", seconds
    ),
    CaseColumn(
        "replicas", "", "copies of the whole model, each of tp x pp x dp GPUs in a domain of its own, that "
        "average over a ring of links of wan_bps and wan_latency_s; global_batch is that of all", "1",
        count(Within(1, 1_024, "the largest runs over sites have some 10 replicas")),
    ),
    CaseColumn(
        "inner_steps", "", "iterations of every replica between two averages: 1 is synchronous, more local "
        "SGD (DiLoCo)", "1", count(Within(1, 1_000_000, "published runs take 30 to 1,000")),
    ),
    CaseColumn(
        "stage_forward_s", "s", "measured: forward of one micro-batch per stage, list with `;` or one value "
        "for all; where micro-batches differ, the times of each with `|` (YAML: a list of lists)",
        "from the models", stage_seconds,
    ),
    CaseColumn("stage_backward_s", "s", "measured: backward, likewise", "from the models", stage_seconds),
    CaseColumn(
        "reduction_s", "s", "measured: gradient reduction after the last backward, per stage or one value",
        "from the models; 0 without a model", seconds,
    ),
    CaseColumn(
        "update_s", "s", "measured: optimiser, likewise", "from the models; 0 without a model", seconds,
    ),
    CaseColumn(
        "boundary_transfer_s", "s", "measured: time one message occupies each stage boundary, each way; 0 = "
        "no WAN there", "from wan_bps", seconds,
    ),
    CaseColumn(
        "boundary_latency_s", "s", "measured: one-way latency of each stage boundary", "from wan_latency_s",
        seconds,
    ),
    CaseColumn(
        "micro_batches", "", "micro-batches of one pipeline and iteration",
        "global_batch / (dp x micro_batch)", count(SEQUENCES),
    ),
    CaseColumn(
        "profile_model", "", "with --profiles: the model's name in the data set of profiles",
        "that of its blocks' shape, as `twin profile` names them", label,
    ),
    CaseColumn(
        "measured_s", "s", "for `twin calibrate --runs` alone: measured iteration times, of which the median "
        "counts", "those of run", seconds,
    ),
    CaseColumn(
        "run", "", "for `twin calibrate --runs` alone: DATASET/JOB, whose step times stand in the lake",
        "measured_s", label,
    ),
)  # fmt: skip
BY_NAME = {column.name: column for column in COLUMNS}

NOTES = (
    "[1] not needed where stage_forward_s and stage_backward_s are given.",
    "[2] not needed where micro_batches is given.",
)
