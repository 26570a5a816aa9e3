"""Arguments of `twin export --to megatron`, read by Megatron Core.

    python -m tests.real.megatron_core FOLDER

FOLDER is an export. Needs `megatron-core`, no GPU. Megatron's own `TransformerConfig` takes shape, sizes,
layout; prints the layers that its layout gives each stage, and fails where the README has others.
"""

import re
import shlex
import sys
import warnings
from itertools import chain
from pathlib import Path

import torch

warnings.simplefilter("ignore")
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig  # noqa: E402

WHOLE = {
    "num-layers": "num_layers", "hidden-size": "hidden_size", "ffn-hidden-size": "ffn_hidden_size",
    "num-attention-heads": "num_attention_heads", "num-query-groups": "num_query_groups",
    "kv-channels": "kv_channels", "tensor-model-parallel-size": "tensor_model_parallel_size",
    "pipeline-model-parallel-size": "pipeline_model_parallel_size",
    "context-parallel-size": "context_parallel_size",
    "expert-model-parallel-size": "expert_model_parallel_size", "num-experts": "num_moe_experts",
    "moe-router-topk": "moe_router_topk", "moe-ffn-hidden-size": "moe_ffn_hidden_size",
    "recompute-num-layers": "recompute_num_layers", "q-lora-rank": "q_lora_rank",
    "kv-lora-rank": "kv_lora_rank", "qk-head-dim": "qk_head_dim", "v-head-dim": "v_head_dim",
    "qk-pos-emb-head-dim": "qk_pos_emb_head_dim",
    "moe-shared-expert-intermediate-size": "moe_shared_expert_intermediate_size",
}  # fmt: skip
WORDS = {
    "normalization": "normalization", "recompute-granularity": "recompute_granularity",
    "recompute-method": "recompute_method",
    "pipeline-model-parallel-layout": "pipeline_model_parallel_layout",
}  # fmt: skip


def main(folder: Path) -> None:
    words = shlex.split((folder / "arguments.txt").read_text())
    given = {word[2:]: words[n + 1 : n + 2] for n, word in enumerate(words) if word.startswith("--")}
    said = {own: int(given[name][0]) for name, own in WHOLE.items() if name in given}
    said |= {own: given[name][0] for name, own in WORDS.items() if name in given}
    said |= {"gated_linear_unit": "swiglu" in given, "add_bias_linear": "disable-bias-linear" not in given}
    said |= {"bf16": "bf16" in given, "pipeline_dtype": torch.bfloat16}
    said |= {"sequence_parallel": "sequence-parallel" in given}
    if "moe-layer-freq" in given:
        said["moe_layer_freq"] = [int(one) for one in re.findall("[01]", given["moe-layer-freq"][0])]
    layout = said.get("pipeline_model_parallel_layout")
    if layout and (chunks := (layout.count("|") + 1) // said["pipeline_model_parallel_size"]) > 1:
        said["virtual_pipeline_model_parallel_size"] = chunks
    latent = "multi-latent-attention" in given
    config = (MLATransformerConfig if latent else TransformerConfig)(
        **said, **({"multi_latent_attention": True} if latent else {})
    )
    held = config.pipeline_model_parallel_layout
    if held is None:
        print(f"one stage of {config.num_layers} blocks")
        return
    held.validate_layer_layout(config.num_layers, None)
    counts = [[len(chunk) for chunk in stage] for stage in held.layout]
    print(f"layers of the chunks of each stage: {counts}")
    text = (folder / "README.md").read_text()
    planned = [int(n) for row in re.findall(r"\| ([\d +]+) \|\n", text) for n in row.split("+")]
    assert sorted(chain.from_iterable(counts)) == sorted(planned), f"the plan has {planned}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
