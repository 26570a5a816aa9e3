"""Decoder-only Transformers: exact parameters and FLOPs per layer, grouped-query attention, gated or plain
MLP."""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

from ingest.core.errors import UsageError
from ingest.core.terminal import LONGEST, shown

Dtype = Literal["bf16", "fp16", "fp8", "fp32"]
Attention = Literal["flash", "materialised"]
BYTES_PER_ELEMENT: dict[str, int] = {"bf16": 2, "fp16": 2, "fp8": 2, "fp32": 4}
"""Bytes of one activation element as it is stored and sent; fp8 recipes keep activations in bf16."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One unit of a split: the embedding, a block, or the output head.

    `parameters` are those that the layer holds; `forward_flops_per_sequence` counts a multiply-add as two.
    """

    kind: Literal["embedding", "block", "head"]
    parameters: int
    forward_flops_per_sequence: float


@dataclass(frozen=True)
class Transformer:
    """Shape of a model with `blocks` Transformer blocks. `seq` and `vocab` belong to it because layer costs
    depend on them.

    `bias`, `learned_positions`, `layer_norm`, `tied` and `dropout` distinguish the GPT family (all true) from
    the Llama family (all false). `attention` materialised: the s x s score matrix is written to memory.
    """

    name: str
    blocks: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    gated: bool
    seq: int
    vocab: int
    dtype: Dtype = "bf16"
    bias: bool = False
    learned_positions: bool = False
    layer_norm: bool = False
    tied: bool = False
    attention: Attention = "flash"
    dropout: bool = False

    def __post_init__(self) -> None:
        for name in ("blocks", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab"):
            if getattr(self, name) < 1:
                raise UsageError(f"model {self.name}: {name} must be at least 1")
        if self.hidden % self.heads:
            raise UsageError(
                f"model {self.name}: hidden {self.hidden} is not divisible by {self.heads} heads"
            )
        if self.heads % self.kv_heads:
            raise UsageError(
                f"model {self.name}: {self.heads} heads cannot share {self.kv_heads} kv_heads evenly"
            )

    @property
    def kv_hidden(self) -> int:
        """Width of the keys (and of the values): hidden * kv_heads / heads."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def bytes_per_element(self) -> int:
        """Bytes of one activation element."""
        return BYTES_PER_ELEMENT[self.dtype]

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm: a scale, and a shift for LayerNorm."""
        return self.hidden * (2 if self.layer_norm else 1)

    @property
    def block_parameters(self) -> int:
        """Parameters of one block: two norms, attention projections, MLP."""
        h, kv, f = self.hidden, self.kv_hidden, self.ffn
        matrices = h * h + 2 * h * kv + h * h + h * f * (3 if self.gated else 2)
        biases = (h + 2 * kv + h + f * (2 if self.gated else 1) + h) if self.bias else 0
        return matrices + biases + 2 * self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Token embedding, and learned positions where the model has them."""
        return self.vocab * self.hidden + (self.seq * self.hidden if self.learned_positions else 0)

    @property
    def head_parameters(self) -> int:
        """Final norm and output matrix; a pipeline keeps its own copy of a tied matrix."""
        return self.norm_parameters + self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """Parameters of the model, a tied matrix counted once."""
        held = self.embedding_parameters + self.blocks * self.block_parameters + self.head_parameters
        return held - (self.vocab * self.hidden if self.tied else 0)

    @property
    def block_flops(self) -> float:
        """Forward FLOPs of one block and sequence; 24 s h^2 (1 + s/(6h)) for the classic block.

        The full s x s attention product is counted, causal or not, as is usual.
        """
        s, h = self.seq, self.hidden
        projections = 2 * s * h * (2 * h + 2 * self.kv_hidden)
        mlp = 2 * s * h * self.ffn * (3 if self.gated else 2)
        return float(projections + mlp + 4 * s * s * h)

    @property
    def head_flops(self) -> float:
        """Forward FLOPs of the output matrix for one sequence."""
        return 2.0 * self.seq * self.hidden * self.vocab

    @property
    def flops_per_sequence(self) -> float:
        """Model FLOPs (forward and backward, no recompute) of one sequence: the numerator of MFU."""
        return 3.0 * (self.blocks * self.block_flops + self.head_flops)

    def layers(self) -> tuple[Layer, ...]:
        """Embedding, blocks, head: the N = blocks + 2 units of a split."""
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        block = Layer("block", self.block_parameters, self.block_flops)
        return (
            Layer("embedding", self.embedding_parameters, 0.0),
            *(block for _ in range(self.blocks)),
            Layer("head", self.head_parameters, self.head_flops),
        )


def classic(
    name: str, blocks: int, hidden: int, heads: int, seq: int, vocab: int, dtype: Dtype
) -> Transformer:
    """Model of the GPT family: 4h MLP, biases, LayerNorm, learned positions, tied output, materialised
    attention."""
    return Transformer(
        name, blocks, hidden, heads, heads, 4 * hidden, False, seq, vocab, dtype,
        bias=True, learned_positions=True, layer_norm=True, tied=True, attention="materialised",
        dropout=True,
    )  # fmt: skip


# GPT-2: Radford et al. 2019 (1.5B); GPT-3: Brown et al. 2020, table 2.1; Llama-2: Touvron et al. 2023;
# Llama-3: Dubey et al. 2024, table 3 (trained at sequence length 8192).
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
    )
}


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
