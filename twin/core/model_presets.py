"""Published models by name."""

from difflib import get_close_matches

from ingest.core.errors import UsageError
from ingest.core.terminal import LONGEST, shown
from twin.core.experts import Experts
from twin.core.latent_attention import Latent
from twin.core.transformer import Transformer, classic

# GPT-2: Radford et al. 2019 (1.5B); GPT-3: Brown et al. 2020, table 2.1; Llama-2: Touvron et al. 2023;
# Llama-3: Dubey et al. 2024, table 3 (trained at sequence length 8192). Mixtral 8x7B: Jiang et al. 2024
# (arXiv:2401.04088), table 1; 8x22B and Qwen1.5-MoE-A2.7B: config.json of mistralai/Mixtral-8x22B-v0.1 and of
# Qwen/Qwen1.5-MoE-A2.7B on Hugging Face. Qwen3 (8B, 32B, 30B-A3B): config.json of Qwen/Qwen3-*, whose heads
# are 128 wide whatever the hidden size. DeepSeek-V2-Lite (arXiv:2405.04434, appendix B) and V3
# (arXiv:2412.19437, section 4.2), without multi-token prediction. All these have sequences of 4,096 here.
PRESETS: dict[str, Transformer] = {
    model.name: model
    for model in (
        classic("gpt2-1.5b", 48, 1600, 25, 1024, 50257, "fp16"),
        classic("gpt3-175b", 96, 12288, 96, 2048, 50257, "bf16"),
        Transformer("llama2-7b", 32, 4096, 32, 32, 11008, True, 4096, 32000),
        Transformer("llama2-13b", 40, 5120, 40, 40, 13824, True, 4096, 32000),
        Transformer("llama2-70b", 80, 8192, 64, 8, 28672, True, 4096, 32000),
        Transformer("llama3-8b", 32, 4096, 32, 8, 14336, True, 8192, 128256),
        Transformer("llama3-70b", 80, 8192, 64, 8, 28672, True, 8192, 128256),
        Transformer("llama3-405b", 126, 16384, 128, 8, 53248, True, 8192, 128256),
        Transformer(
            "mixtral-8x7b", 32, 4096, 32, 8, 14336, True, 4096, 32000, experts=Experts(8, 2, 14336)
        ),
        Transformer(
            "mixtral-8x22b", 56, 6144, 48, 8, 16384, True, 4096, 32000, experts=Experts(8, 2, 16384)
        ),
        Transformer(
            "qwen1.5-moe-a2.7b", 24, 2048, 16, 16, 5632, True, 4096, 151936,
            experts=Experts(60, 4, 1408, shared=5632),
        ),
        Transformer("qwen3-8b", 36, 4096, 32, 8, 12288, True, 4096, 151936, head_dim=128),
        Transformer("qwen3-32b", 64, 5120, 64, 8, 25600, True, 4096, 151936, head_dim=128),
        Transformer(
            "qwen3-30b-a3b", 48, 2048, 32, 4, 6144, True, 4096, 151936, head_dim=128,
            experts=Experts(128, 8, 768),
        ),
        Transformer(
            "deepseek-v2-lite", 27, 2048, 16, 16, 10944, True, 4096, 102400,
            experts=Experts(64, 6, 1408, shared=2816, first=1), latent=Latent(0, 512, 128, 64, 128),
        ),
        Transformer(
            "deepseek-v3", 61, 7168, 128, 128, 18432, True, 4096, 129280,
            experts=Experts(256, 8, 2048, shared=2048, first=3), latent=Latent(1536, 512, 128, 64, 128),
        ),
    )
}  # fmt: skip


def preset(name: str) -> Transformer:
    """Model of that name, in any case, `llama-2` or `llama2`.

    Raises:
        UsageError: unknown model; the message names the nearest and all known ones.
    """
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    for family in ("gpt", "llama"):
        key = key.replace(f"{family}-", family)
    if key not in PRESETS:
        near = ", ".join(get_close_matches(key[:LONGEST], PRESETS, n=3, cutoff=0.4))
        raise UsageError(
            f"model {shown(name)} is not known; " + (f"nearest: {near}; " if near else "")
            + f"known: {', '.join(PRESETS)}; `twin estimate` takes any other by its layers and hidden size"
        )  # fmt: skip
    return PRESETS[key]
