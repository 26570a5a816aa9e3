"""Decoder-only Transformers: exact parameters and FLOPs per layer, grouped-query attention, gated or plain
MLP, mixtures of experts."""

from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Literal

from ingest.core.errors import UsageError
from ingest.core.terminal import LONGEST, shown
from twin.core.adapters import Adapters
from twin.core.experts import Experts

Dtype = Literal["bf16", "fp16", "fp8", "fp32"]
Attention = Literal["flash", "materialised"]
BYTES_PER_ELEMENT: dict[str, int] = {"bf16": 2, "fp16": 2, "fp8": 2, "fp32": 4}
"""Bytes of one activation element as it is stored and sent; fp8 recipes keep activations in bf16."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One unit of a split: the embedding, a block, or the output head.

    `parameters` are those that the layer holds, `routed` of them those of experts that a router picks,
    `frozen` those that are not trained; `forward_flops_per_sequence` counts a multiply-add as two, of experts
    those that a token passes.
    """

    kind: Literal["embedding", "block", "head"]
    parameters: int
    forward_flops_per_sequence: float
    routed: int = 0
    frozen: int = 0

    @property
    def trained(self) -> int:
        """Parameters that have a gradient."""
        return self.parameters - self.frozen


@dataclass(frozen=True)
class Transformer:
    """Shape of a model with `blocks` Transformer blocks. `seq` and `vocab` belong to it because layer costs
    depend on them.

    `bias`, `learned_positions`, `layer_norm`, `tied` and `dropout` distinguish the GPT family (all true) from
    the Llama family (all false). `attention` materialised: the s x s score matrix is written to memory.

    `experts`: those of a mixture; `ffn` is then the width of the blocks that have none. Experts are gated as
    the MLP is, and have no biases. `adapters`: those of LoRA, which alone are trained then.
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
    experts: Experts | None = None
    adapters: Adapters | None = None

    def __post_init__(self) -> None:
        for name in ("blocks", "hidden", "heads", "kv_heads", "ffn", "seq", "vocab"):
            if getattr(self, name) < 1:
                raise UsageError(f"model {self.name}: {name} must be at least 1")
        if self.hidden % self.heads:
            raise UsageError(
                f"model {self.name}: hidden {self.hidden} is not divisible by {self.heads} heads; "
                "change one of them"
            )
        if self.heads % self.kv_heads:
            raise UsageError(
                f"model {self.name}: {self.heads} heads cannot share {self.kv_heads} kv_heads evenly; "
                "change one of them"
            )
        if self.experts is not None and (fault := self.experts.fault):
            raise UsageError(f"model {self.name}: {fault}")
        narrowest = min(self.kv_hidden, self.ffn)
        if self.adapters is not None and (
            fault := self.adapters.fault(self.gated, self.experts is not None, narrowest)
        ):
            raise UsageError(f"model {self.name}: {fault}")

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
    def mlp_matrices(self) -> int:
        """Matrices of an MLP: gate, value and product, or two."""
        return 3 if self.gated else 2

    @property
    def block_parameters(self) -> int:
        """Parameters of one block without experts: two norms, attention projections, MLP."""
        biases = (self.ffn * (self.mlp_matrices - 1) + self.hidden) if self.bias else 0
        return self._attention_parameters + self._mlp_parameters(self.ffn) + biases

    @property
    def routed_parameters(self) -> int:
        """Parameters of the experts of one block that a router picks; 0 without a mixture."""
        return 0 if self.experts is None else self.experts.count * self._mlp_parameters(self.experts.ffn)

    @property
    def mixture_parameters(self) -> int:
        """Parameters of one block with experts: norms and attention, router, shared and routed experts."""
        assert self.experts is not None, "the model has no experts"
        router = self.hidden * self.experts.count
        shared = self._mlp_parameters(self.experts.shared)
        return self._attention_parameters + router + shared + self.routed_parameters

    @property
    def adapter_widths(self) -> tuple[tuple[int, int], ...]:
        """Input and output width of every matrix of a block that has an adapter."""
        h, kv, f = self.hidden, self.kv_hidden, self.ffn
        widths = {
            "q": (h, h), "k": (h, kv), "v": (h, kv), "o": (h, h),
            "gate": (h, f), "up": (h, f), "down": (f, h),
        }  # fmt: skip
        return () if self.adapters is None else tuple(widths[name] for name in self.adapters.targets)

    @property
    def adapter_parameters(self) -> int:
        """Parameters of the adapters of one block: r (d_in + d_out) each."""
        return 0 if self.adapters is None else self.adapters.rank * sum(map(sum, self.adapter_widths))

    @property
    def trained_parameters(self) -> int:
        """Parameters of the model that have a gradient, a tied matrix counted once."""
        if self.adapters is None:
            return self.parameters
        return sum(layer.trained for layer in self._layers)

    @property
    def _attention_parameters(self) -> int:
        """Parameters of a block but for its MLP."""
        h, kv = self.hidden, self.kv_hidden
        biases = h + 2 * kv + h if self.bias else 0
        return h * h + 2 * h * kv + h * h + biases + 2 * self.norm_parameters

    def _mlp_parameters(self, width: int) -> int:
        """Parameters of the matrices of an MLP."""
        return self.hidden * width * self.mlp_matrices

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
        held = sum(layer.parameters for layer in self._layers)
        return held - (self.vocab * self.hidden if self.tied else 0)

    @property
    def block_flops(self) -> float:
        """Forward FLOPs of one block without experts and sequence; 24 s h^2 (1 + s/(6h)) for the classic
        block.

        The full s x s attention product is counted, causal or not, as is usual.
        """
        return self._attention_flops + 2.0 * self.seq * self._mlp_parameters(self.ffn)

    @property
    def mixture_flops(self) -> float:
        """The same of a block with experts: the router, shared experts, and `top_k` of the others."""
        assert self.experts is not None, "the model has no experts"
        passed = self.experts.shared + self.experts.top_k * self.experts.ffn
        router = self.hidden * self.experts.count
        return self._attention_flops + 2.0 * self.seq * (router + self._mlp_parameters(passed))

    @property
    def core_flops(self) -> float:
        """Those of the attention core, which has no weights: 4 s^2 h."""
        return 4.0 * self.seq**2 * self.hidden

    @property
    def _attention_flops(self) -> float:
        s, h = self.seq, self.hidden
        return float(2 * s * h * (2 * h + 2 * self.kv_hidden) + 4 * s * s * h)

    @property
    def head_flops(self) -> float:
        """Forward FLOPs of the output matrix for one sequence."""
        return 2.0 * self.seq * self.hidden * self.vocab

    @property
    def flops_per_sequence(self) -> float:
        """Model FLOPs (forward and backward, no recompute) of one sequence: the numerator of MFU."""
        done = 3.0 * sum(layer.forward_flops_per_sequence for layer in self._layers)
        if self.adapters is None:
            return done
        has_weights = sum(layer.forward_flops_per_sequence for layer in self._layers)
        has_weights -= self.blocks * (self.core_flops + 2.0 * self.seq * self.adapter_parameters)
        return done - has_weights  # frozen matrices have no weight gradient

    def layers(self) -> tuple[Layer, ...]:
        """Embedding, blocks, head: the N = blocks + 2 units of a split."""
        return self._layers

    @cached_property
    def _layers(self) -> tuple[Layer, ...]:
        blocks = [Layer("block", self.block_parameters, self.block_flops)] * self.blocks
        if self.experts is not None:
            mixture = Layer("block", self.mixture_parameters, self.mixture_flops, self.routed_parameters)
            blocks = [mixture if self.experts.lie_in(n) else block for n, block in enumerate(blocks)]
        layers = (
            Layer("embedding", self.embedding_parameters, 0.0),
            *blocks,
            Layer("head", self.head_parameters, self.head_flops),
        )
        return layers if self.adapters is None else tuple(self._adapted(layer) for layer in layers)

    def _adapted(self, layer: Layer) -> Layer:
        """`layer` frozen, with its adapters."""
        more = self.adapter_parameters if layer.kind == "block" else 0
        flops = layer.forward_flops_per_sequence + 2.0 * self.seq * more
        return replace(
            layer, parameters=layer.parameters + more, forward_flops_per_sequence=flops,
            frozen=layer.parameters,
        )  # fmt: skip


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
# Llama-3: Dubey et al. 2024, table 3 (trained at sequence length 8192). Mixtral 8x7B: Jiang et al. 2024
# (arXiv:2401.04088), table 1; 8x22B and Qwen1.5-MoE-A2.7B: config.json of mistralai/Mixtral-8x22B-v0.1 and of
# Qwen/Qwen1.5-MoE-A2.7B on Hugging Face; both are given sequences of 4,096 tokens here.
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
