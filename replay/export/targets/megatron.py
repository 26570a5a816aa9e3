"""Megatron-LM: the launch arguments of a plan, uneven stages by `--pipeline-model-parallel-layout`.

Source of names and their meaning: Megatron-LM, `megatron/training/arguments.py`, and
`pipeline_parallel_layer_layout.py` of Megatron Core 0.16, whose letters a layout is written in: E embedding,
t block, L output head and loss, `|` between stages, chunk after chunk.
"""

import shlex
from collections.abc import Mapping
from dataclasses import replace

from replay.export import differences, node_launcher, rank_map
from replay.export.contract import Difference
from replay.export.planned_job import PlannedJob
from twin.core.transformer import Transformer

WHY = "it runs 1F1B and interleaved 1F1B"
ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
READ = "mapfile -t ARGUMENTS < <(xargs -n 1 < arguments.txt)"
COMMAND = '"${MEGATRON:-.}/pretrain_gpt.py" "${ARGUMENTS[@]}"'
RECOMPUTE: dict[str, tuple[str, ...]] = {
    "none": (),
    "selective": ("--recompute-granularity selective",),
    "full": (
        "--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1",
    ),
}  # fmt: skip
PRECISION = {"bf16": "--bf16", "fp16": "--fp16", "fp8": "--bf16 --fp8-format hybrid", "fp32": ""}


class MegatronTarget:
    """Launch arguments of Megatron-LM."""

    name = "megatron"
    about = "Megatron-LM: launch arguments, layout of uneven stages, rank file"

    def difference(self, job: PlannedJob) -> Difference | None:
        """Returns the first part that Megatron's arguments have no words for."""
        return differences.first(
            job,
            (
                differences.no_replicas, differences.no_adapters, differences.one_tensor_width,
                differences.schedule_among(("1f1b", "interleaved"), WHY), differences.usual_warmup,
                differences.zero_at_most(1, "its pipelines shard optimiser states alone"),
                _sequence_parallel_experts, differences.sorted_gpus,
            ),
        )  # fmt: skip

    def files(self, job: PlannedJob) -> Mapping[str, str | bytes]:
        """Returns arguments, the script that starts a node, and the rank file."""
        words = [*model_arguments(job.model), *plan_arguments(job)]
        return {
            "arguments.txt": "".join(f"{word}\n" for word in words),
            "launch.sh": node_launcher.script(job, COMMAND, ENVIRONMENT, (READ,)),
            "ranks.csv": rank_map.table(job),
        }

    def start(self, job: PlannedJob) -> str:
        """Returns how to start `pretrain_gpt.py`."""
        needs = "with Megatron-LM at `$MEGATRON`"
        return (
            f"{node_launcher.usage(job, needs)}\n\nWhat a plan does not say follows the node's name: data, "
            "learning rate, `--train-iters`, checkpoints. `--tokenizer-type NullTokenizer` stands for your "
            "tokenizer, whose vocabulary should be as large."
        )


def layout(job: PlannedJob) -> str:
    """Returns the layout: one string of letters a stage, chunk after chunk."""
    last = len(job.model.layers()) - 1
    stages = []
    for part in job.parts():
        blocks = part.past - part.first - (part.first == 0) - (part.past > last)
        middle = "t" if blocks == 1 else f"t*{blocks}" if blocks else ""
        stages.append("E" * (part.first == 0) + middle + "L" * (part.past > last))
    return "|".join(stages)


def plan_arguments(job: PlannedJob) -> list[str]:
    """Returns what the plan decides, an option and its value each."""
    plan = job.plan
    found = [
        f"--tensor-model-parallel-size {plan.shares[0].tp}",
        f"--pipeline-model-parallel-size {plan.stages}",
        f"--micro-batch-size {plan.micro_batch}",
        f"--global-batch-size {job.job.global_batch}",
        *RECOMPUTE[plan.recompute],
    ]
    if plan.stages > 1:
        found.append(f"--pipeline-model-parallel-layout {shlex.quote(layout(job))}")
    if plan.chunks > 1 and plan.p2p == "blocking":
        found.append("--no-overlap-p2p-communication")
    if plan.context_parallel > 1:
        found.append(f"--context-parallel-size {plan.context_parallel}")
    if plan.ep > 1:
        found.append(f"--expert-model-parallel-size {plan.ep}")
    if plan.sequence_parallel and plan.shares[0].tp > 1:
        found.append("--sequence-parallel")
    if plan.zero:
        found.append("--use-distributed-optimizer")
        if job.job.switches.overlap_reduction is not False:
            found.append("--overlap-grad-reduce")
    return found


def model_arguments(model: Transformer) -> list[str]:
    """Returns the shape of a model, an option and its value each."""
    found = [
        "--use-mcore-models", f"--num-layers {model.blocks}", f"--hidden-size {model.hidden}",
        f"--ffn-hidden-size {model.ffn}", f"--num-attention-heads {model.heads}",
        f"--seq-length {model.seq}", f"--max-position-embeddings {model.seq}",
        "--tokenizer-type NullTokenizer", f"--vocab-size {model.vocab}",
        f"--normalization {'LayerNorm' if model.layer_norm else 'RMSNorm'}",
        f"--position-embedding-type {'learned_absolute' if model.learned_positions else 'rope'}",
        f"--attention-backend {'flash' if model.attention == 'flash' else 'unfused'}",
    ]  # fmt: skip
    switched = {
        "--swiglu": model.gated,
        "--disable-bias-linear": not model.bias,
        "--untie-embeddings-and-output-weights": not model.tied,
        "--attention-dropout 0 --hidden-dropout 0": not model.dropout,
        f"--group-query-attention --num-query-groups {model.kv_heads}": model.kv_heads < model.heads,
        f"--kv-channels {model.head_width}": bool(model.head_dim),
        PRECISION[model.dtype]: model.dtype != "fp32",
    }
    found += [words for words, holds in switched.items() if holds]
    return found + _expert_arguments(model) + _latent_arguments(model)


def _expert_arguments(model: Transformer) -> list[str]:
    experts = model.experts
    if experts is None:
        return []
    pattern = ",".join(str(int(experts.lie_in(n))) for n in range(model.blocks))
    found = [
        f"--num-experts {experts.count}", f"--moe-router-topk {experts.top_k}",
        f"--moe-ffn-hidden-size {experts.ffn}", "--moe-token-dispatcher-type alltoall",
    ]  # fmt: skip
    if "0" in pattern:
        found.append(f"--moe-layer-freq '[{pattern}]'")
    if experts.shared:
        found.append(f"--moe-shared-expert-intermediate-size {experts.shared}")
    return found


def _latent_arguments(model: Transformer) -> list[str]:
    latent = model.latent
    if latent is None:
        return []
    rank = [f"--q-lora-rank {latent.query_rank}"] if latent.query_rank else []
    return [
        "--multi-latent-attention", *rank, f"--kv-lora-rank {latent.kv_rank}",
        f"--qk-head-dim {latent.nope}", f"--qk-pos-emb-head-dim {latent.rope}",
        f"--v-head-dim {latent.value}",
    ]  # fmt: skip


def _sequence_parallel_experts(job: PlannedJob) -> Difference | None:
    """Megatron trains mixtures with tensor parallelism only where sequences are split, too."""
    plan = job.plan
    if job.model.experts is None or plan.shares[0].tp == 1 or plan.sequence_parallel:
        return None
    return Difference(
        "experts with tensor but without sequence parallelism", "it trains them with both",
        "sequence_parallel", replace(plan, sequence_parallel=True),
    )  # fmt: skip
